"""One child process in its worker: its health, its output, the channel to it, and its end.

```
  started --Up--> idle --ping (after health_s, or at once if it was stopped), no pong--> "unhealthy"
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

from cordata import clock
from cordata.config.pool import PoolConfig
from cordata.errors import ProtocolError
from cordata.pool.shared import page
from cordata.pool.shared.page import Status
from cordata.pool.shared.protocol import (
    ChildToWorker,
    Death,
    Packet,
    Stop,
    child_to_worker,
    encode,
)
from cordata.pool.shared.spec import ChildSpec
from cordata.pool.worker.output import WorkerOutput
from cordata.pool.worker.spawning import spawn

_READ = 65536
#: Reads of a dead child's remaining output, at most: more would block the loop for long.
_LAST_READS = 16
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: Result of `Health.due_action` when a ping is due; any other text is a reason to kill the child.
PING = "ping"


class Health:
    """The time limits of a child: to warm up, end its call, answer, leave. Pure."""

    def __init__(self, now: float) -> None:
        self._started = now
        self.up = False
        #: Start of the time without a call, in which it can answer.
        self._idle_since = now
        #: Time of its last message.
        self._heard = now
        self._pinged: float | None = None
        self._left: float | None = None

    def note_up(self, now: float) -> None:
        """The child is warm."""
        self.up = True
        self._heard = self._idle_since = now

    def note_pong(self, now: float) -> None:
        """The child answered."""
        self._heard, self._pinged = now, None

    def note_stop(self, now: float) -> None:
        """The child was asked to leave."""
        if self._left is None:
            self._left = now

    def due_action(
        self, *, running: bool, stopped: bool, deadline: float, now: float, config: PoolConfig
    ) -> str:
        """What is due: PING, which counts as sent then, the reason to kill the child, or ""."""
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
        if stopped or now >= self._heard + config.health_s:
            self._pinged = now
            return PING
        return ""


class ChildProcess:
    """A child that was started. `on_exit` is called once, after all its messages and output, with
    its last status page.
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        on_message: Callable[[ChildProcess, ChildToWorker], None],
        on_exit: Callable[[ChildProcess, Death, Status], None],
    ) -> None:
        """Start it. Raises: OSError."""
        self._spawned = spawn(spec)
        self.pid, self.generation = self._spawned.pid, spec.generation
        self.started_at = clock.monotonic()
        self.health = Health(self.started_at)
        self.leaving = False
        #: SIGKILL was sent; the exit follows.
        self.killed = False
        #: Why it could not warm up, by its StartFailed; "": it sent none.
        self.start_error = ""
        self._reason = ""
        self._on_message, self._on_exit = on_message, on_exit
        self._output = WorkerOutput(
            spec.place.worker, self.pid, running=lambda: self.status().call_id
        )
        self._loop = asyncio.get_running_loop()
        #: How it ended, when it has.
        self.death: asyncio.Future[Death] = self._loop.create_future()
        self._loop.add_reader(self._spawned.pidfd, self._reap)
        self._loop.add_reader(self._spawned.output, self._wrote)
        self._loop.add_reader(self._spawned.channel, self.receive)

    def status(self) -> Status:
        """The current content of its status page."""
        return self._spawned.reader.read()

    def rss_bytes(self) -> int:
        """Resident memory, from the second field of proc_pid_statm(5); 0 if the process is gone."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it (SIGSTOP). Clients take it for free: without this their
        calls wait for 35 s until another child gets them, with it for 6 s.
        """
        flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # it is dead
            return os.waitid(os.P_PIDFD, self._spawned.pidfd, flags) is not None
        return False

    def publish(self) -> None:
        """Let clients connect: the child is warm."""
        self._spawned.publish()

    def set_drained(self, drained: bool) -> None:
        """Set whether clients may send it no new calls."""
        page.set_drained(self._spawned.page, drained)

    def send(self, packet: Packet) -> None:
        """Send by the channel. A failure is ignored: an exit or a missing Pong follows."""
        with contextlib.suppress(OSError):
            self._spawned.channel.send(encode(packet))

    def leave(self) -> None:
        """Ask the child to end after its current call; one that is not warm is killed at once."""
        if not self.leaving:
            self.leaving = True
            self.set_drained(True)
            self.health.note_stop(clock.monotonic())
            if self.health.up:
                self.send(Stop())
            else:
                self.kill("stop")

    def set_reason(self, reason: str) -> None:
        """Set why it ends, so that its end does not count as a crash; the first reason stays."""
        self._reason = self._reason or reason

    def pause_calls(self) -> None:
        """Let no other call begin until `resume_calls`, so that the child is killed only in the
        call for which the worker decided it. Blocks for SETTLE_S.
        """
        page.set_paused(self._spawned.page, True)
        time.sleep(page.SETTLE_S)

    def resume_calls(self) -> None:
        """Let calls begin again."""
        page.set_paused(self._spawned.page, False)

    def kill(self, reason: str) -> None:
        """Kill the child and the processes that it started, if they are still in its group."""
        self.set_reason(reason)
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def destroy(self) -> None:
        """Kill and reap the child without calling `on_exit`; for the end of the worker."""
        self._remove_readers()
        self.kill("stop")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)  # not by the pidfd, which is non-blocking
        self._spawned.ends.close()

    def receive(self) -> None:
        """Read all messages that are there; called by the loop, and before a kill is decided."""
        try:
            while data := self._spawned.channel.recv(_READ):
                self._on_message(self, child_to_worker.decode(data))
        except BlockingIOError:
            return
        except OSError:
            pass
        except ProtocolError:
            self.kill("channel")
        # It is dying, or a command has closed the channel: then the next ping shows it.
        self._loop.remove_reader(self._spawned.channel)

    def _reap(self) -> None:
        """Take the exit status. Until then the pid is not used again, so what may kill by it comes
        first.
        """
        self._remove_readers()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.receive()
        found = os.waitid(os.P_PIDFD, self._spawned.pidfd, os.WEXITED)
        self._wrote(times=_LAST_READS)
        self._output.end(clock.monotonic())
        code = None if found is None or found.si_code != os.CLD_EXITED else found.si_status
        killed_by = None if found is None or code is not None else found.si_status
        reason = self._reason or ("stop" if self.leaving and code == 0 else "")
        status = self.status()
        lines = self._output.tail.lines(status.call_id)
        self._spawned.ends.close()
        self._on_exit(self, Death(0, True, reason, code, killed_by, lines), status)

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

    def _remove_readers(self) -> None:
        for file in (self._spawned.pidfd, self._spawned.output, self._spawned.channel):
            self._loop.remove_reader(file)
