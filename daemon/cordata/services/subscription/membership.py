"""Which partitions are this process' own: its lease, who else lives, who died in which handler.

    renew:  alive until T (renewed at a third of the lease)
    look:   processes of this host that died are put out; then of each subscription
            more than the fair share -> some are to be released
            less -> those that nobody owns who lives are claimed

A process that dies leaves the marks of the attempts that it was in. The next owner of the partition
counts each as one failed attempt, so that an event which kills its process is given up like any
other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cordata import clock
from cordata.broker import Owner, Owners, mark_of
from cordata.core.partition import fair_share
from cordata.eventstore.partition import Claim, Partitions, PartitionState, PartitionTable
from cordata.services.subscription.process_watcher import ProcessWatcher
from cordata.store import Store

#: Claims before the present one in which a crash counts: whoever came in between may have died of
#: something else before it had counted. A reset leaves more terms than that out.
_CLAIMS = 4
#: The file of a dead process stays for so long, so that every process of the host has seen what it
#: ran; and its marks, so that its partitions have been claimed, even if the store is away a while.
_FORGET_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one look says about the partitions of this process."""

    #: When the table was read.
    at: int
    #: Those it owns, the ones just claimed included: (subscription, partition) -> row.
    owned: Mapping[tuple[str, int], PartitionState]
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

    owned: dict[tuple[str, int], PartitionState] = field(default_factory=dict)
    excess: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    #: How many there should be more, free or not.
    missing: int = 0
    #: How many nobody owns who lives.
    free: int = 0


def attempt_mark(claim: Claim, position: int, number: int) -> bytes:
    """The mark of attempt `number` at one event, under one claim."""
    return mark_of(claim.subscription, f"{claim.partition}/{claim.term}/{position}/{number}")


class CrashedAttempts:
    """Marks of the attempts that ended with their process: each uses up one attempt, once."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()

    def add(self, marks: Collection[bytes]) -> None:
        """A process has died in these attempts."""
        self._marks.update(marks)

    def drop(self, marks: Collection[bytes]) -> None:
        """Whoever was to count these has done so."""
        self._marks.difference_update(marks)

    def take(self, claim: Claim, position: int, number: int) -> bool:
        """Whether a process that had the partition shortly before this claim died in this attempt.

        True once only: what an operator begins anew comes with the same numbers again.
        """
        if not self._marks:
            return False
        found = self._marks.intersection(_marks_before(claim, position, number))
        self._marks -= found
        return bool(found)

    def drop_counted(self, states: Iterable[PartitionState]) -> None:
        """Drop what others have counted, as the stored states say."""
        if self._marks:
            for one in states:
                for number in range(1, one.attempts + 1):
                    self._marks.difference_update(
                        _marks_before(one.claim, one.failing or 0, number)
                    )


def _marks_before(claim: Claim, position: int, number: int) -> Iterator[bytes]:
    for term in range(claim.term - _CLAIMS, claim.term):
        yield attempt_mark(replace(claim, term=term), position, number)


class HostProcesses:
    """The other processes of this host that serve subscriptions: which of them have died, and in
    which attempts. Call `find_dead` now and then, and `close` at the end.
    """

    def __init__(
        self, owner: Owner, owners: Owners, on_death: Callable[[], None], *, grace_s: float
    ) -> None:
        """`on_death()` is called when one dies; `grace_s` as ProcessWatcher."""
        self.crashed = CrashedAttempts()
        self._owner = owner
        self._owners = owners
        self._watcher = ProcessWatcher(owner, owners, on_death, grace_s=grace_s)
        #: When each was found dead, and what it ran.
        self._dead: dict[str, tuple[float, frozenset[bytes]]] = {}

    def find_dead(self, others: Collection[str]) -> list[str]:
        """Which of `others` are dead, as far as can be known on this host."""
        now, files_tell = clock.monotonic(), self._watcher.look()
        ids = set(self._owners.ids()) - {self._owner.id}
        for owner_id in self._owners.dead(ids - self._dead.keys()):
            running = self._owners.running(owner_id)
            self._dead[owner_id] = now, running
            self.crashed.add(running)
        for owner_id in [one for one, (at, _) in self._dead.items() if now - at > _FORGET_S]:
            self._owners.forget(owner_id)
            self.crashed.drop(self._dead.pop(owner_id)[1])
        return self._owners.dead(others) if files_tell else []

    def close(self) -> None:
        """Watch nobody any more."""
        self._watcher.close()


class Membership:
    """This process among those that share the partitions."""

    def __init__(
        self,
        store: Store,
        partitions: Partitions,
        processes: HostProcesses,
        owner_id: str,
        subscriptions: Collection[str],
        *,
        lease_s: float,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._processes = processes
        self._owner_id = owner_id
        self._subscriptions = subscriptions
        self._lease_s = lease_s
        self._expires_at = 0
        self._renew_deadline = 0.0

    def is_leased(self) -> bool:
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
        if self.renew_in_s > 0.0 and self.is_leased():
            return False
        anew = not self.is_leased()
        self._expires_at = await self._partitions.join(
            self._owner_id, self._subscriptions, lease_us=int(self._lease_s * 1e6)
        )
        self._renew_deadline = clock.monotonic() + self._lease_s / 3
        return anew

    async def look(self) -> Assignment:
        """See who lives, claim what is due to us."""
        table = await self._partitions.look(self._subscriptions)
        others = [w.owner for w in table.workers if w.owner != self._owner_id]
        dead = self._processes.find_dead(others)
        self._processes.crashed.drop_counted(table.states)
        if dead:
            await self._partitions.leave(dead)
        found = plan(self._owner_id, table, dead=dead)
        if found.wanted:
            claimed = await self._partitions.claim(
                self._owner_id, found.wanted, out_of=table.partitions
            )
            for state in claimed:
                found.owned[state.subscription, state.partition] = state
                found.missing -= 1
                found.free -= 1
        return Assignment(
            at=table.at,
            owned=found.owned,
            excess=found.excess,
            partitions=table.partitions,
            short=found.missing > 0 or found.free > 0,
        )


def plan(me: str, table: PartitionTable, *, dead: Collection[str] = ()) -> Plan:
    """What the process `me` owns, has too much of, and should try to claim."""
    living = {w.owner: w.subscriptions for w in table.workers if w.expires_at > table.at}
    for owner in dead:
        living.pop(owner, None)
    by_name: dict[str, list[PartitionState]] = {name: [] for name in table.partitions}
    for state in table.states:
        by_name[state.subscription].append(state)
    result = Plan()
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
            # Not all begin at the same one: two that look at once would want the same.
            turn = zlib.crc32(me.encode()) % len(free)
            result.wanted[name] = (free[turn:] + free[:turn])[:missing]
    return result
