"""One call from its arrival to its end.

```
 arrived -> refused
    |
    +-> WAITING ----handed to a child----> RUNNING --answer--> OVER
         |  ^ |                             ^ | |
         |  | '--sent--> AHEAD --its turn---' | '-- deadline, cancel, client gone --> DETACHED
         |  |              | |                |                                          |
         |  '--taken back--' '-- cancel, client gone --> DETACHED     OVER <--answer or death
         |  '-- child died, run again --------'
         '-- timeout, cancel, client gone --> OVER
```
AHEAD: it lies at a child that has another call in hand. It still waits in every sense: it counts as
waiting, keeps its place in line, and can be taken back. It is RUNNING when those before it ended.
DETACHED: the caller was answered, or is gone; the child still has it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from cordata.core.pool.message import NIL

if TYPE_CHECKING:
    from cordata.core.pool.registry import Child


class Stage(Enum):
    """Where a call is."""

    WAITING = 1
    AHEAD = 2
    RUNNING = 3
    DETACHED = 4
    OVER = 5


#: In Python 3.11 an enum's member takes 0.1 us to be found by its name, and a call asks ten times.
WAITING, AHEAD, RUNNING, DETACHED, OVER = Stage


class Call(Struct, eq=False):
    """What the manager knows of a call. Compared by identity; no table keeps one that is over."""

    #: The manager's number of it; grows with each call.
    serial: int
    command: str
    #: When it arrived.
    enqueued: float
    deadline: float
    #: Until then it must have reached a child; its deadline if nothing else was said.
    queue_deadline: float
    #: Who is answered; None once it is gone.
    client: Any = None
    #: Whose turn it takes where clients take turns: the process of the client.
    source: int = 0
    #: The caller's number of it.
    id: int = 0
    payload: Raw = NIL
    session: str = ""
    idempotent: bool = False
    priority: int = 0
    credits: int = 0
    request_id: str = ""
    #: Runs that ended with a dead child.
    attempts: int = 0
    size_bytes: int = 0
    pool: str = "default"
    #: Parts of its stream that were passed on.
    parts: int = 0
    #: When one was, or its reader asked for more.
    moved_at: float = 0.0
    stage: Stage = WAITING
    child: Child | None = None
    #: Its session, of which this layer knows nothing, while it is at a child.
    held: Any = None
    #: The number of its latest run.
    order: int = 0
    #: How long it is expected to run, as it was sent.
    cost_us: float = 0.0
    #: Its tick in the wheel of deadlines; -1: none.
    due: int = -1
    #: Whether a queue holds it; one that was dropped there is skipped.
    queued: bool = False
    #: It comes from a command that runs in a child of the same pool.
    nested: bool = False
    #: The child where it had best run; None: any.
    wanted: Child | None = None

    @property
    def key(self) -> tuple[float, int]:
        """Place in line: a priority is worth so many seconds of waiting."""
        return (self.enqueued - self.priority, self.serial)
