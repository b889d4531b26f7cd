"""The messages between manager, worker and child: who runs what, and what became of it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

from cordata.core.pool.histogram import BOUNDS_MS
from cordata.core.pool.loan import MOST
from cordata.core.pool.message import (
    NIL,
    Cancel,
    Chunk,
    Counts,
    Credit,
    Delta,
    End,
    ErrorFrame,
    Goaway,
    Hello,
    Loan,
    Message,
    Name,
    Number,
    Ping,
    Pong,
    Result,
    Seconds,
    Values,
    Welcome,
)


class SessionCopy(Struct, omit_defaults=True, gc=False):
    """`s` of a run: the call's session, with its data when the child's copy is not this version."""

    id: str
    v: Number = 0
    full: Values | None = None
    cnt: Counts = field(default_factory=dict)
    wk: str = ""


class GlobalsCopy(Struct, omit_defaults=True, gc=False):
    """`gl` of a run: what changed in the globals since the child heard of them."""

    v: Number = 0
    set: Values = field(default_factory=dict)
    delete: list[str] = field(default_factory=list, name="del")
    full: bool = False


class Run(Message, tag="run"):
    """A call, handed to a child."""

    id: Number
    n: Number
    command: Name = field(name="c")
    payload: Raw = field(default=NIL, name="p")
    d: Seconds = 0.0
    g: Seconds = 0.0
    credits: Number = field(default=0, name="w")
    request_id: Name = field(default="", name="r")
    s: SessionCopy | None = None
    f: list[str] = field(default_factory=list)
    gl: GlobalsCopy | None = None
    #: The manager's number of this run, from 1; a call that runs again gets another one.
    o: Number = 0
    #: Never sent: when the child read it.
    read_at: float = 0.0


class LentRun(Message, tag="run"):
    """A call, handed to a child by the client that has it on loan: a run with less to say, since
    to write and read one is a good part of what a short call costs.
    """

    id: Number
    #: The number of this run in the loan.
    o: Annotated[int, Meta(ge=1, le=MOST)]
    command: Name = field(name="c")
    payload: Raw = field(default=NIL, name="p")
    d: Seconds = 0.0
    session: Name = field(default="", name="s")
    request_id: Name = field(default="", name="r")
    #: Never sent: its serial, and when the child read it.
    n: int = 0
    read_at: float = 0.0


class News(Message, tag="news"):
    """What a run would say of session and globals, ahead of it: together they are too large. Or
    for the calls of the client that has the child on loan.
    """

    s: SessionCopy | None = None
    f: list[str] = field(default_factory=list)
    gl: GlobalsCopy | None = None
    #: Sessions of which the copy, as it is, is good for those calls, until it is sent anew.
    lent: list[str] = field(default_factory=list, name="l")


class Skip(Message, tag="skip"):
    """The child is to give call `n` back, unless it has begun it."""

    n: Number


class Back(Message, tag="back"):
    """The child does not run the run of this number."""

    o: Number


class TakeBack(Message, tag="take_back"):
    """The child is to begin no run up to number `o` any more."""

    pid: Number
    start: Number
    o: Number


class TakenBack(Message, tag="taken_back"):
    """Of the runs up to number `o` the child has begun those up to `begun`, and begins no more."""

    pid: Number
    start: Number
    o: Number
    begun: Number


class Recall(Message, tag="recall"):
    """The loan is over: the child closes the client's socket after the call in hand."""

    l: Number  # noqa: E741


class Returned(Message, tag="returned"):
    """The child is its client's no more. So many calls it ran for it since it told last, so many of
    them failed, and by the buckets of histogram.py so many took so long.
    """

    l: Number  # noqa: E741
    n: Number = 0
    f: Number = 0
    ms: Annotated[list[Number], Meta(max_length=len(BOUNDS_MS) + 1)] = field(default_factory=list)
    #: It only tells: the loan goes on.
    more: bool = False


class Passed(Message, tag="passed"):
    """The result of a borrowed child's call that changed its session or the globals: they are
    kept before the client hears of it.
    """

    l: Number  # noqa: E741
    id: Number
    u: Delta
    session: Name = field(default="", name="s")
    payload: Raw = field(default=NIL, name="p")
    x: Number = 0


class Ready(Message, tag="ready"):
    """The child is warm and free."""


class ChildEvent(Message, tag="child"):
    """A worker tells what became of its child."""

    ev: Literal["started", "exited", "unhealthy", "warm", "due", "retired", "measured", "holds"]
    pid: Number
    start: Number
    why: str = ""
    code: int | None = None
    sig: int | None = None
    lines: list[str] = field(default_factory=list)
    n: Number = 0
    run: bool = False
    rss: Number = 0
    #: The command in hand, of a call that the manager does not know; for how long, and its time.
    c: Name = ""
    age: Seconds = 0.0
    d: Seconds = 0.0
    #: Such calls that it ended, and of which it did not tell; those of them that failed.
    lent: Number = 0
    f: Number = 0
    #: Why it ended before it was warm; with pid 0, why it could not be started at all.
    m: str = ""


class Drain(Message, tag="drain"):
    """The worker takes no more calls, or takes them again."""

    on: bool = True


class Kill(Message, tag="kill"):
    """The child is to die, if call `n` is still in its hands."""

    pid: Number
    start: Number
    n: Number = 0
    why: str = ""


class Retire(Message, tag="retire"):
    """The child is idle and replaced: let it go."""

    pid: Number
    start: Number


class Recycle(Message, tag="recycle"):
    """Replace the child as soon as another is warm."""


class Alarm(Message, tag="alarm"):
    """The manager has logged this, and can mail nobody: `ev` is its MESSAGE_ID."""

    ev: Name
    m: str = ""


class Stop(Message, tag="stop"):
    """End after the call in hand."""


class Adopt(Message, tag="adopt"):
    """The spare takes the slot over."""


class Up(Message, tag="up"):
    """Imported and warm."""


class Due(Message, tag="due"):
    """The child has run as many calls as it may."""

    why: str = ""


class Failed(Message, tag="failed"):
    """The child could not warm up."""

    m: str = ""
    trace: str = ""


FromChild: TypeAlias = Hello | Ready | Result | Chunk | End | ErrorFrame | Back | Returned | Passed
FromWorker: TypeAlias = Hello | ChildEvent | Drain | TakenBack
ToChild: TypeAlias = (
    Welcome | ErrorFrame | Run | News | Credit | Cancel | Skip | Goaway | Loan | Recall
)
#: Over the socket of a loan.
ToBorrowed: TypeAlias = LentRun | Cancel
ToWorker: TypeAlias = Welcome | ErrorFrame | Kill | Retire | Recycle | TakeBack | Alarm | Goaway
WorkerToChild: TypeAlias = Ping | Stop | Adopt
ChildToWorker: TypeAlias = Pong | Up | Due | Failed
