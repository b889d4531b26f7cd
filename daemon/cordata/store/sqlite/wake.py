"""Wake-ups: a topic's name in a datagram to every other process, lost without harm.

Each process binds `<runtime>/wake/<pid>-<random>.sock`. Who waits looks at the tables after every
wake-up and after every timeout, so a lost datagram costs time and a superfluous one costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

from cordata import log

_log = log.logger("cordata.store")

#: Further wake-ups of a topic within this time travel together; the first one goes at once.
_GATHER_S = 0.005
#: How often each process sees to it that its socket can still be found.
_LOOK_S = 5.0
_MAX_BYTES = 4096
#: sun_path holds 108 bytes, see unix(7); a deeper directory is reached through /proc/self/fd.
_MAX_PATH_BYTES = 100
_SEPARATOR = b"\0"


class Topic:
    """Who waits for one topic in this process; no wake-up is lost between two waits of a task."""

    __slots__ = ("_count", "_seen", "_taken", "_waiting")

    def __init__(self) -> None:
        #: Wake-ups so far, and how many of them each task that waits again and again has seen.
        self._count = 0
        self._seen: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
        #: How many of them tasks have seen that waited for the first time.
        self._taken = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Wake all who wait; who does not wait now finds out at its next wait."""
        self._count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """True when woken, False after the timeout."""
        task = asyncio.current_task()
        assert task is not None
        if self._seen.get(task, self._taken) < self._count:
            self._see(task)
            return True
        before = self._count
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        timer = loop.call_later(timeout_s, _time_out, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)
        self._see(task)
        return self._count > before

    def _see(self, task: asyncio.Task[object]) -> None:
        self._seen[task] = self._count
        self._taken = self._count


def _time_out(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class WakeUps:
    """The topics of one process and its socket to the others."""

    def __init__(self, runtime_dir: Path, loop: asyncio.AbstractEventLoop) -> None:
        """Without a usable runtime directory only this process is woken; a log line says so."""
        self._folder = runtime_dir / "wake"
        self._loop = loop
        self._topics: dict[str, Topic] = {}
        self._gathering: dict[str, bool] = {}
        self._socket: socket.socket | None = None
        self._prefix = str(self._folder)
        self._folder_fd: int | None = None
        self._name = f"{os.getpid()}-{os.urandom(4).hex()}.sock"
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._socket = self._bind()
        except OSError as error:
            _log.warning(
                "no wake-ups between processes: %s: %s", self._folder, error.strerror or error
            )
        else:
            loop.add_reader(self._socket.fileno(), self._receive)
            self._timer = loop.call_later(_LOOK_S, self.look)

    def look(self) -> None:
        """Bind anew when somebody deleted the socket (the runtime directory was cleaned, say)."""
        self._timer = self._loop.call_later(_LOOK_S, self.look)
        if self._socket is None or (self._folder / self._name).exists():
            return
        with contextlib.suppress(OSError):  # once more at the next look
            renewed = self._bind()
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = renewed
            self._loop.add_reader(renewed.fileno(), self._receive)

    def _bind(self) -> socket.socket:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.fsencode(self._folder)) + len(self._name) > _MAX_PATH_BYTES:
            if self._folder_fd is not None:
                os.close(self._folder_fd)
                self._folder_fd = None
            self._folder_fd = os.open(self._folder, os.O_PATH | os.O_CLOEXEC)
            self._prefix = f"/proc/self/fd/{self._folder_fd}"
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            bound.bind(f"{self._prefix}/{self._name}")
        except OSError:
            bound.close()
            raise
        os.chmod(self._folder / self._name, 0o600)
        return bound

    def topic(self, name: str) -> Topic:
        """The topic of a name."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic()
        return topic

    def notify(self, names: Iterable[str]) -> None:
        """Wake who waits for any of these topics, here now and in other processes soon."""
        now = []
        for name in names:
            self.topic(name).wake()
            if name in self._gathering:
                self._gathering[name] = True
            else:
                self._gathering[name] = False
                self._loop.call_later(_GATHER_S, self._gathered, name)
                now.append(name)
        if now:
            self._send(now)

    def _gathered(self, name: str) -> None:
        if self._gathering.pop(name) and self._socket is not None:
            self._gathering[name] = False
            self._loop.call_later(_GATHER_S, self._gathered, name)
            self._send([name])

    def _send(self, names: list[str]) -> None:
        if self._socket is None:
            return
        data = _SEPARATOR.join(name.encode() for name in names)[:_MAX_BYTES]
        try:
            others = os.listdir(self._folder)
        except OSError:
            return
        for other in others:
            if other == self._name or not other.endswith(".sock"):
                continue
            path = f"{self._prefix}/{other}"
            try:
                self._socket.sendto(data, path)
            except BlockingIOError:
                pass  # its queue is full of wake-ups: it will look anyway
            except ConnectionRefusedError:  # its process is dead
                with contextlib.suppress(OSError):
                    os.unlink(path)
            except OSError:
                pass  # gone meanwhile, or not ours

    def _receive(self) -> None:
        names: set[bytes] = set()
        assert self._socket is not None
        while True:
            try:
                data = self._socket.recv(_MAX_BYTES)
            except OSError:
                break
            names.update(data.split(_SEPARATOR))
        for name in names:
            self.topic(name.decode("utf-8", "replace")).wake()

    def close(self) -> None:
        """Unbind the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                os.unlink(self._folder / self._name)
        if self._folder_fd is not None:
            os.close(self._folder_fd)
            self._folder_fd = None
