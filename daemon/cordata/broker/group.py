"""Consumer groups: a worker registers them before it is ready; they get events published later.

Publishing fans out to the groups that its transaction sees. A transaction that began before a group
was registered may not see it: when all of these have ended, `catch_up` adds their events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from cordata.log import logger
from cordata.store import CLAIMABLE_TOPIC, Store, Tx

log = logger("cordata.engine")

#: The group of the relays to Redis, which runs no handler: see broker/redis/relay.py.
RELAY = "redis"
_LOOK_S = 0.05


class Group(NamedTuple):
    """A consumer group as a program declares it."""

    name: str
    #: Type of its events; "*": each type that some group reads from Redis (the relay).
    type: str
    #: Events of one key are handled one at a time, in their order.
    keyed: bool = False
    #: Which broker delivers its events.
    broker: Literal["store", "redis"] = "store"


class Registered(NamedTuple):
    """The result of `register`, for `catch_up`."""

    #: Groups that may lack events since they were registered first.
    fresh: Sequence[str] = ()
    #: Groups with another type than before: they may lack events after `position`.
    changed: Sequence[str] = ()
    #: That of the last event when they were registered.
    position: int = 0
    #: The transaction that registered them; "": the store has one writer at a time.
    xid: str = ""


async def register(store: Store, groups: Collection[Group]) -> Registered:
    """Insert or update the groups in the store; call `catch_up` with the result."""

    async def unit(tx: Tx) -> tuple[Registered, list[tuple[Group, str]]]:
        last = await tx.fetch_one("queue.last_position")
        assert last is not None
        fresh, changed = [], []
        for group in sorted(groups):
            before = await tx.fetch_one("queue.group", group=group.name)
            await tx.write(
                "queue.register",
                group=group.name,
                type=group.type,
                keyed=group.keyed,
                broker=group.broker,
                since=last["position"],
                now_us=tx.now_us,
            )
            if before is None:
                fresh.append(group.name)
                continue
            # One that moves to Redis lacks nothing: a transaction sees it there, or in the store.
            is_back = group.broker == "store" and before["broker"] != "store"
            if is_back or not before["caught_up"]:
                fresh.append(group.name)
            if bool(before["keyed"]) != group.keyed:
                await tx.write("queue.rekey", group=group.name, keyed=group.keyed)
            if before["type"] != group.type:
                changed.append((group, before["type"]))
        names = [group.name for group, _ in changed]
        return Registered(fresh, names, last["position"], last["xid"]), changed

    if not groups:
        return Registered()
    registered, changed = await store.run(unit)
    for group, before in changed:
        log.warning(
            "%s handles %s from now on, before it was %s; while programs of both run, the one that"
            " was started last decides",
            *(group.name, group.type, before),
        )
    return registered


async def catch_up(store: Store, registered: Registered) -> int:
    """Add the events of older transactions to new and changed groups. Returns how many messages."""
    if not registered.fresh and not registered.changed:
        return 0
    while registered.xid and await _older_writers(store, registered.xid):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)

    async def unit(tx: Tx) -> int:
        count = 0
        for group in registered.changed:
            after = registered.position
            count += await tx.execute("queue.catch_up", group=group, after=after, now_us=tx.now_us)
        for group in registered.fresh:
            count += await tx.execute("queue.catch_up", group=group, after=0, now_us=tx.now_us)
            await tx.write("queue.caught_up", group=group)
        if count:
            tx.notify(CLAIMABLE_TOPIC)
        return count

    return await store.run(unit)


async def _older_writers(store: Store, xid: str) -> int:
    row = await store.read(lambda tx: tx.fetch_one("queue.older_writers", xid=xid))
    return int(row["count"]) if row is not None else 0


async def mark_present(store: Store, groups: Collection[str]) -> None:
    """Store that a process runs these groups now, for the alert about absent groups."""
    names = json.dumps(list(groups))
    await store.run(lambda tx: tx.execute("queue.mark_present", groups=names, now_us=tx.now_us))
