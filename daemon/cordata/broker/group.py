"""Consumer groups: registered by the primary, and by each worker before it is ready.

Publishing fans out to the groups that its transaction sees. A transaction that began before a group
was registered, or changed, may not see it: when all of these have ended, the worker adds their
events (`catch_up`). Until a worker has done so, the group's row says that it may lack some.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from functools import partial
from typing import Literal, NamedTuple

from cordata.log import logger
from cordata.store import CLAIMABLE_TOPIC, Row, Store, Tx

log = logger("cordata.engine")

#: The group of the relays to Redis, which runs no handler: see broker/redis/relay.py.
RELAY = "redis"
#: Between looks for older transactions: at first, and at most.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 2.0
#: Positions that one unit looks through: PostgreSQL takes 10 us an event, and `[store]
#: write_timeout_s` limits a statement.
_PAGE = 20_000


class Group(NamedTuple):
    """A consumer group as a program declares it."""

    name: str
    #: Type of its events; "*": each type that some group reads from Redis (the relay).
    type: str
    #: Events of one key are handled one at a time, in their order.
    keyed: bool = False
    #: Which broker delivers its events.
    broker: Literal["store", "redis"] = "store"


#: Groups that may lack events: name -> the position after which these are, and `registered_at` of
#: the group.
Lacking = Mapping[str, tuple[int, int]]


async def register(store: Store, groups: Collection[Group]) -> Lacking:
    """Insert or update the groups in the store; a worker calls `catch_up` with the result."""

    async def unit(tx: Tx) -> tuple[Lacking, list[tuple[Group, str]]]:
        last = await _last_position(tx)
        changed = []
        for group in sorted(groups):
            before = await tx.fetch_one("queue.group", group=group.name)
            await tx.write(
                "queue.register",
                group=group.name,
                type=group.type,
                keyed=group.keyed,
                broker=group.broker,
                position=last["position"],
                now_us=tx.now_us,
            )
            if before is None:
                continue
            if bool(before["keyed"]) != group.keyed:
                await tx.write("queue.rekey", group=group.name, keyed=group.keyed)
            if before["type"] != group.type:
                changed.append((group, before["type"]))
        names = json.dumps([group.name for group in groups])
        rows = await tx.fetch_all("queue.lacking", groups=names)
        lacking = {row["group"]: (row["lacks_after"], row["registered_at"]) for row in rows}
        return lacking, changed

    if not groups:
        return {}
    lacking, changed = await store.run(unit)
    for group, before in changed:
        log.warning(
            "%s handles %s from now on, before it was %s; while programs of both run, the one that"
            " was started last decides",
            *(group.name, group.type, before),
        )
    return lacking


async def catch_up(store: Store, lacking: Lacking) -> int:
    """Add the events of older transactions to the groups that lack them. Returns how many messages.

    It waits for the end of these transactions: for hours, if a backup is one of them.
    """
    if not lacking:
        return 0
    # Twice: a statement that began before the registration may get its transaction's id, by which
    # it is known when its snapshot is gone, only after the first `xid`. "": one writer at a time.
    for _ in range(2):
        xid, pause_s = (await store.run(_last_position))["xid"], _FIRST_LOOK_S
        while xid and await _older_writers(store, xid):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    last, count = (await store.run(_last_position))["position"], 0
    for group, (after, at) in sorted(lacking.items()):
        for begin in range(after, last, _PAGE):
            count += await store.run(partial(_add_page, group=group, after=begin))
        await store.run(partial(_note_caught_up, group=group, registered_at=at))
    return count


async def _last_position(tx: Tx) -> Row:
    row = await tx.fetch_one("queue.last_position")
    assert row is not None
    return row


async def _add_page(tx: Tx, *, group: str, after: int) -> int:
    where = {"after": after, "until": after + _PAGE}
    count = await tx.execute("queue.catch_up", group=group, **where, now_us=tx.now_us)
    if count:
        tx.notify(CLAIMABLE_TOPIC)
    return count


async def _note_caught_up(tx: Tx, *, group: str, registered_at: int) -> None:
    await tx.write("queue.caught_up", group=group, registered_at=registered_at)


async def _older_writers(store: Store, xid: str) -> int:
    row = await store.read(lambda tx: tx.fetch_one("queue.older_writers", xid=xid))
    return int(row["count"]) if row is not None else 0


async def mark_present(store: Store, groups: Collection[str]) -> None:
    """Store that a process runs these groups now, for the alert about absent groups."""
    names = json.dumps(list(groups))
    await store.run(lambda tx: tx.execute("queue.mark_present", groups=names, now_us=tx.now_us))
