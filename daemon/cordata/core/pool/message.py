"""The messages of the pool's protocol, one record per type; core/frame.py tells what they mean.

What passes between manager, worker and child is in order.py.
Each union holds what one side may send, so that a decoder refuses what is not for its receiver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

from cordata.core.frame import MAX_FRAME

#: The MessagePack value nil: the payload of who sends none.
NIL: Final = Raw(b"\xc0")
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: Characters of a name: of a command, session, worker, request, counter, value or global.
MAX_NAME = 200
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
Values: TypeAlias = dict[str, Raw]
Counts: TypeAlias = dict[str, int]
#: Entries that a client may send in one map or list: a frame of 16 MiB could have millions, whose
#: decoding alone would hold up everybody for seconds.
MAX_ENTRIES = 65_536
_few = Meta(max_length=MAX_ENTRIES)
FewValues = Annotated[dict[Name, Raw], _few]
FewCounts = Annotated[dict[Name, int], _few]
FewNames = Annotated[list[Name], _few]
Affinity = Literal["hint", "strict_queue", "strict_fail"]
Role = Literal["client", "operator", "worker", "child"]


def check_names(names: Iterable[str]) -> None:
    """Raises: ValueError for one that is longer than MAX_NAME, TypeError for what is no text."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a name is text, not {type(name).__name__}")
        if len(name) > MAX_NAME:
            text = f"the name {name[:30]!r}.. has {len(name)} characters, the limit is {MAX_NAME}"
            raise ValueError(text)


class Message(Struct, tag_field="t", omit_defaults=True, gc=False):
    """A frame. Its records form no cycles, so the collector need not know them."""


class Hello(Message, tag="hello"):
    """Who connects, and as what."""

    role: Role
    v: Number = 1
    vmin: Number = 1
    name: Name = ""
    pid: Number = 0
    start: Number = 0
    inv: Name = ""
    max: Number = MAX_FRAME
    has: FewNames = field(default_factory=list)
    cmds: Annotated[list[Name], _few] = field(default_factory=list)
    spare: bool = False
    warm: bool = False
    #: The pid of a child's worker; 0: it does not say.
    par: Number = 0


class Welcome(Message, tag="welcome"):
    """The manager takes the connection."""

    epoch: str
    v: Number = 1
    max: Number = MAX_FRAME
    has: list[str] = field(default_factory=list)


class CallFrame(Message, tag="call"):
    """A client's call."""

    id: Number
    command: Name = field(name="c")
    payload: Raw = field(default=NIL, name="p")
    session: Name = field(default="", name="s")
    timeout_s: Seconds | None = field(default=None, name="d")
    queue_timeout_s: Seconds | None = field(default=None, name="q")
    idempotent: bool = field(default=False, name="i")
    priority: Annotated[int, Meta(ge=0, le=9)] = field(default=0, name="y")
    credits: Annotated[int, Meta(ge=0, le=1024)] = field(default=0, name="w")
    request_id: Name = field(default="", name="r")
    attempts: Number = field(default=0, name="a")
    #: The loan at whose child it had best run; 0: anywhere.
    at: Number = field(default=0, name="l")


class Credit(Message, tag="credit"):
    """So many more chunks may come."""

    id: Number
    n: Annotated[int, Meta(ge=1, le=1024)]


class Cancel(Message, tag="cancel"):
    """The caller is not interested any more."""

    id: Number
    hard: bool = False
    #: To a child: the manager's serial of the call; two callers may have the same id. From a
    #: client: the serial of a call that it gave to a borrowed child.
    n: Number = 0


class SessionOp(Message, tag="session"):
    """A client's operation on one session."""

    id: Number
    op: Literal["create", "get", "update", "delete", "touch", "count"]
    s: Name = ""
    ttl: Seconds | None = None
    set: FewValues = field(default_factory=dict)
    delete: FewNames = field(default_factory=list, name="del")
    aff: Literal["", "hint", "strict_queue", "strict_fail"] = ""
    wk: Name | None = None
    by: FewCounts = field(default_factory=dict)
    peek: bool = False


class GlobalOp(Message, tag="global"):
    """A client's operation on the globals."""

    id: Number
    op: Literal["get", "set", "delete"]
    set: FewValues = field(default_factory=dict)
    delete: FewNames = field(default_factory=list, name="del")
    keys: FewNames = field(default_factory=list)


class Ask(Message, tag="ask"):
    """An operator's question or order."""

    id: Number
    op: Literal["status", "sessions", "drain", "undrain", "recycle"]
    name: Name = ""
    after: Name = ""
    limit: Number = 100


class Bye(Message, tag="bye"):
    """No more calls come from this client."""


class Ping(Message, tag="ping"):
    """Are you there?"""

    id: Number


class Pong(Message, tag="pong"):
    """Yes."""

    id: Number


class Delta(Struct, omit_defaults=True, gc=False):
    """`u`: what a call changed in its session and in the globals."""

    v: Number = 0
    set: Values = field(default_factory=dict)
    delete: list[str] = field(default_factory=list, name="del")
    cnt: Counts = field(default_factory=dict)
    gset: Values = field(default_factory=dict)
    gdel: list[str] = field(default_factory=list)


class Result(Message, tag="result"):
    """The value of a call."""

    id: Number
    payload: Raw = field(default=NIL, name="p")
    x: Number = 0
    u: Delta | None = None


class Chunk(Message, tag="chunk"):
    """One part of a stream."""

    id: Number
    payload: Raw = field(default=NIL, name="p")


class End(Message, tag="end"):
    """The stream is complete."""

    id: Number
    x: Number = 0
    u: Delta | None = None


class ErrorFrame(Message, tag="error"):
    """What went wrong with `id`, or with the connection."""

    id: Number | None = None
    code: Name = "protocol"
    m: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    x: Number = 0


class Reply(Message, tag="reply"):
    """The answer to a SessionOp, GlobalOp or Ask."""

    id: Number
    s: str = ""
    v: Number = 0
    ttl: float | None = None
    set: Values = field(default_factory=dict)
    cnt: Counts = field(default_factory=dict)
    aff: str = ""
    wk: str = ""
    payload: Raw = field(default=NIL, name="p")


class Goaway(Message, tag="goaway"):
    """The manager stops."""

    why: str = ""


class Loan(Message, tag="loan"):
    """A child is lent to a client; both get it, each with its end of a socket and the page."""

    l: Number  # noqa: E741 - as the frame has it
    #: The child's worker.
    wk: str = ""
    #: Calls that may wait at the client.
    q: Number = 0
    #: Seconds that a call has to end after a hard cancel.
    g: Seconds = 0.0


class Lent(Message, tag="lent"):
    """The session may be used at the borrowed child, for `d` seconds."""

    l: Number  # noqa: E741
    s: str
    d: Seconds = 0.0


class Lost(Message, tag="lost"):
    """How a borrowed child died."""

    l: Number  # noqa: E741
    data: dict[str, Any] = field(default_factory=dict)
    m: str = ""


FromClient: TypeAlias = (
    Hello | CallFrame | Credit | Cancel | SessionOp | GlobalOp | Ask | Bye | Ping
)
ToClient: TypeAlias = (
    Welcome | Result | Chunk | End | ErrorFrame | Reply | Pong | Goaway | Loan | Lent | Lost
)
