"""One child process in its worker's loop: its end, its output, the second channel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from cordata import clock
from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool import page
from cordata.core.pool.codec import child_to_worker, encode
from cordata.core.pool.message import Message
from cordata.core.pool.order import Adopt, ChildToWorker, Stop, TakeBack, TakenBack
from cordata.core.pool.page import Hand
from cordata.core.pool.spec import ChildSpec
from cordata.errors import ProtocolError
from cordata.pool.worker.measure import rss_bytes
from cordata.pool.worker.output import Output
from cordata.pool.worker.spawning import spawn
from cordata.pool.worker.watch import Watch

_READ = 65536
#: Of a dead child's output at most, so that one that left much behind does not hold up the loop.
_LAST_READS = 16


class Exit(NamedTuple):
    """How a child ended."""

    code: int | None
    signal: int | None
    #: Why the worker ended it; "": it ended by itself.
    why: str
    #: What it wrote last in the call in hand, or between two calls.
    lines: tuple[str, ...]
    #: Its page as it left it.
    hand: Hand


class ChildProcess:
    """A child that was started. `on_exit` is called once, after all that it said."""

    def __init__(
        self,
        spec: ChildSpec,
        *,
        epoch: Callable[[], str],
        on_message: Callable[[ChildProcess, ChildToWorker], None],
        on_exit: Callable[[ChildProcess, Exit], None],
    ) -> None:
        """Start it. Raises: OSError."""
        self._spawned = spawn(spec)
        self.pid, self.start = self._spawned.pid, self._spawned.start
        self.spare = spec.spare
        self.started_at = self.measured_at = clock.monotonic()
        self.watch = Watch(self.started_at)
        self.leaving = False
        #: It may take a moment to die.
        self.killed = False
        #: Why it cannot warm up, as it said.
        self.start_error = ""
        self._gone = False
        self._why = ""
        self._on_message, self._on_exit = on_message, on_exit
        self._page = memoryview(self._spawned.page)
        self._output = Output(
            spec.worker, self.pid, in_hand=self._in_hand, call_id=lambda n: f"{epoch()}-{n}"
        )
        self._splitter = Splitter()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._spawned.pidfd, self._died)
        self._loop.add_reader(self._spawned.output, self._wrote)
        self._loop.add_reader(self._spawned.channel, self.hear)

    def hand(self) -> Hand:
        """What it has in its hands."""
        return page.read(self._page)

    def take_back(self, asked: TakeBack, send: Callable[[TakenBack], None]) -> None:
        """No run up to number `o` may begin any more; tell which was the last begun."""

        def tell() -> None:
            if not self._gone:  # else its end tells
                send(TakenBack(asked.pid, asked.start, asked.o, self.hand().order))

        page.mark(self._page, asked.o)
        self._loop.call_later(page.SETTLE_S, tell)

    def rss_bytes(self) -> int:
        """Its own resident memory."""
        return rss_bytes(self.pid)

    def send(self, message: Message) -> None:
        """By the second channel. One that does not take it is dead, or about to be found out."""
        with contextlib.suppress(OSError):
            self._spawned.channel.send(encode(message))

    def leave(self) -> None:
        """It is to end by itself, after the call in hand; one that is not warm yet has none."""
        if not self.leaving:
            self.leaving = True
            self.watch.say_stop(clock.monotonic())
            # The manager hears of it first: it would take an end that nobody told it for a crash.
            asyncio.get_running_loop().call_soon(self._dismiss)

    def _dismiss(self) -> None:
        if self.watch.up:
            self.send(Stop())
        else:
            self.kill("stop")

    def adopt(self) -> None:
        """The spare is the worker's child from now on."""
        self.spare = False
        self.send(Adopt())

    def blame(self, why: str) -> None:
        """It will end by itself, but its end accuses no command."""
        self._why = self._why or why

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

    def _died(self) -> None:
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
        lines = self._output.tail.lines(self._in_hand())
        end = Exit(code, killed_by, why, lines, self.hand())
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

    def hear(self) -> None:
        """What it said by now; the loop calls it, and whoever is about to judge the child."""
        try:
            data = self._spawned.channel.recv(_READ)
            for frame in self._splitter.feed(data):
                if isinstance(frame, TooLarge):
                    raise ProtocolError(f"a frame of {frame.length} bytes")
                self._on_message(self, child_to_worker.decode(frame))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        except ProtocolError:
            self.kill("channel")
        if not data:
            # It dies; or a command has closed it, and the next ping finds that out.
            self._loop.remove_reader(self._spawned.channel)

    def _in_hand(self) -> int:
        hand = self.hand()
        return hand.serial if hand.busy else 0

    def _forget(self) -> None:
        for file in (self._spawned.pidfd, self._spawned.output, self._spawned.channel):
            self._loop.remove_reader(file)

    def _close(self) -> None:
        self._gone = True
        self._page.release()
        self._spawned.close()
