"""What clients order while processes die, and what came of each order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from cordata.errors import (
    CallCancelled,
    ChildCrashed,
    CommandFailed,
    DeadlineExceeded,
    PoolRestarted,
    PoolUnavailable,
)

#: No call waits so long unless something is stuck.
LONG_S = 90.0
_DEATHS = (ChildCrashed, PoolRestarted)
#: What may become of an order that is not plainly answered.
ALLOWED: dict[str, tuple[type[Exception], ...]] = {
    "once": _DEATHS,
    "often": (),
    "short": (*_DEATHS, DeadlineExceeded, PoolUnavailable),
    "short, often": (DeadlineExceeded, PoolUnavailable),
    "hang": (*_DEATHS, DeadlineExceeded, PoolUnavailable),
    "fail": (*_DEATHS, CommandFailed),
    "cancel": (*_DEATHS, CallCancelled),
    "pages": _DEATHS,
    "leave": _DEATHS,
    "count": (PoolRestarted,),
    "note": (PoolRestarted,),
}
_SHARES = {
    **{"once": 39, "often": 33, "pages": 6, "short": 3, "short, often": 3, "fail": 4, "cancel": 4},
    **{"leave": 2, "count": 3, "note": 2, "hang": 1},
}


@dataclass(slots=True)
class Order:
    """One call, planned before anything runs."""

    kind: str
    #: Of this order alone.
    id: str
    #: Whether it names the session of its client.
    with_session: bool
    sleep_s: float
    timeout_s: float
    blob: bytes
    #: Of `cancel`: when, and whether hard.
    cancel_after_s: float
    hard: bool
    priority: int
    #: What was read of a stream.
    parts: list[Any] = field(default_factory=list)
    #: A result, or an error.
    outcome: Any = None
    took_s: float = -1.0

    @property
    def idempotent(self) -> bool:
        return self.kind.endswith("often")

    @property
    def ok(self) -> bool:
        return self.took_s >= 0 and not isinstance(self.outcome, BaseException)

    @property
    def command(self) -> str:
        if self.kind in ("pages", "leave"):
            return "pages"
        if self.kind in ("hang", "fail"):
            return self.kind
        return "mark_async" if self.hard else "mark"

    @property
    def payload(self) -> dict[str, Any]:
        return {"id": self.id, "sleep_s": self.sleep_s, "parts": 20, "blob": self.blob}


def planned(rng: random.Random, count: int, *, prefix: str, sleep_s: float = 0.006) -> list[Order]:
    """So many orders, of all kinds; their commands sleep for so long on average."""
    kinds = rng.choices(list(_SHARES), list(_SHARES.values()), k=count)
    return [_planned(rng, kind, f"{prefix}-{n}", sleep_s) for n, kind in enumerate(kinds)]


def _planned(rng: random.Random, kind: str, id: str, sleep_s: float) -> Order:
    short_s = rng.uniform(0.02, 0.4)
    timeout_s = {"short": short_s, "short, often": short_s, "hang": 0.3}.get(kind, LONG_S)
    # Large ones have the file of sessions written anew now and then.
    size = 200_000 if rng.random() < 0.04 else rng.randrange(200)
    return Order(
        kind=kind,
        id=id,
        with_session=rng.random() < 0.5,
        sleep_s=rng.expovariate(1 / sleep_s),
        timeout_s=timeout_s,
        blob=bytes(size),
        cancel_after_s=rng.uniform(0.0, 0.03),
        hard=rng.random() < 0.3,
        priority=rng.choice((0, 0, 0, 1)),
    )
