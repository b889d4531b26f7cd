"""Wake-ups: a topic's name in a datagram to every other process, lost without harm.

Each process binds `<runtime>/wake/<pid>-<random>.sock`. A waiter looks at the tables after every
wake-up and after every timeout, so a lost datagram costs time and a superfluous one costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

from cordata import log
from cordata.store.topic import Topics
from cordata.unix_socket import socket_address

_log = log.logger("cordata.store")

#: Between checks that the socket of the process still exists.
_LOOK_S = 5.0
#: Of a datagram: the names of 20 topics that are as long as the type of an event may be. What is
#: cut off is found at the next look.
_MAX_BYTES = 16_384
_SEPARATOR = b"\0"


class WakeUps(Topics):
    """The topics of one process and its socket to the others."""

    def __init__(self, runtime_dir: Path, loop: asyncio.AbstractEventLoop) -> None:
        """Without a usable runtime directory it wakes only this process, and logs a warning."""
        super().__init__(loop)
        self._folder = runtime_dir / "wake"
        self._socket: socket.socket | None = None
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
        """Bind again when the socket was deleted (for example by a cleaner of /run)."""
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
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            with socket_address(self._folder / self._name) as address:
                bound.bind(address)
        except OSError:
            bound.close()
            raise
        os.chmod(self._folder / self._name, 0o600)
        return bound

    def broadcast(self, names: list[str]) -> None:
        """As in Topics: a datagram to each socket in the directory."""
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
            path = self._folder / other
            try:
                with socket_address(path) as address:
                    self._socket.sendto(data, address)
            except BlockingIOError:
                pass  # its queue is full of wake-ups, so it will read the tables anyway
            except ConnectionRefusedError:  # its process is dead
                with contextlib.suppress(OSError):
                    path.unlink()
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
            self.wake(name.decode("utf-8", "replace"))

    def close(self) -> None:
        """Send what is still to be sent, and unbind the socket."""
        if names := self.take_pending():
            self.broadcast(names)
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                os.unlink(self._folder / self._name)
