"""Which partitions are this process' own: it lives, sees who else does, takes and gives its share.

join: alive until T (renewed at a third of the lease)
look: dead neighbours are put out; then of each subscription
      more than the fair share -> some are to be released
      less -> those that nobody owns who lives are claimed
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cordata import clock
from cordata.core.partition import fair_share
from cordata.eventstore import Partitions, Standing, Table
from cordata.services.subscription.peers import Peers
from cordata.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What one look says about the partitions of this process."""

    #: When the table was read.
    at: int
    #: Those it owns, the ones just claimed included: (subscription, partition) -> row.
    owned: Mapping[tuple[str, int], Standing]
    #: Subscription -> how many of them are to be released.
    excess: Mapping[str, int]
    #: Subscription -> how many there are.
    partitions: Mapping[str, int]
    #: Whether it has less than its share, since others were faster, or have not released any yet;
    #: or some are still free: what is left over may be this one's once the others have theirs.
    short: bool


@dataclass(slots=True)
class Plan:
    """What follows from a table, before anything is claimed."""

    owned: dict[tuple[str, int], Standing] = field(default_factory=dict)
    excess: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    #: How many there should be more, free or not.
    missing: int = 0
    #: How many nobody owns who lives.
    free: int = 0


class Membership:
    """This process among those that share the partitions."""

    def __init__(
        self,
        store: Store,
        partitions: Partitions,
        peers: Peers,
        owner_id: str,
        subscriptions: Collection[str],
        *,
        lease_s: float,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._peers = peers
        self._owner_id = owner_id
        self._subscriptions = subscriptions
        self._lease_s = lease_s
        self._expires_at = 0
        self._renew_deadline = 0.0

    def leased(self) -> bool:
        """Whether what was ours at the last look cannot have been taken by anybody yet."""
        return self._store.now_us() < self._expires_at

    @property
    def renew_in_s(self) -> float:
        """Until the lease is to be renewed."""
        return max(0.0, self._renew_deadline - clock.monotonic())

    async def renew(self) -> bool:
        """Renew the lease if it is time. Returns whether this process was not counted as alive
        before: others do not know of it then, and may have taken what it had.
        """
        if self.renew_in_s > 0.0 and self.leased():
            return False
        anew = not self.leased()
        self._expires_at = await self._partitions.join(
            self._owner_id, self._subscriptions, lease_us=int(self._lease_s * 1e6)
        )
        self._renew_deadline = clock.monotonic() + self._lease_s / 3
        return anew

    async def look(self) -> Shares:
        """See who lives, claim what is due to us."""
        table = await self._partitions.look(self._subscriptions)
        others = [w.owner for w in table.workers if w.owner != self._owner_id]
        dead = self._peers.look(others)
        self._peers.deaths.look(table.standings)
        if dead:
            await self._partitions.leave(dead)
        found = plan(self._owner_id, table, dead=dead)
        if found.wanted:
            claimed = await self._partitions.claim(
                self._owner_id, found.wanted, out_of=table.partitions
            )
            for standing in claimed:
                found.owned[standing.subscription, standing.partition] = standing
                found.missing -= 1
                found.free -= 1
        return Shares(
            at=table.at,
            owned=found.owned,
            excess=found.excess,
            partitions=table.partitions,
            short=found.missing > 0 or found.free > 0,
        )


def plan(me: str, table: Table, *, dead: Collection[str] = ()) -> Plan:
    """What the process `me` owns, has too much of, and should try to claim."""
    living = {w.owner: w.subscriptions for w in table.workers if w.expires_at > table.at}
    for owner in dead:
        living.pop(owner, None)
    by_name: dict[str, list[Standing]] = {name: [] for name in table.partitions}
    for standing in table.standings:
        by_name[standing.subscription].append(standing)
    result = Plan()
    for name, standings in by_name.items():
        held = {owner: 0 for owner, serves in living.items() if name in serves} | {me: 0}
        free = []
        for standing in standings:
            if standing.owner == me:
                result.owned[name, standing.partition] = standing
            if standing.owner in held:
                held[standing.owner] += 1
            elif standing.owner not in living:
                free.append(standing.partition)
        result.free += len(free)
        missing = fair_share(me, held, len(standings), salt=name) - held[me]
        if missing < 0:
            result.excess[name] = -missing
        result.missing += max(0, missing)
        if missing > 0 and free:
            # Not all begin at the same one: two that look at once would want the same.
            turn = zlib.crc32(me.encode()) % len(free)
            result.wanted[name] = (free[turn:] + free[:turn])[:missing]
    return result
