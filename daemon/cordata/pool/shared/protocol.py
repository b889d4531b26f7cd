"""The packets of the pool: between a client and a child, and between a client and a worker.

```
  client --Hello, Call, Credit, Cancel--> child        RUNTIME/pool/NAME/W.G.sock
         <--Welcome, Result, Chunk, End, Failure, NotRun--
  client --StatusRequest, DeathRequest, KillRequest, WorkerOrder, SessionRequest, GlobalRequest-->
         <--WorkerStatus, Death, Reply, Failure-- worker    RUNTIME/pool/NAME/W.control.sock
  worker --Ping, Stop--> child --Pong, Up, StartFailed--> worker            a socket pair
```
A message is a MessagePack array, its type first. On control sockets and socket pairs one packet of
the SOCK_SEQPACKET socket is one message; between client and child it is an array of the messages
that were sent in one turn of the event loop. A packet above 64 KB always has one message. It is
sent as a memory file (memfd_create(2)): the packet itself is the byte 0xC1, with which no
MessagePack value begins, and the descriptor of the file comes with it (unix(7), SCM_RIGHTS).

`W` is the worker; for a child it is its place (paths.py): `2-1` is the second child of worker 2.
`G` is the child's generation, a number that grows with each child that a worker starts.
`W.G.status` is its status page (page.py). Both files exist while the child takes calls.
"""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Sequence
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError, field, msgpack

from cordata import exit_codes
from cordata.errors import (
    FrameTooLarge,
    PoolError,
    PoolPermanent,
    PoolTransient,
    ProtocolError,
)

T = TypeVar("T")
#: Version of the protocol; a child refuses a hello with another one.
VERSION = 1
#: The MessagePack value {}.
NO_KEYWORDS: Final = Raw(b"\x80")
#: Bytes of a packet; a longer one is sent as a memory file.
INLINE_BYTES = 65_536
#: Characters of a name: of a command, session, worker, request, counter, value or global.
MAX_NAME = 200
#: Longest lifetime of a session.
MAX_TTL_S = 1e9
#: Entries of one map or list that a peer sends.
MAX_ENTRIES = 65_536
#: Bytes of a packet before its messages, at most.
HEAD_BYTES = 3
#: First character of a mark: the line that names the call whose output follows.
OUTPUT_MARK = "\x1e"
#: Between the lines of one log record, so that it is one record of the worker, and one alert.
OUTPUT_BREAK = "\x1f"
_LARGE = b"\xc1"
_ANCILLARY = socket.CMSG_SPACE(4 * array.array("i").itemsize)
_FLAGS = socket.MSG_CMSG_CLOEXEC

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Seconds = Annotated[float, Meta(ge=0.0, le=MAX_TTL_S)]
Values = Annotated[dict[Name, Raw], Meta(max_length=MAX_ENTRIES)]
Counts = Annotated[dict[Name, int], Meta(max_length=MAX_ENTRIES)]
Names = Annotated[list[Name], Meta(max_length=MAX_ENTRIES)]
Affinity: TypeAlias = Literal["hint", "strict_queue", "strict_fail"]


class Packet(Struct, array_like=True, gc=False):
    """A message. Messages form no reference cycles, so the garbage collector skips them."""


# --- client to child ---


class Hello(Packet, tag="hello"):
    """The first packet of a client; with it comes the memory file of the connection's page."""

    version: Number
    #: A random number of the client process: together with `Call.id` it identifies a call.
    client: Number


class Call(Packet, tag="call"):
    """Run a command."""

    #: Number of the call on this connection: 1, 2, 3 ... in the order in which they are sent.
    number: Number
    command: Name
    #: A list and a dict; the client has them as MessagePack (Raw).
    arguments: Any
    keywords: Any
    #: CLOCK_MONOTONIC seconds.
    deadline: float
    #: The client's number of the call, the same for each attempt.
    id: Number
    session: Name = ""
    request_id: Name = ""
    #: Chunks that may be sent; 0: the caller wants one result, no stream.
    credits: Annotated[int, Meta(ge=0, le=1024)] = 0
    #: See `cordata.trace.carried`.
    traceparent: Name = ""


