"""Partitions of subscriptions in the store: their owners, positions and failures.

Ownership has two parts. Each process has one row with the time until which it counts as alive (see
cordata/process.py): one small write per process now and then, however many partitions there are.
Each partition has its owner and a term that grows with every new owner. Every statement that moves
the position of a partition is conditional on both, so it changes nothing after another process has
taken the partition. Time decides when a partition may be claimed, never which process may write.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from cordata.errors import AlreadySeen, PartitionLost
from cordata.process import Process
from cordata.store import Row, Store, Tx

#: Notified when partitions become free, are resumed, or begin again.
SUBSCRIPTION_TOPIC = "subscription"


class Claim(Struct, frozen=True, kw_only=True):
    """The right to handle one partition; it ends when the partition gets a newer term."""

    subscription: str
    partition: int
    owner: str
    term: int

    def key(self) -> dict[str, object]:
        """The parameters of every statement that requires the claim."""
        return {
            "subscription": self.subscription,
            "partition": self.partition,
            "owner": self.owner,
            "term": self.term,
        }


class PartitionState(Struct, frozen=True, kw_only=True):
    """The row of one partition. Times are microseconds since the epoch."""

    subscription: str
    partition: int
    #: All its events up to this position are handled.
    position: int
    term: int
    owner: str | None
    #: The position of the event that failed last.
    failing: int | None
    #: Failed attempts to handle that event.
    attempts: int
    #: When the next attempt is due.
    next_at: int | None
    history: str | None
    #: Since when it has waited for an operator.
    blocked_at: int | None

    @property
    def claim(self) -> Claim:
        """The claim of the owner in this row."""
        return Claim(
            subscription=self.subscription,
            partition=self.partition,
            owner=self.owner or "",
            term=self.term,
        )


class PartitionTable(Struct, frozen=True, kw_only=True):
    """Some subscriptions with their partitions, and all processes, at one moment."""

    #: When it was read: the store's time, in microseconds since the epoch.
    at: int
    #: Name of each subscription -> number of its partitions.
    partitions: Mapping[str, int]
    states: Sequence[PartitionState]
    processes: Sequence[Process]


class Partitions:
    """The rows of all subscriptions of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, name: str, category: str, partitions: int, origin: int) -> Row | None:
        """Register a subscription. One that is registered already keeps its partitions and their
        positions; its row is returned as it was before. None: it is new.
        """

        async def unit(tx: Tx) -> Row | None:
            row = await tx.fetch_one("subscription.get", name=name)
            if row is not None:
                if row["category"] != category:
                    await tx.write("subscription.change_category", name=name, category=category)
                return row
            added = await tx.execute(
                "subscription.add",
                name=name,
                category=category,
                partitions=partitions,
                origin=origin,
                now_us=tx.now_us,
            )
            if added:
                await add_partitions(tx, name, partitions, origin, term=0)
            return None

        return await self._store.run(unit)

    async def known(self, name: str) -> bool:
        """Whether `add` ran before."""
        row = await self._store.read(lambda tx: tx.fetch_one("subscription.get", name=name))
        return row is not None

    async def read_table(self, subscriptions: Iterable[str]) -> PartitionTable:
        """The partitions of some subscriptions and all processes."""
        wanted = set(subscriptions)

        async def unit(tx: Tx) -> PartitionTable:
            rows = await tx.fetch_all("subscription.all")
            numbers = {row["name"]: row["partitions"] for row in rows if row["name"] in wanted}
            found = await tx.fetch_all(
                "subscription.partitions", subscriptions=json.dumps(sorted(numbers))
            )
            processes = [Process.from_row(row) for row in await tx.fetch_all("process.all")]
            states = [PartitionState(**dict(row)) for row in found]
            return PartitionTable(
                at=tx.now_us, partitions=numbers, states=states, processes=processes
            )

        return await self._store.read(unit)

    async def claim(
        self, owner: str, wanted: Mapping[str, Collection[int]], *, out_of: Mapping[str, int]
    ) -> list[PartitionState]:
        """Claim partitions (subscription -> numbers) without a live owner. Returns those claimed.

        `out_of`: subscription -> the number of its partitions when the caller chose. If a
        subscription has another number by now, none of it is claimed: 3 of 8 is not 3 of 5.
        """

        async def unit(tx: Tx) -> list[PartitionState]:
            got: list[PartitionState] = []
            for name in sorted(wanted):
                rows = await tx.fetch_all(
                    "subscription.claim",
                    subscription=name,
                    wanted=json.dumps(sorted(wanted[name])),
                    partitions=out_of[name],
                    owner=owner,
                    now_us=tx.now_us,
                )
                got += [PartitionState(subscription=name, owner=owner, **dict(row)) for row in rows]
            return got

        return await self._store.run(unit)

    async def release(self, released: Sequence[tuple[Claim, int]]) -> None:
        """Give partitions back, each with its position."""

        async def unit(tx: Tx) -> None:
            for claim, position in released:
                await tx.write("subscription.release", **claim.key(), position=position)
            tx.notify(SUBSCRIPTION_TOPIC)

        await self._store.run(unit)

    async def store(self, positions: Sequence[tuple[Claim, int]]) -> None:
        """Store the positions of partitions, except of those that another process owns by now."""

        async def unit(tx: Tx) -> None:
            for claim, position in positions:
                await tx.write("subscription.advance", **claim.key(), position=position)

        await self._store.run(unit)

    async def fail(
        self,
        claim: Claim,
        position: int,
        *,
        attempts: int,
        history: str,
        delay_us: int,
        blocked: bool,
    ) -> None:
        """Store that the event at a position failed once more. Raises: as `advance`."""

        async def unit(tx: Tx) -> None:
            changed = await tx.execute(
                "subscription.fail",
                **claim.key(),
                position=position,
                attempts=attempts,
                history=history,
                next_at=None if blocked else tx.now_us + delay_us,
                blocked_at=tx.now_us if blocked else None,
            )
            if not changed:
                await _refuse(tx, claim, position)

        await self._store.run(unit)

    async def give_up(
        self,
        claim: Claim,
        position: int,
        *,
        attempts: int,
        history: str,
        is_stored: bool = False,
    ) -> None:
        """Store the event at a position as a dead event; it counts as handled.

        `is_stored`: the position of the partition is there already. Raises: as `advance`.
        """

        async def unit(tx: Tx) -> None:
            await tx.execute(
                "subscription.give_up",
                subscription=claim.subscription,
                position=position,
                attempts=attempts,
                history=history,
                now_us=tx.now_us,
            )
            if not is_stored:
                await advance(tx, claim, position)

        await self._store.run(unit)


async def advance(tx: Tx, claim: Claim, position: int) -> None:
    """Store within a unit that all events of a partition up to a position are handled.

    Raises: PartitionLost when another process owns the partition; AlreadySeen when its position is
    there already, for example after an attempt that timed out while its commit was under way.
    """
    if not await tx.execute("subscription.advance", **claim.key(), position=position):
        await _refuse(tx, claim, position)


async def add_partitions(tx: Tx, name: str, partitions: int, origin: int, *, term: int) -> None:
    """Add the partitions of a subscription that has none."""
    for number in range(partitions):
        await tx.write(
            "subscription.add_partition",
            subscription=name,
            partition=number,
            position=origin,
            term=term,
        )


async def _refuse(tx: Tx, claim: Claim, position: int) -> None:
    row = await tx.fetch_one(
        "subscription.partition", subscription=claim.subscription, partition=claim.partition
    )
    if row is not None and (row["owner"], row["term"]) == (claim.owner, claim.term):
        raise AlreadySeen(f"event {position} was handled by {claim.subscription} before")
    raise PartitionLost(
        f"another process owns partition {claim.partition} of {claim.subscription} now"
    )
