"""Subscriptions to the event store: what `@app.subscribe` declares, what handlers get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from cordata.context import Context
from cordata.core import bounds
from cordata.core.commit_guard import CommitGuard
from cordata.core.eventstream import MAX_PAGE, MAX_PARTITIONS, check_category
from cordata.errors import ConfigError, PermanentError
from cordata.eventstore import StoredEvent
from cordata.eventstore.partition import Claim, advance
from cordata.registry import check_function
from cordata.store import Tx, Unit

T = TypeVar("T")
Reset = Callable[[Tx], Awaitable[None]]
R = TypeVar("R", bound=Callable[..., Any])
#: Where a new subscription begins: with the first event, after the last one, or after a position.
Origin = Literal["start", "end"] | int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionContext(Context):
    """The Context of one event in one subscription."""

    #: The name of the subscription.
    subscription: str
    #: Of the event.
    position: int
    _claim: Claim
    _guard: CommitGuard = field(default_factory=CommitGuard)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """As `Context.transaction`, and the subscription's position moves on in it: the effect
        happens once. One per event, and within the handler. Raises: PartitionLost when another
        process handles the partition by now, AlreadySeen when the effect happened before.
        """
        with self._guard.commit(self.subscription, "event"):
            async with self.store.transaction() as tx:
                yield tx
                self._guard.seal(self.subscription)
                await advance(tx, self._claim, self.position)

    async def run(self, unit: Unit[T], *, batch: bool = False) -> T:
        """As `Context.run`, and the subscription's position moves on in it: the effect happens
        once. One per event. Cheaper than `transaction()`. Raises: as that one.
        """

        async def moving(tx: Tx) -> T:
            result = await unit(tx)
            # Last: its row is locked no longer than the commit takes, and it is read by nobody.
            await advance(tx, self._claim, self.position)
            return result

        with self._guard.commit(self.subscription, "event"):
            self._guard.seal(self.subscription)
            return await self.store.run(moving, batch=batch)

    @property
    def committed(self) -> bool:
        """Whether the effect of this event is in the store."""
        return self._guard.committed


SubscriptionFunction = Callable[[StoredEvent, SubscriptionContext], Awaitable[None]]


class Subscription:
    """One subscription: what `@app.subscribe` makes of a function."""

    def __init__(
        self,
        function: SubscriptionFunction,
        *,
        name: str,
        category: str,
        origin: Origin,
        partitions: int,
        batch: int | None,
        retries: int,
        timeout_s: float,
        on_error: Literal["block", "dead"],
    ) -> None:
        self.function = function
        self.name = name
        self.category = category
        #: Where it begins when it is new.
        self.origin = origin
        self.partitions = partitions
        #: Events read at once; None: 256.
        self.batch = batch
        #: Attempts after the first.
        self.retries = retries
        #: For one attempt.
        self.timeout_s = timeout_s
        #: What follows the last attempt.
        self.on_error = on_error
        #: Clears what the handler wrote, in the unit of a reset.
        self.clear: Reset | None = None

    async def __call__(self, event: StoredEvent, ctx: SubscriptionContext) -> None:
        """Call the function."""
        await self.function(event, ctx)

    def reset(self, clear: R) -> R:
        """Declare the unit of work that clears the subscription's tables.

        `cordata subscriptions reset` runs it in the unit that sets the positions back, so there is
        no moment at which one of the two is done. Raises: ConfigError.
        """
        if self.clear is not None:
            raise ConfigError(f"subscription {self.name!r} has two reset functions")
        check_function(clear, f"subscribe(name={self.name!r}).reset", "tx")
        self.clear = clear
        return clear


def check_subscription(
    where: str,
    category: str,
    origin: Origin,
    partitions: int,
    batch: int | None,
    retries: int,
    timeout_s: float,
    on_error: str,
) -> None:
    """Check what `@app.subscribe` was given. Raises: ConfigError with every mistake."""
    problems = []
    try:
        check_category(category)
    except PermanentError as error:
        problems.append(str(error))
    if origin not in ("start", "end") and not (isinstance(origin, int) and origin >= 0):
        problems.append("from_ must be 'start', 'end' or a position")
    if not 1 <= partitions <= MAX_PARTITIONS:
        problems.append(f"partitions must be 1 to {MAX_PARTITIONS}")
    if batch is not None and not 1 <= batch <= MAX_PAGE:
        problems.append(f"batch must be 1 to {MAX_PAGE}")
    for wrong in (
        bounds.whole("retries", retries, 0, bounds.MAX_RETRIES),
        bounds.seconds("timeout_s", timeout_s),
    ):
        problems += [wrong] if wrong else []
    if on_error not in ("block", "dead"):
        problems.append("on_error must be 'block' or 'dead'")
    if problems:
        raise ConfigError(*(f"@app.{where}: {problem}" for problem in problems))
