"""Entry: one unit that waits for its commit, and where it stands in the transaction it shares."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import Any

from cordata.errors import CordataError, StoreUnavailable
from cordata.store.fence import Fence
from cordata.store.postgres.transaction import Transaction
from cordata.store.postgres.unit import Ask, Course, UnitTx
from cordata.store.queries import Queries
from cordata.store.telling import fail
from cordata.store.tx import Bookkeeping, Unit


class Entry:
    """A unit, its caller and, while it runs, its course."""

    __slots__ = (
        "ask",
        "attempts",
        "bookkeeping",
        "changed",
        "context",
        "course",
        "error",
        "fence",
        "first",
        "future",
        "lost_race",
        "pioneer",
        "rank",
        "read",
        "since",
        "transaction",
        "tx",
        "unit",
    )

    def __init__(
        self, unit: Unit[Any], fence: Fence | None, future: asyncio.Future[Any], since: float
    ) -> None:
        """`since`: loop time at which it came."""
        self.unit = unit
        self.fence = fence
        self.future = future
        self.since = since
        #: As of `Store.run`.
        self.bookkeeping: Bookkeeping | None = None
        #: It is the attempt that is made now and then while the store is not ok.
        self.pioneer = False
        self.context: Context = copy_context()
        #: Shared transactions that died with it.
        self.attempts = 0
        #: Whether it had a transaction of its own that died because a key it added was there.
        self.lost_race = False
        #: Its place in the order of those that wrote; -1: none of its writes was sent.
        self.rank = -1
        #: The names in its queries, tables among them.
        self.read: set[str] = set()
        #: Whether one of those may have changed something.
        self.changed = False
        #: What it raised because of what it saw of the others: told once that is committed.
        self.error: BaseException | None = None
        #: Its own, when it runs alone.
        self.transaction: Transaction | None = None
        #: Where it stands among those that have written nothing yet; see group.standing.
        self.first: tuple[bool, int, str, list[tuple[bool, str]]] | None = None
        self.ask: Ask | None = None
        self.course: Course | None = None
        self.tx: UnitTx

    def begin(self, queries: Queries, now_us: int) -> None:
        """Make it ready for its first step. Raises: what the unit raises before that."""
        self.rank, self.changed = -1, False
        self.read = set()
        self.ask = self.course = self.first = self.error = None
        self.tx = UnitTx(queries, now_us)
        self.course = self.context.run(Course, self.unit, self.tx, self.fence)

    def step(self, answer: object) -> None:
        """Go on to the next `ask`; None: it has ended. Raises: what the unit raised."""
        assert self.course is not None
        self.ask = self.context.run(self.course.step, answer)

    def close(self) -> None:
        """Leave the unit where it is."""
        if self.course is not None:
            self.course.close()

    def answer(self) -> None:
        """Give the caller what the unit returned, or raised."""
        if self.error is not None:
            self.fail(self.error)
        elif self.course is not None and not self.future.done():
            self.future.set_result(self.course.value)

    def settle(self, ended: asyncio.Future[Any]) -> None:
        """Give the caller what became of a run of its own."""
        error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
        if error is not None:
            self.fail(error)
        elif not self.future.done():
            self.future.set_result(ended.result())

    def fail(self, error: BaseException) -> None:
        """Give the caller an error."""
        fail(self.future, error)


def again(error: CordataError) -> CordataError:
    """An error object of its own for each caller, since a raised one keeps its traceback."""
    if isinstance(error, StoreUnavailable):
        return type(error)(str(error), retry_after_s=error.retry_after_s, hint=error.hint)
    return type(error)(str(error), hint=error.hint)
