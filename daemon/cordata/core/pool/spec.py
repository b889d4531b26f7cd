"""What a worker tells the child that it starts: in the shared file, behind the state page."""

from __future__ import annotations

from msgspec import DecodeError, Struct, json

from cordata.core.pool.page import SIZE
from cordata.errors import ProtocolError

#: Descriptors of a child, beside 0, 1 and 2: the second channel, and the shared file.
CHANNEL_FD, PAGE_FD = 3, 4


class ChildSpec(Struct, frozen=True, kw_only=True):
    """One child: whose it is, what it imports, where its manager is."""

    worker: str
    #: Pid of the worker: a child that has another parent was left alone while it started.
    parent: int = 0
    #: Path of the manager's socket.
    socket: str
    #: `sys.path` of the worker.
    path: tuple[str, ...]
    #: Place (`module:function`) by name.
    commands: dict[str, str]
    inits: tuple[str, ...] = ()
    max_frame_bytes: int
    #: Calls after which it says that it is due; 0: no limit.
    max_calls: int = 0
    #: Of the worker's $INVOCATION_ID.
    inv: str = ""
    #: It replaces another one when it is warm.
    spare: bool = False
    #: What its loggers pass on.
    log_level: str = "INFO"


def write(spec: ChildSpec) -> bytes:
    """The whole file: an empty page, then the spec."""
    return bytes(SIZE) + json.encode(spec)


def read(data: bytes) -> ChildSpec:
    """The spec of such a file. Raises: ProtocolError."""
    try:
        return json.decode(data[SIZE:], type=ChildSpec)
    except DecodeError as error:
        raise ProtocolError(f"not a child's spec: {error}") from None
