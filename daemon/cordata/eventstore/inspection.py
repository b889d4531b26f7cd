"""Subscriptions for operators: status, reset, resume, dead events, drop."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cordata.core.message_state import read_failures
from cordata.errors import CordataError, PermanentError, TransientError
from cordata.eventstore.log import EventLog
from cordata.eventstore.partition import (
    SUBSCRIPTION_TOPIC,
    Partitions,
    PartitionState,
    add_partitions,
)
from cordata.process import Process, plain_name
from cordata.store import Row, Store, Tx

#: Up to this many events are counted exactly; the number of further ones is estimated.
_CAP = 100_000
#: How long a status waits for appends in flight.
_HEAD_S = 1.0
_EVER = 2**63 - 1
#: Workers wait at most this long when the process dies during a reset.
_PAUSE_US = 60_000_000


#: blocked: an operator has to act; unserved: no worker takes part; retrying: an event fails.
State = Literal["blocked", "unserved", "retrying", "behind", "current"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition. Times are microseconds since the epoch."""

    partition: int
    state: State
    position: int
    #: Events that are still to be handled.
    behind: int
    #: The live process that owns it.
    owner: str | None
    attempts: int
    #: Position of the event that fails.
    failing: int | None
    next_at: int | None
    blocked_at: int | None
    #: Of the last attempt.
    error: str | None
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """One subscription."""

    name: str
    category: str
    state: State
    #: Live processes that take part.
    workers: int
    #: All events up to this position are handled.
    position: int
    #: The newest position that can be handled now.
    head: int
    #: Events that are still to be handled.
    behind: int
    #: Whether `behind` is an estimate, because there are many.
    estimated: bool
    #: Number of blocked partitions.
    blocked: int
    #: Number of dead events.
    dead: int
    #: The position where it began, first or after the last reset.
    origin: int
    created_at: int
    reset_at: int | None
    partitions: Sequence[PartitionStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEvent:
    """An event whose handling a subscription gave up: it counts as handled."""

    position: int
    stream: str
    version: int
    type: str
    attempts: int
    created_at: int
    dead_at: int
    error: str | None
    #: JSON text.
    payload: str
    #: JSON text.
    headers: str
    history: Sequence[Mapping[str, Any]]


class Subscriptions:
    """The subscriptions of a store. Works without running workers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._partitions = Partitions(store)
        self._log = EventLog(store)

    async def names(self) -> list[str]:
        """The names of all subscriptions, sorted; also of those that no code has any more."""
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
        """The subscriptions that match every given filter, by name, and `after` of the next page
        (None: this was the last one).
        """
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
        """The status of a subscription now. None: there is no such subscription."""
        head = await self._head()
        table = await self._partitions.read_table([name])
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
            return known, left, await tx.fetch_all("subscription.dead_event_count")

        known, left, dead_events = await self._store.read(unit)
        if known is None:
            return None
        living = {one.id: one for one in table.processes if one.expires_at > table.at}
        serving = sum(name in one.subscriptions for one in living.values())
        factor = _extrapolation(left, after, head)
        counts = {row["partition"]: round(row["count"] * factor) for row in left}
        # A partition without further events is at the head, even if its stored position is older.
        counted_to = head if factor == 1.0 else after
        found = [
            _status_of(
                one,
                counts.get(one.partition, 0),
                living,
                served=serving > 0,
                counted_to=counted_to,
            )
            for one in table.states
        ]
        return SubscriptionStatus(
            name=name,
            category=known["category"],
            state=_worst(found),
            workers=serving,
            position=min((one.position for one in found), default=0),
            head=head,
            behind=sum(counts.values()),
            estimated=factor > 1.0,
            blocked=sum(one.state == "blocked" for one in found),
            dead=next((row["count"] for row in dead_events if row["subscription"] == name), 0),
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
        """Make a subscription begin again after a position. Running handlers cannot commit then.

        `partitions`: a new number of them; None: as before. `clear` runs in the same unit. Returns
        the position; None: there is no such subscription. Raises: TransientError for "end" when
        appends in flight last too long.
        """
        origin = 0 if to == "start" else await self._log.head() if to == "end" else to
        # In a separate unit, against a deadlock: handlers lock the rows of their tables first and
        # that of their partition last, the reset the other way round. When the reset clears, no
        # handler can commit any more, and no new one begins.
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
        """Continue blocked partitions: try the event again, or `skip` it as a dead event.

        `partition`: only this one. Returns the number of partitions that continue.
        """
        table = await self._partitions.read_table([name])
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
                        "subscription.give_up",
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

    async def dead_events(
        self, name: str, *, before: int | None = None, limit: int = 50
    ) -> tuple[list[DeadEvent], int | None]:
        """The dead events of a subscription, newest first, and `before` of the next page (None:
        this was the last one).
        """
        rows = await self._store.read(
            lambda tx: tx.fetch_all(
                "subscription.dead_events",
                subscription=name,
                before=_EVER if before is None else before,
                limit=limit + 1,
            )
        )
        found = [_dead_event_of(row) for row in rows]
        more = len(found) > limit
        return found[:limit], found[limit - 1].position if more else None

    async def drop(self, name: str) -> bool:
        """Delete a subscription that no code has any more. False: there is no such subscription.

        Raises: PermanentError while a worker serves it.
        """

        async def unit(tx: Tx) -> bool:
            for row in await tx.fetch_all("process.all"):
                one = Process.from_row(row)
                if one.expires_at > tx.now_us and name in one.subscriptions:
                    raise PermanentError(f"{plain_name(one.id)} serves {name}")
            for query in ("subscription.drop_partitions", "subscription.drop_dead_events"):
                await tx.execute(query, subscription=name)
            return await tx.execute("subscription.drop", name=name) > 0

        return await self._store.run(unit)

    async def _head(self) -> int:
        try:
            return await self._log.head(timeout_s=_HEAD_S)
        except TransientError:
            return await self._log.safe_position()


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
    # Before the tables are cleared: this waits for a handler that commits now, or makes it fail.
    await tx.execute("subscription.drop_partitions", subscription=name)
    await add_partitions(tx, name, count, origin, term=newest["term"] + 1)
    await tx.execute(
        "subscription.restart", name=name, partitions=count, origin=origin, now_us=tx.now_us
    )
    await tx.execute("subscription.drop_dead_events", subscription=name)
    if clear is not None:
        await clear(tx)
    tx.notify(SUBSCRIPTION_TOPIC)
    return origin


def _extrapolation(left: Sequence[Row], after: int, head: int) -> float:
    """The factor from the events counted to all events; 1.0 when all were counted."""
    if sum(row["seen"] for row in left) < _CAP:
        return 1.0
    reached: int = max(row["reached"] for row in left)
    return (head - after) / (reached - after)


def _status_of(
    one: PartitionState, behind: int, living: Container[str], *, served: bool, counted_to: int
) -> PartitionStatus:
    """A partition with `behind` events still to be handled; `served`: some process takes part.

    If there are none, all events up to `counted_to` are handled.
    """
    state: State = "behind" if behind else "current"
    if one.attempts:
        state = "retrying"
    if not served:
        state = "unserved"
    if one.blocked_at is not None:
        state = "blocked"
    history = read_failures(one.history)
    return PartitionStatus(
        partition=one.partition,
        state=state,
        position=one.position if behind else max(one.position, counted_to),
        behind=behind,
        owner=one.owner if one.owner in living else None,
        attempts=one.attempts,
        failing=one.failing,
        next_at=one.next_at,
        blocked_at=one.blocked_at,
        error=history[-1]["error"] if history else None,
        history=history,
    )


def _worst(found: Sequence[PartitionStatus]) -> State:
    """The state of a subscription: the worst of its partitions."""
    states: tuple[State, ...] = ("blocked", "unserved", "retrying", "behind", "current")
    return next((state for state in states if any(one.state == state for one in found)), "current")


def _dead_event_of(row: Row) -> DeadEvent:
    history = read_failures(row["history"])
    plain = {name: row[name] for name in row.keys() if name != "history"}
    error = history[-1]["error"] if history else None
    return DeadEvent(**plain, error=error, history=history)
