"""What a relay has added to streams and not yet marked in the store as published."""

from __future__ import annotations

import json
from typing import NamedTuple, TypeVar

from cordata.broker import claim
from cordata.broker.redis.registry import Knowledge
from cordata.store import Store, Tx, Unit

T = TypeVar("T")


class _Added(NamedTuple):
    #: Of the Redis that they were added to.
    known: Knowledge
    #: [id, position] of each.
    entries: list[list[int]]


class Marking:
    """Of one process, `owner`: marks go with whatever unit comes next, so they cost no commit."""

    def __init__(self, store: Store, *, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._added: list[_Added] = []

    @property
    def owes(self) -> bool:
        """Whether something is to be marked."""
        return bool(self._added)

    def add(self, known: Knowledge, entries: list[list[int]]) -> None:
        """These ([id, position]) were added to the Redis that is `known`."""
        if entries:
            self._added.append(_Added(known, entries))

    async def run(self, unit: Unit[T]) -> T:
        """Run a unit that also marks. Several at a time are fine; what fails is marked later."""
        added = tuple(self._added)

        async def marking(tx: Tx) -> T:
            if added:
                await self._mark(tx, added)
            return await unit(tx)

        # A claim or mark that a crash of the server takes back is made again: the entry then comes
        # to Redis twice, and the seen-mark keeps its effect single.
        result = await self._store.run(marking, bookkeeping="fleeting")
        self._added = [one for one in self._added if not any(one is other for other in added)]
        return result

    async def run_owed(self) -> None:
        """Mark, if there is anything to mark."""
        if self._added:
            await self.run(_nothing)

    async def _mark(self, tx: Tx, added: tuple[_Added, ...]) -> None:
        """For a unit: what was added, unless the data is another one by now: then it goes back.

        The row is locked until the commit: a primary that looks for what is lost first changes it,
        so it sees everything that was marked before.
        """
        server = await tx.fetch_one("redis.hold_server")
        found = (server["run_id"], server["epoch"]) if server else None
        good: list[list[int]] = []
        lost: list[int] = []
        for known, entries in added:
            if found == (known.run_id, known.epoch):
                good += entries
            else:
                lost += [id for id, _ in entries]
        if good:
            marks = json.dumps(good)
            await tx.write("redis.mark_published", entries=marks, now_us=tx.now_us)
        if lost:
            await tx.write("redis.doubt", ids=json.dumps(lost), owner=self._owner)
            await claim.give_back(tx, lost, owner=self._owner)


async def _nothing(tx: Tx) -> None:
    """A unit that only marks."""