class Credit(Packet, tag="credit"):
    """The child may send `count` more chunks of the stream."""

    number: Number
    count: Annotated[int, Meta(ge=1, le=1024)]


class Cancel(Packet, tag="cancel"):
    """Nobody waits any more for the call that runs. A call that waits is revoked (page.py)."""

    number: Number


# --- child to client ---


class CommandOptions(Struct, array_like=True, gc=False, frozen=True):
    """Options of `@app.command`; None: the configuration decides."""

    timeout_s: float | None = None
    idempotent: bool = False
    retries: int | None = None


class Welcome(Packet, tag="welcome"):
    """The answer to a hello of the same version: the child takes calls."""

    pid: Number
    commands: dict[Name, CommandOptions]
    #: The longest message that the client may send.
    max_frame_bytes: Number


class Result(Packet, tag="result"):
    """The value of a call."""

    number: Number
    value: Raw
    run_us: Number = 0
    #: For a call with a session: the session's preferred worker, and its affinity.
    session_worker: Name = ""
    affinity: str = ""


class Chunk(Packet, tag="chunk"):
    """One part of a stream."""

    number: Number
    value: Raw


class End(Packet, tag="end"):
    """The stream is complete."""

    number: Number
    run_us: Number = 0
    session_worker: Name = ""
    affinity: str = ""


class Failure(Packet, tag="failure"):
    """The call or request failed. `number` 0: the connection failed, and ends.

    Codes are those of cordata.errors, `failed` when the command raised; then `data` has `type`
    (module.name), `module`, `name`, `traceback`, `permanent`, and the exception's `arguments`, if
    they are plain values.
    """

    number: Number
    code: Name
    message: str
    data: dict[str, Any] = field(default_factory=dict)
    #: 0: the command was not called.
    run_us: Number = 0


class NotRun(Packet, tag="not_run"):
    """The call has not begun in this child, and never will.

    `reason`: "revoked", "unknown_command", "deadline" or "moved" (the session's affinity is strict,
    and its worker is `worker`).
    """

    number: Number
    reason: Name
    worker: Name = ""
    affinity: str = ""


FromClient: TypeAlias = Hello | Call | Credit | Cancel
FromChild: TypeAlias = Welcome | Result | Chunk | End | Failure | NotRun


# --- client to worker (control socket) ---


class StatusRequest(Packet, tag="status"):
    """Asks for the status of the worker and its children."""

    number: Number


class DeathRequest(Packet, tag="death"):
    """Asks how the child of this generation died. Answered when it is dead."""

    number: Number
    generation: Number


class KillRequest(Packet, tag="kill"):
    """Kill the child if it still runs this call after `[pool] cancel_grace_s` of the worker."""

    number: Number
    generation: Number
    client: Number
    #: `Call.id`.
    call: Number


class WorkerOrder(Packet, tag="order"):
    """An operator's order to the worker; only the worker's user and root may send one."""

    number: Number
    order: Literal["drain", "undrain", "recycle"]


class SessionRequest(Packet, tag="session"):
    """An operation on a session."""

    number: Number
    operation: Literal["create", "get", "update", "delete", "count", "page"]
    session: Name = ""
    ttl_s: Seconds | None = None
    set: Values = field(default_factory=dict)
    delete: Names = field(default_factory=list)
    affinity: Affinity | None = None
    worker: Name | None = None
    count: Counts = field(default_factory=dict)
    #: `get`: do not count it as a use.
    peek: bool = False
    #: `page`: the next `limit` sessions after this id.
    after: Name = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class GlobalRequest(Packet, tag="global"):
    """An operation on globals; `get` returns those named in `keys`, or all if it is empty."""

    number: Number
    operation: Literal["get", "change", "stats"]
    set: Values = field(default_factory=dict)
    delete: Names = field(default_factory=list)
    keys: Names = field(default_factory=list)


