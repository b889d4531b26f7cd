"""Subscriptions by hand: how far they are, begin anew, go on after a failure, forget."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from cordata.errors import CordataError, PermanentError, TransientError
from cordata.eventstore.log import EventLog
from cordata.eventstore.partition import SUBSCRIPTION_TOPIC, Partitions, add_partitions
from cordata.eventstore.status import (
    DeadEvent,
    SubscriptionStatus,
    extrapolation,
    letter_of,
    status_of,
    worst,
)
from cordata.process import Process, plain_name
from cordata.store import Row, Store, Tx

#: Events that are counted one by one; how many more there are is estimated.
_CAP = 100_000
#: A look at what is going on waits so long for appends in flight.
_HEAD_S = 1.0
_EVER = 2**63 - 1
#: A reset that dies on its way leaves the workers waiting for so long at most.
_PAUSE_US = 60_000_000


class Subscriptions:
    """The subscriptions of a store, whether its workers run or not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions = Partitions(store)
        self._log = EventLog(store)

    async def names(self) -> list[str]:
        """All that ever began, sorted."""
        rows = await self._store.read(lambda tx: tx.fetch_all("subscription.all"))
        return [row["name"] for row in rows]

    async def page(
        self,
        *,
        state: str | None = None,
        category: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[list[SubscriptionStatus], str | None]:
        """Those of which every given thing is true, by name, and `after` of the next page."""
        found: list[SubscriptionStatus] = []
        for name in await self.names():
            if len(found) > limit:
                break
            status = None if after is not None and name <= after else await self.status(name)
            if status is None or state not in (None, status.state):
                continue
            if category in (None, status.category):
                found.append(status)
        return found[:limit], found[limit - 1].name if len(found) > limit else None

    async def status(self, name: str) -> SubscriptionStatus | None:
        """How far one is, as of now. None: there is none of this name."""
        head = await self._head()
        table = await self._partitions.look([name])
        after = min((one.position for one in table.states), default=0)

        async def unit(tx: Tx) -> tuple[Row | None, list[Row], list[Row]]:
            known = await tx.fetch_one("subscription.get", name=name)
            if known is None:
                return None, [], []
            left = await tx.fetch_all(
                "subscription.left",
                subscription=name,
                category=known["category"],
                partitions=known["partitions"],
                after=after,
                until=head,
                cap=_CAP,
            )
            return known, left, await tx.fetch_all("subscription.letter_count")

        known, left, letters = await self._store.read(unit)
        if known is None:
            return None
        living = {one.id: one for one in table.processes if one.expires_at > table.at}
        serving = sum(name in one.subscriptions for one in living.values())
        factor = extrapolation(left, after, head, cap=_CAP)
        counts = {row["partition"]: round(row["count"] * factor) for row in left}
        # A partition with nothing left is at the head, whenever its position was stored last.
        there = head if factor == 1.0 else after
        found = [
            status_of(one, counts.get(one.partition, 0), living, served=serving > 0, there=there)
            for one in table.states
        ]
        return SubscriptionStatus(
            name=name,
            category=known["category"],
            state=worst(found),
            workers=serving,
            position=min((one.position for one in found), default=0),
            head=head,
            behind=sum(counts.values()),
            estimated=factor > 1.0,
            blocked=sum(one.state == "blocked" for one in found),
            dead=next((row["count"] for row in letters if row["subscription"] == name), 0),
            origin=known["origin"],
            created_at=known["created_at"],
            reset_at=known["reset_at"],
            partitions=found,
        )

    async def reset(
        self,
        name: str,
        to: int | Literal["start", "end"],
        *,
        partitions: int | None = None,
        clear: Callable[[Tx], Awaitable[None]] | None = None,
    ) -> int | None:
        """Begin anew after a position, whatever the workers do meanwhile: what they run is refused
        at its commit. `clear` runs in the same unit. Returns the position; None: there is
        no such subscription. Raises: TransientError for "end" when appends in flight last too long.
        """
        origin = 0 if to == "start" else await self._log.head() if to == "end" else to
        # A unit of its own: handlers lock the rows of their tables first and that of their
        # partition last, the reset the other way round. By the time it clears, none of them can
        # commit any more, and no new one begins.
        await self._pause(name, _PAUSE_US)
        try:
            return await self._store.run(
                lambda tx: _begin_anew(tx, name, origin, partitions, clear)
            )
        except BaseException:
            with contextlib.suppress(CordataError):
                await self._pause(name, 0)
            raise

    async def _pause(self, name: str, pause_us: int) -> None:
        async def unit(tx: Tx) -> None:
            await tx.execute("subscription.pause", name=name, until=tx.now_us + pause_us)
            if pause_us:
                await tx.execute("subscription.take_away", subscription=name)
            tx.notify(SUBSCRIPTION_TOPIC)

        await self._store.run(unit)

    async def resume(self, name: str, *, partition: int | None = None, skip: bool = False) -> int:
        """Go on with blocked partitions: try the event again, or leave it out as a dead letter.

        Returns how many.
        """
        table = await self._partitions.look([name])
        blocked = [
            one
            for one in table.states
            if one.blocked_at is not None and partition in (None, one.partition)
        ]

        async def unit(tx: Tx) -> int:
            count = 0
            for one in blocked:
                key = {"subscription": name, "partition": one.partition, "failing": one.failing}
                changed = await tx.execute(
                    "subscription.skip" if skip else "subscription.resume", **key
                )
                if changed and skip:
                    await tx.execute(
                        "subscription.bury",
                        subscription=name,
                        position=one.failing,
                        attempts=one.attempts,
                        history=one.history,
                        now_us=tx.now_us,
                    )
                count += changed
            tx.notify(SUBSCRIPTION_TOPIC)
            return count

        return await self._store.run(unit) if blocked else 0

    async def letters(
        self, name: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[list[DeadEvent], int | None]:
        """Events that a subscription gave up, the newest first, and `before` of the next page."""
        rows = await self._store.read(
            lambda tx: tx.fetch_all(
                "subscription.letters",
                subscription=name,
                before=_EVER if before is None else before,
                limit=limit + 1,
            )
        )
        found = [letter_of(row) for row in rows]
        more = len(found) > limit
        return found[:limit], found[limit - 1].position if more else None

    async def drop(self, name: str) -> bool:
        """Forget one that no code has any more. Raises: PermanentError while a worker serves it."""

        async def unit(tx: Tx) -> bool:
            for row in await tx.fetch_all("process.all"):
                one = Process.from_row(row)
                if one.expires_at > tx.now_us and name in one.subscriptions:
                    raise PermanentError(f"{plain_name(one.id)} serves {name}")
            for query in ("subscription.drop_partitions", "subscription.drop_letters"):
                await tx.execute(query, subscription=name)
            return await tx.execute("subscription.drop", name=name) > 0

        return await self._store.run(unit)

    async def _head(self) -> int:
        try:
            return await self._log.head(timeout_s=_HEAD_S)
        except TransientError:
            return await self._log.look()


async def _begin_anew(
    tx: Tx,
    name: str,
    origin: int,
    partitions: int | None,
    clear: Callable[[Tx], Awaitable[None]] | None,
) -> int | None:
    known = await tx.fetch_one("subscription.get", name=name)
    newest = await tx.fetch_one("subscription.newest_term", subscription=name)
    if known is None or newest is None:
        return None
    count = partitions or known["partitions"]
    # Before the tables are cleared: a handler that commits after all is waited for, or refused.
    await tx.execute("subscription.drop_partitions", subscription=name)
    await add_partitions(tx, name, count, origin, term=newest["term"] + 1)
    await tx.execute(
        "subscription.restart", name=name, partitions=count, origin=origin, now_us=tx.now_us
    )
    await tx.execute("subscription.drop_letters", subscription=name)
    if clear is not None:
        await clear(tx)
    tx.notify(SUBSCRIPTION_TOPIC)
    return origin
