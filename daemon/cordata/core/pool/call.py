"""One call from its arrival to its end.

```
 arrived -> refused
    |
    +-> WAITING --handed to a child--> RUNNING --answer--> OVER
          |   ^                          |  |
          |   '-- child died, run again -'  +-- deadline, cancel, client gone --> DETACHED
          '-- timeout, cancel, client gone --> OVER            OVER <-- answer or death --'
```
DETACHED: the caller was answered, or is gone; the child is still busy with it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Raw

from cordata.core.pool.message import NIL

if TYPE_CHECKING:
    from cordata.core.pool.registry import Child


class Stage(Enum):
    """Where a call is."""

    WAITING = 1
    RUNNING = 2
    DETACHED = 3
    OVER = 4


class Call:
    """What the manager knows of a call. Compared by identity; no table keeps one that is over."""

    __slots__ = (
        "attempts",
        "child",
        "client",
        "command",
        "credits",
        "deadline",
        "due",
        "enqueued",
        "id",
        "idempotent",
        "key",
        "parts",
        "payload",
        "pool",
        "priority",
        "queue_deadline",
        "queued",
        "request_id",
        "serial",
        "session",
        "size_bytes",
        "source",
        "stage",
    )

    def __init__(
        self,
        *,
        serial: int,
        command: str,
        now: float,
        deadline: float,
        queue_deadline: float = 0.0,
        client: object = None,
        source: int = 0,
        id: int = 0,
        payload: Raw = NIL,
        session: str = "",
        idempotent: bool = False,
        priority: int = 0,
        credits: int = 0,
        request_id: str = "",
        attempts: int = 0,
        size_bytes: int = 0,
        pool: str = "default",
    ) -> None:
        #: The manager's number of it; grows with each call.
        self.serial = serial
        self.command = command
        self.enqueued = now
        self.deadline = deadline
        #: Until then it must have reached a child; its deadline if nothing else was said.
        self.queue_deadline = min(queue_deadline or deadline, deadline)
        #: Who is answered; None once it is gone.
        self.client = client
        #: Whose turn it takes where clients take turns: the process of the client.
        self.source = source
        #: The caller's number of it.
        self.id = id
        self.payload = payload
        self.session = session
        self.idempotent = idempotent
        self.priority = priority
        self.credits = credits
        #: Parts of its stream that were passed on.
        self.parts = 0
        self.request_id = request_id
        #: Runs that ended with a dead child.
        self.attempts = attempts
        self.size_bytes = size_bytes
        self.pool = pool
        self.stage = Stage.WAITING
        self.child: Child | None = None
        #: Its tick in the wheel of deadlines; -1: none.
        self.due = -1
        #: Whether a queue holds it; one that was dropped there is skipped.
        self.queued = False
        #: Place in line: a priority is worth so many seconds of waiting.
        self.key = (now - priority, serial)