FromControlClient: TypeAlias = (
    StatusRequest | DeathRequest | KillRequest | WorkerOrder | SessionRequest | GlobalRequest
)


# --- worker to client ---


class ChildStatus(Struct, array_like=True, gc=False):
    """The state of one child."""

    generation: Number
    pid: Number
    #: starting, ready, busy, draining (it still has calls), drained, leaving.
    state: str
    age_s: float
    rss_bytes: Number
    calls: Number
    failed: Number
    #: Calls that the child has read but not begun.
    waiting: Number
    #: Of the running call; "": none.
    command: str = ""
    call_id: str = ""
    running_s: float = 0.0
    #: Seconds to its deadline.
    left_s: float = 0.0
    #: Why it is to be replaced; "": it is not.
    due: str = ""
    #: It warms up to replace another child.
    spare: bool = False


class WorkerStatus(Packet, tag="worker"):
    """A worker and its children."""

    number: Number
    worker: Name
    pool: Name
    pid: Number = 0
    drained: bool = False
    #: Numbers of children: started by this worker, crashed, killed by it.
    started: Number = 0
    crashed: Number = 0
    killed: Number = 0
    #: Why its last child could not start; "": it started.
    start_error: str = ""
    commands: list[Name] = field(default_factory=list)
    children: list[ChildStatus] = field(default_factory=list)


class Death(Packet, tag="dead"):
    """How a child died. `known` False: the worker knows no such child."""

    number: Number
    known: bool
    #: Why its worker killed it: "deadline", "cancelled", "unhealthy", "init", "stop" ...; "": the
    #: worker did not.
    reason: str = ""
    code: int | None = None
    signal: int | None = None
    #: The last lines of output of the call that ran when it died.
    lines: list[str] = field(default_factory=list)

    def how(self) -> str:
        """`exited with 1`, `was killed by SIGSEGV`, or `is gone`."""
        status = self.code if self.signal is None else -self.signal
        return "is gone" if status is None else exit_codes.describe(status)


class SessionState(Struct, array_like=True, gc=False):
    """A session as it was read; without data and counters in the reply to `page`."""

    id: str
    #: Grows with every change of data or counters. It is the boot clock in us, or one more than
    #: before, so that a new session with the id of a former one repeats none of its versions.
    version: Number
    ttl_s: float
    #: Seconds until it ends, unless it is used before.
    expires_in_s: float
    #: Size of all names and values, and of the entries that hold them.
    bytes: Number
    affinity: Affinity
    #: The preferred worker of its calls; "": none yet.
    worker: str
    data: dict[str, Raw] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


class Reply(Packet, tag="reply"):
    """The answer to a WorkerOrder, KillRequest, SessionRequest or GlobalRequest."""

    number: Number
    sessions: list[SessionState] = field(default_factory=list)
    values: dict[str, Raw] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


ToControlClient: TypeAlias = WorkerStatus | Death | Reply | Failure


# --- worker to child and back ---


class Ping(Packet, tag="ping"):
    """Asks the child for a Pong."""


class Stop(Packet, tag="stop"):
    """End after the current call."""


class Pong(Packet, tag="pong"):
    """The answer to a Ping."""


class Up(Packet, tag="up"):
    """The child is warm: it can take calls."""


class StartFailed(Packet, tag="start_failed"):
    """The child could not warm up, and ends."""

    message: str
    traceback: str


WorkerToChild: TypeAlias = Ping | Stop
ChildToWorker: TypeAlias = Pong | Up | StartFailed


# --- bytes ---

encode = msgpack.Encoder().encode

