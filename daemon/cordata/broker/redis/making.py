"""The groups of one process in Redis: made before they read, and anew when Redis has lost them.

What Redis does not let us make (it has no memory left, the user may not, the key is no stream) is
tried again after a pause that grows. Everything else is read meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from cordata import clock
from cordata.broker.redis.complaint import Complaints
from cordata.broker.redis.connection import Connection, Refused
from cordata.broker.redis.naming import NORMAL, Keys, Stream
from cordata.broker.redis.registry import REDIS_TOPIC, Knowledge, Mark, load, set_up
from cordata.core.retry import next_delay_s
from cordata.store import Store, Tx

#: First and longest pause while something is refused.
_FIRST_S, _LONGEST_S = 0.5, 10.0


class Making:
    """Of one process."""

    def __init__(self, store: Store, keys: Keys, *, timeout_s: float) -> None:
        #: Group -> event type, of those that read streams.
        self.types: dict[str, str] = {}
        #: Why some groups cannot be made; "" when all could be.
        self.trouble = ""
        self._store = store
        self._keys = keys
        self._timeout_s = timeout_s
        #: Some may have no mark yet.
        self._owes = True
        #: Lost by Redis, which does not let us make them anew: not read during the pause.
        self._lost: frozenset[str] = frozenset()
        self._failures = 0
        self._next_deadline = 0.0
        self._complaints = Complaints()

    def register(self, groups: Mapping[str, str]) -> None:
        """These read streams: group -> event type."""
        self.types |= groups
        self._owes, self._next_deadline = True, 0.0

    def is_due(self) -> bool:
        """Whether `make` has something to do, now that no pause is in the way."""
        return self._owes and clock.monotonic() >= self._next_deadline

    def pauses(self, group: str) -> bool:
        """Whether a group cannot be read for a while."""
        return group in self._lost and clock.monotonic() < self._next_deadline

    async def make(self, connection: Connection) -> Knowledge:
        """Make the groups that have no mark. Returns what the store knows then.

        Raises: BrokerUnavailable, StoreUnavailable.
        """
        known = await self._store.read(load)
        marks = [Mark(Stream(type, NORMAL), group) for group, type in self.types.items()]
        wanted = [mark for mark in marks if mark not in known.marks]
        new, self._owes = await self._attempt(connection, wanted, known)
        return await self._store.read(load) if new else known

    async def restore(self, connection: Connection, groups: Collection[str]) -> Knowledge:
        """Redis lost groups, or what they read: they go on at their marks.

        What else is lost the primary finds out; it has to, even if it comes later than the groups.
        Raises: BrokerUnavailable, StoreUnavailable.
        """

        async def unit(tx: Tx) -> None:
            await tx.write("redis.distrust")
            tx.notify(REDIS_TOPIC)

        known = await self._store.read(load)
        await self._store.run(unit)
        wanted = [mark for mark in known.marks if mark.group in groups]
        _, refused = await self._attempt(connection, wanted, known)
        self._lost = self._lost.difference(groups).union(groups if refused else ())
        return known

    async def _attempt(
        self, connection: Connection, wanted: Collection[Mark], known: Knowledge
    ) -> tuple[bool, bool]:
        """(Whether some have a mark that is new, whether some were refused)."""
        refusals: dict[str, Refused] = {}
        new: Collection[Mark] = ()
        try:
            new, strange = await set_up(
                self._store, self._keys, connection, wanted, known.marks, timeout_s=self._timeout_s
            )
            refusals = {self._keys.of(mark.stream): error for mark, error in strange.items()}
        except Refused as error:
            refusals = {"new groups": error}
        for what, refusal in refusals.items():
            self._complaints.refused(what, refusal)
            self.trouble = str(refusal)
        if refusals:
            self._failures += 1
            share = 0.5 + 0.5 * random.random()
            pause_s = next_delay_s(self._failures, share, first_s=_FIRST_S, longest_s=_LONGEST_S)
            self._next_deadline = clock.monotonic() + pause_s
        elif wanted:
            self.trouble, self._failures = "", 0
        return bool(new), bool(refusals)
