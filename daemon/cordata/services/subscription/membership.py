"""Which partitions this process owns: a fair share of all.

more than the fair share -> some are to be released
less                     -> partitions without a living owner are claimed
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from cordata.eventstore.partition import Partitions, PartitionState, PartitionTable
from cordata.services.subscription.crash import CrashedAttempts


@dataclass(slots=True)
class Assignment:
    """The partitions that this process has, should release and should claim."""

    #: What was read.
    table: PartitionTable
    #: Owned partitions, also those just claimed: (subscription, partition) -> row.
    owned: dict[tuple[str, int], PartitionState] = field(default_factory=dict)
    #: Subscription -> how many owned partitions are to be released.
    excess: dict[str, int] = field(default_factory=dict)
    #: Subscription -> partitions to claim.
    wanted: dict[str, list[int]] = field(default_factory=dict)
    #: How many partitions this process has less than its share.
    missing: int = 0
    #: How many partitions have no living owner.
    free: int = 0

    @property
    def short(self) -> bool:
        """Whether this process has less than its share, because others were faster or have not
        released any yet; or some are still free, and may be in its share when the others have
        theirs.
        """
        return self.missing > 0 or self.free > 0


async def assign(
    partitions: Partitions,
    process_id: str,
    subscriptions: Collection[str],
    crashed: CrashedAttempts,
) -> Assignment:
    """Read which processes live, and claim this process's share."""
    table = await partitions.read_table(subscriptions)
    found = plan(process_id, table)
    if found.wanted:
        claimed = await partitions.claim(process_id, found.wanted, out_of=table.partitions)
        for state in claimed:
            found.owned[state.subscription, state.partition] = state
        found.missing -= len(claimed)
        found.free -= len(claimed)
        if claimed:
            crashed.load(table.states)
    return found


def plan(me: str, table: PartitionTable) -> Assignment:
    """What the process `me` owns, should release and should try to claim."""
    living = {one.id: one.subscriptions for one in table.processes if one.expires_at > table.at}
    by_name: dict[str, list[PartitionState]] = {name: [] for name in table.partitions}
    for state in table.states:
        by_name[state.subscription].append(state)
    result = Assignment(table)
    for name, states in by_name.items():
        held = {owner: 0 for owner, serves in living.items() if name in serves} | {me: 0}
        free = []
        for state in states:
            if state.owner == me:
                result.owned[name, state.partition] = state
            if state.owner in held:
                held[state.owner] += 1
            elif state.owner not in living:
                free.append(state.partition)
        result.free += len(free)
        missing = fair_share(me, held, len(states), salt=name) - held[me]
        if missing < 0:
            result.excess[name] = -missing
        result.missing += max(0, missing)
        if missing > 0 and free:
            # Each process begins at another one, so that two do not claim the same at once.
            turn = zlib.crc32(me.encode()) % len(free)
            result.wanted[name] = (free[turn:] + free[:turn])[:missing]
    return result


def fair_share(me: str, held: Mapping[str, int], partitions: int, *, salt: str) -> int:
    """How many of `partitions` the process `me` should have.

    `held`: each living process of the subscription, `me` too -> how many it has now. The remainder
    of the division goes to the processes that have most, so that nothing moves without need;
    between equals `salt` (the name of the subscription) decides, so that one process does not get
    the remainder of every subscription.
    """
    share, left_over = divmod(partitions, len(held))

    def rank(owner: str) -> tuple[int, bytes]:
        return -held[owner], blake2b(f"{salt}/{owner}".encode(), digest_size=8).digest()

    return share + (sorted(held, key=rank).index(me) < left_over)
