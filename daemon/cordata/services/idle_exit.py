"""Test mode: ends the role when nothing is left to handle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from cordata.broker.group import RELAY
from cordata.errors import CordataError, StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger, plural
from cordata.metrics.backlog import NO_LIMIT, Backlog, read_backlog
from cordata.registry import Handler
from cordata.services.consumer import ConsumerService
from cordata.store import CLAIMABLE_TOPIC, Store, Tx

if TYPE_CHECKING:
    from cordata.services.subscription import SubscriptionService

log = logger("cordata.engine")

_LOOK_S = 0.2


class GivenUp(CordataError):
    """In test mode: a group or a subscription gave up events."""

    code = "dead_letters"


class IdleExitService:
    """Ends when the queue is empty, and the subscriptions have read all events.

    It waits for events that handlers publish meanwhile, for claims of other workers, and for
    retries, those of this run and of earlier ones, which it makes due as soon as no process handles
    a message. Events that are published for later stay.
    """

    name = "idle_exit"
    #: For the runner: the role stops at its end.
    finite = True

    def __init__(
        self,
        store: Store,
        handlers: Sequence[Handler],
        consumer: ConsumerService,
        subscriptions: SubscriptionService | None = None,
    ) -> None:
        self.heartbeat = Heartbeat()
        self._store = store
        self._groups = [s.group for s in handlers]
        self._consumer = consumer
        self._subscriptions = subscriptions
        #: Dead letters before this run.
        self._dead_before: int | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Return when all is handled. Raises: GivenUp if there are new dead letters."""
        dead = 0
        while not stop.is_set():
            self.heartbeat.touch()
            try:
                before = await self._events_read()
                backlog = await self.run_once()
                after = await self._events_read()
            except StoreUnavailable as error:
                log.debug("cannot count what is left: %s", error)
            else:
                all_dead = sum(group.dead for group in backlog.groups)
                if self._dead_before is None:
                    self._dead_before = all_dead - self._consumer.dead_count
                dead = all_dead - self._dead_before
                # A subscription may publish messages, an event handler may append events.
                events_left = before is None or before != after
                if not (is_left(backlog, self._groups) or events_left):
                    break
            await asyncio.sleep(_LOOK_S)
        # Dead letters may also be of other workers, or of a worker that its handler killed.
        dead = max(dead, self._consumer.dead_count)
        handled = plural(self._consumer.handled_count, "message")
        if self._subscriptions is not None:
            handled += f", {plural(self._subscriptions.counts.handled, 'event')} of the event store"
        log.info("nothing is left; this worker handled %s", handled)
        if self._subscriptions is not None and (given_up := self._subscriptions.counts.given_up):
            raise GivenUp(
                f"given up by subscriptions: {plural(given_up, 'event')}",
                hint="`cordata subscriptions list` names them, `... status NAME` says why",
            )
        if dead:
            raise GivenUp(
                f"{plural(dead, 'message')} went to the dead letter",
                hint="`cordata dlq list` names them, `cordata dlq show` says why",
            )

    async def _events_read(self) -> int | None:
        """The position up to which subscriptions have handled all; None while they are behind."""
        return 0 if self._subscriptions is None else await self._subscriptions.quiet_at()

    async def run_once(self) -> Backlog:
        """Returns what waits. Retries are made due now, unless a process handles messages."""
        backlog = await self._store.read(lambda tx: read_backlog(tx, limit=NO_LIMIT))
        groups = backlog.groups
        ours = [one for one in groups if one.group in self._groups]
        if any(one.retrying for one in ours) and not any(one.claimed for one in groups):
            await self._store.run(self._hurry)
        return backlog

    async def _hurry(self, tx: Tx) -> None:
        groups = json.dumps(self._groups)
        if await tx.execute("queue.hurry", groups=groups, now_us=tx.now_us):
            tx.notify(CLAIMABLE_TOPIC)


def is_left(backlog: Backlog, groups: Collection[str]) -> bool:
    """Whether these groups have messages to handle, or a process still handles some of any group.

    What waits for the relay, or in a stream, is left, too; what was published for later is not.
    """
    return any(
        one.claimed
        or (
            one.group in (RELAY, *groups)
            and (one.ready or one.retrying or one.oldest_s is not None)
        )
        for one in backlog.groups
    )
