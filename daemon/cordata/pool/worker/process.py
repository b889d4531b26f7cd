"""One child as its worker sees it: its end, its output, its health, the channel to it.

```
  started --Up--> idle --ping, no pong--> "unhealthy"
     |             |  ^-- call ends
     '--> "init"   '--> runs a call, past deadline + grace --> "deadline"
     any --stop sent--> leaving, idle and still there --> "stop"
```
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from cordata import clock
from cordata.config.pool import PoolConfig
from cordata.errors import ProtocolError
from cordata.pool.shared import page
from cordata.pool.shared.page import Status, StatusReader
from cordata.pool.shared.protocol import (
    ChildToWorker,
    Packet,
    Stop,
    call_id,
    child_to_worker,
    encode,
)
from cordata.pool.shared.spec import ChildSpec
from cordata.pool.worker.output import WorkerOutput
from cordata.pool.worker.spawning import spawn

_READ = 65536
#: Of a dead child's output at most, so that one that left much behind does not hold up the loop.
_LAST_READS = 16
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: `Health.look` says it when a ping is due; everything else is a reason to kill the child.
PING = "ping"


class Exit(NamedTuple):
    """How a child ended."""

    code: int | None
    signal: int | None
    #: Why the worker ended it; "": it ended by itself.
    why: str
    #: What it wrote last, in its last call or after it.
    lines: tuple[str, ...]
    #: Its status page as it left it.
    status: Status

    def how(self) -> str:
        """`with status 3`, or `by SIGSEGV`."""
        if self.signal is None:
            return f"with status {self.code}"
        with contextlib.suppress(ValueError):  # a signal that has no name
            return f"by {signal.Signals(self.signal).name}"
        return f"by signal {self.signal}"


class Health:
    """What a child has to do by which time: warm up, end its call, answer, leave. Pure."""

    def __init__(self, now: float) -> None:
        self._started = now
        self.up = False
        #: When it had no call first, so that it could have answered.
        self._idle_since = now
        #: When it was heard of last.
        self._heard = now
        self._pinged: float | None = None
        self._left: float | None = None

    def say_up(self, now: float) -> None:
        """It is warm."""
        self.up = True
        self._heard = self._idle_since = now

    def say_pong(self, now: float) -> None:
        """It answered."""
        self._heard, self._pinged = now, None

    def say_stop(self, now: float) -> None:
        """It was told to leave."""
        if self._left is None:
            self._left = now

    def look(self, *, running: bool, deadline: float, now: float, config: PoolConfig) -> str:
        """PING, which is then taken as sent; the reason to kill it; or ""."""
        if running:
            self._idle_since = now
            late = deadline and now >= deadline + config.kill_grace_s
            return "deadline" if late else ""
        timeout_s = config.health_timeout_s
        if self._left is not None:
            return "stop" if now >= max(self._left, self._idle_since) + timeout_s else ""
        if not self.up:
            return "init" if now >= self._started + config.init_timeout_s else ""
        if self._pinged is not None:
            return "unhealthy" if now >= max(self._pinged, self._idle_since) + timeout_s else ""
        if now >= self._heard + config.health_s:
            self._pinged = now
            return PING
        return ""


class ChildProcess:
    """A child that was started. `on_exit` is called once, after all that it said."""

    def __init__(
        self,
        spec: ChildSpec,
        *,
        spare: bool,
        on_message: Callable[[ChildProcess, ChildToWorker], None],
        on_exit: Callable[[ChildProcess, Exit], None],
    ) -> None:
        """Start it. Raises: OSError."""
        self._spawned = spawn(spec)
        self.pid, self.generation = self._spawned.pid, spec.generation
        self.spare = spare
        self.started_at = clock.monotonic()
        self.health = Health(self.started_at)
        self.leaving = False
        #: It may take a moment to die.
        self.killed = False
        #: Why it cannot warm up, as it said.
        self.start_error = ""
        self._why = ""
        self._on_message, self._on_exit = on_message, on_exit
        self._reader = StatusReader(self._spawned.files.status_path())
        self._output = WorkerOutput(spec.place.worker, self.pid, running=self.running_call)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._spawned.pidfd, self._reap)
        self._loop.add_reader(self._spawned.output, self._wrote)
        self._loop.add_reader(self._spawned.channel, self.hear)

    def status(self) -> Status:
        """Its status page."""
        return self._reader.read()

    def running_call(self) -> str:
        """CALL_ID of the call that runs; "": none."""
        status = self.status()
        return call_id(status.client, status.id) if status.running else ""

    def rss_bytes(self) -> int:
        """Resident memory, by the second field of proc_pid_statm(5); 0 when it is gone."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0

    def publish(self) -> None:
        """It is warm: clients may connect."""
        self._spawned.files.publish()

    def set_drained(self, drained: bool) -> None:
        """Whether clients are to send it no more calls."""
        page.set_drained(self._spawned.status, drained)

    def send(self, packet: Packet) -> None:
        """By the channel. One that does not take it is dead, or about to be found out."""
        with contextlib.suppress(OSError):
            self._spawned.channel.send(encode(packet))

    def leave(self) -> None:
        """It is to end by itself, after its current call; one that is not warm yet has none."""
        if not self.leaving:
            self.leaving = True
            self.set_drained(True)
            self.health.say_stop(clock.monotonic())
            if self.health.up:
                self.send(Stop())
            else:
                self.kill("stop")

    def blame(self, why: str) -> None:
        """It will end by itself, but its end accuses no command."""
        self._why = self._why or why

    def hold(self) -> None:
        """Let no call begin: what the status page says of the call that runs is true until
        `release`, so that it can be killed in that call and in no other.
        """
        page.set_held(self._spawned.status, True)
        time.sleep(page.SETTLE_S)

    def release(self) -> None:
        """Let calls begin again."""
        page.set_held(self._spawned.status, False)

    def kill(self, why: str) -> None:
        """With all that it started, as far as that stayed in its session."""
        self.blame(why)
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def destroy(self) -> None:
        """At the worker's own end: kill it and take its status, without any word of it."""
        self._forget()
        self.kill("stop")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)  # not by the pidfd, which the loop made one that does not wait
        self._close()

    def hear(self) -> None:
        """Take what it said by now; called by the loop, and before the child is judged."""
        try:
            while data := self._spawned.channel.recv(_READ):
                self._on_message(self, child_to_worker.decode(data))
        except BlockingIOError:
            return
        except OSError:
            pass
        except ProtocolError:
            self.kill("channel")
        # It dies; or a command has closed it, and the next ping finds that out.
        self._loop.remove_reader(self._spawned.channel)

    def _reap(self) -> None:
        """The pid stays its own until its status is taken, so its group is still its group."""
        self._forget()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = os.waitid(os.P_PIDFD, self._spawned.pidfd, os.WEXITED)
        self.hear()
        self._wrote(times=_LAST_READS)
        self._output.end(clock.monotonic())
        code = None if status is None or status.si_code != os.CLD_EXITED else status.si_status
        killed_by = None if status is None or code is not None else status.si_status
        why = self._why or ("stop" if self.leaving and code == 0 else "")
        lines = self._output.tail.lines(self.running_call())
        end = Exit(code, killed_by, why, lines, self.status())
        self._close()
        self._on_exit(self, end)

    def _wrote(self, *, times: int = 1) -> None:
        for _ in range(times):
            try:
                data = os.read(self._spawned.output, _READ)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._spawned.output)
                return
            self._output.feed(data, clock.monotonic())

    def _forget(self) -> None:
        for file in (self._spawned.pidfd, self._spawned.output, self._spawned.channel):
            self._loop.remove_reader(file)

    def _close(self) -> None:
        self._reader.close()
        self._spawned.close()
