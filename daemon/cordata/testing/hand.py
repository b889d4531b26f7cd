"""What a pool's child does, in a thread of a test's process."""

from __future__ import annotations

import contextlib
import inspect
import socket
from collections.abc import Mapping, Sequence
from time import monotonic

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_client
from cordata.core.pool.message import Message, ToClient
from cordata.core.pool.order import Run
from cordata.core.pool.spec import ChildSpec
from cordata.pool.child.calling import Calling, find
from cordata.pool.child.connection import Connection
from cordata.pool.child.flow import Flow


class Hand:
    """What a child does, less its process: all of it in one thread, but `tell` and `heard`."""

    def __init__(self, commands: Mapping[str, str], inits: Sequence[str], max_bytes: int) -> None:
        self._places, self._inits = commands, inits
        spec = ChildSpec(worker="0", socket="", path=(), commands={}, max_frame_bytes=max_bytes)
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._channels = socket.socketpair()
        self._connection = Connection(spec)
        self._connection.socket, self._connection.epoch = theirs, "0" * 16
        self._splitter = Splitter(max_bytes)
        self._calling: Calling | None = None

    def answer(self, run: Run) -> bytes:
        """The call's last frame. Raises: what importing the commands, or an init, raises."""
        if self._calling is None:
            commands = {name: find(place) for name, place in self._places.items()}
            calling = Calling(commands, Flow(self._connection, self._channels[0].fileno()))
            for place in self._inits:
                made = find(place)()
                if inspect.iscoroutine(made):
                    calling.asynchronous.run(made)
            self._calling = calling
        return self._calling.answer(run, monotonic())

    def tell(self, message: Message) -> None:
        """What a manager says while a call runs."""
        with contextlib.suppress(OSError):
            self.socket.send(encode(message))

    def heard(self) -> list[ToClient]:
        """The parts that came by now."""
        found: list[ToClient] = []
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(1 << 18):
                for frame in self._splitter.feed(data):
                    assert not isinstance(frame, TooLarge)
                    found.append(to_client.decode(frame))
        return found

    def close(self) -> None:
        """Nothing runs any more."""
        if self._calling is not None:
            self._calling.close()
        self._connection.lose()
        for one in (self.socket, *self._channels):
            one.close()
