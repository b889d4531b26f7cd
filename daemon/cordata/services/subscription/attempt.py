"""One attempt at one event of a subscription: the handler is called, whatever happens is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cordata.context import Context, narrowed
from cordata.core.delivery import is_away
from cordata.core.once import Once
from cordata.errors import AlreadySeen, PartitionLost
from cordata.eventstore import Claim, StoredEvent
from cordata.log import request_id
from cordata.services.calling import call_here
from cordata.services.ending import end
from cordata.subscription import Subscription, SubscriptionContext


class Ending(Enum):
    """How an attempt ended."""

    #: Handled; nothing was committed by it.
    HANDLED = "handled"
    #: Handled; effect and position are committed.
    COMMITTED = "committed"
    #: The store is away, which is not the event's fault.
    AWAY = "away"
    #: The partition is another process' by now.
    LOST = "lost"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Attempted:
    """What became of one attempt."""

    ending: Ending
    #: Also beside COMMITTED, when the handler failed after its commit.
    error: BaseException | None = None


async def attempt(
    shared: Context,
    subscription: Subscription,
    claim: Claim,
    event: StoredEvent,
    *,
    ending: Callable[[], bool],
) -> Attempted:
    """Call the handler once. `ending` tells whether it is who runs it that is cancelled.

    Raises nothing but CancelledError, when that is so.
    """
    once = Once()
    ctx = narrowed(
        shared,
        SubscriptionContext,
        subscription=subscription.name,
        position=event.position,
        _claim=claim,
        _once=once,
    )
    token = request_id.set(event.headers.get("request_id", ""))
    function, timeout_s = subscription.function, subscription.timeout_s
    try:
        error = await call_here(
            subscription.name, function, event, ctx, timeout_s=timeout_s, ending=ending
        )
    finally:
        request_id.reset(token)
    await end(once)
    return _told(ctx, error)


def _told(ctx: SubscriptionContext, error: BaseException | None) -> Attempted:
    if ctx.committed or isinstance(error, AlreadySeen):
        return Attempted(Ending.COMMITTED, error if ctx.committed else None)
    if error is None:
        return Attempted(Ending.HANDLED)
    if isinstance(error, PartitionLost):
        return Attempted(Ending.LOST)
    if is_away(error):
        return Attempted(Ending.AWAY, error)
    return Attempted(Ending.FAILED, error)
