"""The other side of the pool's socket, by script: a client, worker, child or manager of a test."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool import message as client_messages
from cordata.core.pool import order
from cordata.core.pool.codec import Decoder, encode
from cordata.core.pool.message import Hello, Message, Role, Welcome

M = TypeVar("M", bound=Message)
_KINDS = [
    kind
    for module in (client_messages, order)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]
#: A run over a loan has the same name; it comes over no socket of these.
_BY_NAME = {kind.__struct_config__.tag: kind for kind in _KINDS if kind is not order.LentRun}


class Peer:
    """A blocking socket that speaks frames. Whatever either side may say can be sent and read."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._splitter = Splitter(1 << 30)
        self._frames: deque[bytes] = deque()

    def send(self, message: Message) -> None:
        self.socket.sendall(encode(message))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hello(self, role: Role, name: str = "", **fields: Any) -> Welcome:
        """The handshake of who dials."""
        self.send(Hello(role=role, name=name, **fields))
        return self.expect(Welcome)

    def expect(self, kind: type[M], timeout_s: float = 20.0) -> M:
        """The next message, which must be of this type."""
        frame = self._frame(timeout_s)
        assert frame is not None, f"the connection ended, {kind.__name__} was expected"
        found = msgspec.msgpack.decode(frame[4:], type=dict[str, msgspec.Raw])
        said = msgspec.msgpack.decode(found["t"])
        assert _BY_NAME[said] is kind, f"{said} {msgspec.msgpack.decode(frame[4:])}"
        decoder: Decoder[M] = Decoder(kind)
        return decoder.decode(frame)

    def any(self, timeout_s: float = 20.0) -> Message:
        """The next message, of whatever type."""
        frame = self._frame(timeout_s)
        assert frame is not None, "the connection ended"
        said = msgspec.msgpack.decode(frame[4:], type=dict[str, msgspec.Raw])["t"]
        return msgspec.msgpack.decode(frame[4:], type=_BY_NAME[msgspec.msgpack.decode(said)])

    def closed(self, timeout_s: float = 20.0) -> bool:
        """Whether the other side ends the connection, with no message before."""
        return self._frame(timeout_s) is None

    def silent(self, for_s: float) -> bool:
        """Whether nothing comes for so long."""
        try:
            self._frames.appendleft(self._frame(for_s) or b"")
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.socket.close()

    def _frame(self, timeout_s: float) -> bytes | None:
        self.socket.settimeout(timeout_s)
        while not self._frames:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError:
                return None
            if not data:
                return None
            for frame in self._splitter.feed(data):
                assert not isinstance(frame, TooLarge)
                self._frames.append(frame)
        return self._frames.popleft()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def dialled(path: Path) -> Iterator[Peer]:
    """A connection to the manager at `path`, as any role (say `hello` first)."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20.0)
    sock.connect(str(path))
    with Peer(sock) as peer:
        yield peer


class Listening:
    """The manager's side by script: takes connections one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(64)

    def accept(self, timeout_s: float = 20.0) -> Peer:
        self.socket.settimeout(timeout_s)
        return Peer(self.socket.accept()[0])

    def welcome(self, timeout_s: float = 20.0, *, epoch: str = "0" * 16) -> tuple[Peer, Hello]:
        """The next who dials, with the handshake done."""
        peer = self.accept(timeout_s)
        hello = peer.expect(Hello, timeout_s)
        peer.send(Welcome(epoch=epoch))
        return peer, hello

    def close(self) -> None:
        self.socket.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Listening:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
