"""What becomes of what was read: acknowledged, moved to the store, or looked up first."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cordata import clock
from cordata.broker.message import Outcome
from cordata.broker.redis import moving, scan
from cordata.broker.redis.complaint import Complaints
from cordata.broker.redis.connection import Refused
from cordata.broker.redis.dial import Reach
from cordata.broker.redis.hands import Taken
from cordata.broker.redis.link import Link
from cordata.broker.redis.reading import Consumer
from cordata.broker.redis.registry import Knowledge
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.log import logger
from cordata.store import Store

log = logger("cordata.redis")


class Settling:
    """Of one process."""

    def __init__(self, store: Store, link: Link, reach: Reach, *, timeout_s: float) -> None:
        self._store = store
        self._link = link
        self._reach = reach
        self._timeout_s = timeout_s
        self._complaints = Complaints()

    async def settle(self, consumer: Consumer, outcomes: Sequence[Outcome]) -> None:
        """Note what is done, to be acknowledged with the next read; move the rest to the store.

        Raises: StoreUnavailable; then nothing was moved, and the same outcomes may come again.
        """
        rest, others = consumer.hands.settle(outcomes)
        if others:
            await moving.mark_seen(self._store, [(o.group, o.event_id) for o in others])
        if rest and not consumer.reads:
            rest = await self._take_over(consumer, rest)
        elif rest and not consumer.sure:
            rest = await self._still_held(consumer, rest)
        if rest:
            await moving.keep(self._store, rest)
            for _, taken in rest:
                consumer.hands.let_go(taken)

    async def _take_over(
        self, consumer: Consumer, rest: list[tuple[Outcome, Taken]]
    ) -> list[tuple[Outcome, Taken]]:
        """Of another process' entries those that are still in its name: they are in ours now.

        It may be alive, only slow, and have settled some itself.
        """
        try:
            ours, gone = await scan.take_over(
                await self._link.ready(),
                [taken for _, taken in rest],
                consumer.name,
                consumer.holder,
                self._complaints,
                timeout_s=self._timeout_s,
            )
        except BrokerUnavailable as error:
            self._reach.failed(error)
            return []
        for taken in gone:
            consumer.hands.drop(taken)
        return [(outcome, taken) for outcome, taken in rest if taken in ours]

    async def _still_held(
        self, consumer: Consumer, rest: list[tuple[Outcome, Taken]]
    ) -> list[tuple[Outcome, Taken]]:
        """Without what others took over meanwhile: what they made of it counts."""
        lost = await self._hold(consumer, [taken for _, taken in rest]) or ()
        return [(outcome, taken) for outcome, taken in rest if taken not in lost]

    async def renew(self, consumer: Consumer) -> None:
        """Keep what a process holds in its name. Raises nothing."""
        begun = clock.monotonic()
        lost = await self._hold(consumer, consumer.hands.all())
        if lost is not None and not consumer.hands.owes:  # what it owes was not renewed
            consumer.held_since = begun

    async def _hold(self, consumer: Consumer, all_taken: Sequence[Taken]) -> set[Taken] | None:
        """Renew these; what is in another name goes out of hand.

        Returns that; None: nobody knows.
        """
        connection = self._link.connection
        if connection is None or not all_taken:
            return None
        try:
            lost = await scan.hold(connection, all_taken, consumer.name, timeout_s=self._timeout_s)
        except BrokerUnavailable as error:
            self._reach.failed(error)
            return None
        except Refused as error:
            self._complaints.refused("to renew claims", error)
            return None
        for taken in lost:
            consumer.hands.drop(taken)
        return lost

    async def mark_unsettled(self, consumer: Consumer) -> None:
        """What was taken over or lost while it was handled is not to be handled again.

        Raises: StoreUnavailable.
        """
        if unsettled := consumer.unsettled:
            await moving.mark_seen(self._store, _events(unsettled))
            consumer.unsettled = []

    async def sift(
        self, consumer: Consumer, groups: Collection[str], known: Knowledge
    ) -> list[Taken]:
        """Of what may have been delivered before, what is to be handled.

        Raises: StoreUnavailable.
        """
        doubtful = [taken for taken in consumer.doubtful if taken.message.group in groups]
        if not doubtful:
            return []
        fresh, done = await moving.split(self._store, doubtful, known)
        looked_at = set(map(id, doubtful))
        consumer.doubtful = [taken for taken in consumer.doubtful if id(taken) not in looked_at]
        for taken in done:
            consumer.hands.let_go(taken)
        return fresh

    async def give_up(self, consumer: Consumer) -> None:
        """What cannot be acknowledged will be delivered again: it is not to be handled again."""
        done = consumer.hands.acknowledged(consumer.hands.done()) + consumer.unsettled
        try:
            await moving.mark_seen(self._store, _events(done))
        except StoreUnavailable as error:
            log.warning("%d messages that are done will be handled again: %s", len(done), error)


def _events(all_taken: Sequence[Taken]) -> list[tuple[str, str]]:
    return [(taken.message.group, taken.message.event_id) for taken in all_taken]
