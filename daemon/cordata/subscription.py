"""Subscriptions to the event store: the records of `@app.subscribe`, and the handlers' Context."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from msgspec import field

from cordata.context import Context
from cordata.core.commit_guard import CommitGuard
from cordata.core.eventstream import MAX_PAGE, MAX_PARTITIONS, check_category
from cordata.core.naming import GROUP_CHARS
from cordata.errors import ConfigError, PermanentError
from cordata.eventstore import StoredEvent
from cordata.eventstore.partition import Claim, advance
from cordata.registry import (
    MAX_RETRIES,
    check_function,
    wrong_count,
    wrong_seconds,
    wrong_text,
)
from cordata.store import Tx, Unit

T = TypeVar("T")
Reset = Callable[[Tx], Awaitable[None]]
R = TypeVar("R", bound=Callable[..., Any])
#: Where a new subscription begins: at the first event, after the last one, or after a position.
Origin = Literal["start", "end"] | int


class SubscriptionContext(Context, frozen=True, kw_only=True):
    """The Context of one event in one subscription."""

    #: The name of the subscription.
    subscription: str
    #: Position of the event.
    position: int
    _claim: Claim
    _guard: CommitGuard = field(default_factory=CommitGuard)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """As `Context.transaction`; the subscription's position advances in it, so that the effect
        happens once. At most one per event, and within the handler. Raises: PartitionLost when
        another process has taken the partition over; AlreadySeen when the effect happened before.
        """
        with self._guard.commit(self.subscription, "event"):
            async with self.store.transaction() as tx:
                yield tx
                self._guard.seal(self.subscription)
                await advance(tx, self._claim, self.position)

    async def run(self, unit: Unit[T], *, batch: bool = False) -> T:
        """As `Context.run`; the subscription's position advances in it, so that the effect happens
        once. At most one per event. Cheaper than `transaction()`. Raises: as `transaction()`.
        """

        async def advancing(tx: Tx) -> T:
            result = await unit(tx)
            # Last, so that the position's row is locked only during the commit; no unit reads it.
            await advance(tx, self._claim, self.position)
            return result

        with self._guard.commit(self.subscription, "event"):
            self._guard.seal(self.subscription)
            return await self.store.run(advancing, batch=batch)

    @property
    def committed(self) -> bool:
        """Whether the effect of this event is in the store."""
        return self._guard.committed


SubscriptionFunction = Callable[[StoredEvent, SubscriptionContext], Awaitable[None]]


@dataclass(eq=False, slots=True, kw_only=True)
class Subscription:
    """One subscription: `@app.subscribe` replaces the function with it.

    Raises: ConfigError with every mistake in its arguments.
    """

    function: SubscriptionFunction
    name: str
    category: str
    #: Where it begins when it is new.
    origin: Origin
    partitions: int
    #: Events read at once; None: 256.
    batch: int | None
    #: Attempts after the first one.
    retries: int
    #: Limit of one attempt.
    timeout_s: float
    #: After the last attempt: block the partition, or make the event a dead letter.
    on_error: Literal["block", "dead"]
    #: Clears the handler's tables, in the unit of work of a reset.
    clear: Reset | None = None

    def __post_init__(self) -> None:
        problems = [
            wrong_text("name", self.name, GROUP_CHARS),
            wrong_count("retries", self.retries, 0, MAX_RETRIES),
            wrong_seconds("timeout_s", self.timeout_s),
            wrong_count("partitions", self.partitions, 1, MAX_PARTITIONS),
            None if self.batch is None else wrong_count("batch", self.batch, 1, MAX_PAGE),
        ]
        try:
            check_category(self.category)
        except PermanentError as error:
            problems.append(str(error))
        origin = self.origin
        if origin not in ("start", "end") and not (isinstance(origin, int) and origin >= 0):
            problems.append("from_ must be 'start', 'end' or a position")
        if self.on_error not in ("block", "dead"):
            problems.append("on_error must be 'block' or 'dead'")
        if found := [problem for problem in problems if problem is not None]:
            where = f"@app.subscribe({self.category!r})"
            raise ConfigError(*(f"{where}: {problem}" for problem in found))

    async def __call__(self, event: StoredEvent, ctx: SubscriptionContext) -> None:
        """Call the function."""
        await self.function(event, ctx)

    def reset(self, clear: R) -> R:
        """Declare the unit of work that clears the subscription's tables.

        `cordata subscriptions reset` runs it in the transaction that sets the positions back.
        Raises: ConfigError.
        """
        if self.clear is not None:
            raise ConfigError(f"subscription {self.name!r} has two reset functions")
        check_function(clear, f"subscribe(name={self.name!r}).reset", "tx")
        self.clear = clear
        return clear