#: The exception that the client raises for a `Failure`, by its code.
POOL_ERRORS: dict[str, type[PoolError]] = {
    kind.code: kind
    for family in (PoolError, PoolTransient, PoolPermanent)
    for kind in family.__subclasses__()
    if kind not in (PoolTransient, PoolPermanent)
}


class Decoder(Generic[T]):
    """Decodes the packets of one direction."""

    __slots__ = ("_decode",)

    def __init__(self, kinds: Any) -> None:
        self._decode = msgpack.Decoder(kinds).decode

    def decode(self, data: bytes) -> T:
        """The decoded packet; its `Raw` values are views into `data`. Raises: ProtocolError."""
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"not a packet of this direction: {error}") from None


from_client: Decoder[list[FromClient]] = Decoder(list[FromClient])
from_child: Decoder[list[FromChild]] = Decoder(list[FromChild])
from_control_client: Decoder[FromControlClient] = Decoder(FromControlClient)
to_control_client: Decoder[ToControlClient] = Decoder(ToControlClient)
worker_to_child: Decoder[WorkerToChild] = Decoder(WorkerToChild)
child_to_worker: Decoder[ChildToWorker] = Decoder(ChildToWorker)


#: One packet (b"" at the end of the connection), and the descriptors that came with it, which the
#: receiver has to close.
Received: TypeAlias = tuple[bytes, Sequence[int]]


def batch(messages: Sequence[bytes]) -> bytes:
    """One packet of these messages, between client and child."""
    if len(messages) == 1:
        return b"\x91" + messages[0]
    return b"\xdc" + len(messages).to_bytes(2, "big") + b"".join(messages)


def send(sock: socket.socket, data: bytes, files: Sequence[int] = ()) -> None:
    """Send one packet, whole. Raises: BlockingIOError when a socket that does not block is full
    (nothing was sent then), OSError when the other side is gone.
    """
    if len(data) <= INLINE_BYTES:
        if files:
            socket.send_fds(sock, [data], list(files))
        else:
            sock.send(data)
        return
    memory = os.memfd_create("cordata-packet", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(memory, view) :]
        socket.send_fds(sock, [_LARGE], [memory, *files])
    finally:
        os.close(memory)


def receive(sock: socket.socket, max_bytes: int) -> Received:
    """Receive one packet; blocks if the socket does.

    Raises: BlockingIOError; OSError; FrameTooLarge for a message of more than `max_bytes`, which is
    dropped.
    """
    data, ancillary, _, _ = sock.recvmsg(INLINE_BYTES, _ANCILLARY, _FLAGS)
    if not ancillary:
        return data, ()
    files = _files(ancillary)
    if data != _LARGE or not files:
        return data, files
    memory = files.pop(0)
    try:
        size = os.fstat(memory).st_size
        if size > max_bytes:
            close(files)
            raise too_large(size, max_bytes)
        # Read, not mapped: the sender may still write to the file, or truncate it.
        return os.pread(memory, size, 0), files
    finally:
        os.close(memory)


def too_large(size: int, limit: int) -> FrameTooLarge:
    """The error for a message that is longer than max_frame_bytes."""
    text = f"a message of {size} bytes, the limit is {limit} (max_frame_bytes)"
    return FrameTooLarge(text, length_bytes=size, limit_bytes=limit)


def close(files: Sequence[int]) -> None:
    """Close descriptors that came with a packet."""
    for file in files:
        os.close(file)


def check_names(names: Sequence[str]) -> None:
    """Raises: ValueError for a name longer than MAX_NAME, TypeError for one that is not a str."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a name is text, not {type(name).__name__}")
        if len(name) > MAX_NAME:
            text = f"the name {name[:30]!r}.. has {len(name)} characters, the limit is {MAX_NAME}"
            raise ValueError(text)


def call_id(client: int, id: int) -> str:
    """The id of a call in the journal (field CALL_ID)."""
    return f"{client:x}-{id}"


def _files(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()
