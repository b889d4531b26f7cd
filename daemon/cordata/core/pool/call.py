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
from typing import TYPE_CHECKING

from msgspec import Raw

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


class Call:
    """What the manager knows of a call. Compared by identity; no table keeps one that is over."""

    __slots__ = (
        "attempts",
        "child",
        "client",
        "command",
        "cost_us",
        "credits",
        "deadline",
        "due",
        "enqueued",
        "id",
        "idempotent",
        "key",
        "order",
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
        #: The number of its latest run.
        self.order = 0
        #: How long it is expected to run, as it was sent.
        self.cost_us = 0.0
        #: Its tick in the wheel of deadlines; -1: none.
        self.due = -1
        #: Whether a queue holds it; one that was dropped there is skipped.
        self.queued = False
        #: Place in line: a priority is worth so many seconds of waiting.
        self.key = (now - priority, serial)
