"""The outbox as the relay of a broker that is not the store sees it: claim, hand over, mark.

    async def unit(tx): return await claim(tx, ...)     # committed: the entries are this relay's
    (hand them to the broker)
    async def unit(tx): await mark_published(tx, ids)   # and put_back() what it refused

Every function is for a unit of the store. A relay that dies between any two steps loses nothing:
its claims expire, or are taken over at once when its process is known dead, and the entries are
handed over again under the same event id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cordata.core.claim import claimed_until
from cordata.core.outbox import BACKFILL, Place, in_key_order
from cordata.store import OUTBOX_TOPIC, Row, Tx


class Entry(NamedTuple):
    """An outbox entry in a relay's hands. Payload and headers are JSON text."""

    id: int
    event_id: str
    type: str
    key: str | None
    lane: str
    priority: int
    payload: str
    headers: str
    #: Refusals by the broker so far.
    attempts: int
    next_at: int
    #: Microseconds since the epoch: when the transaction that wrote it ran.
    created_at: int
    #: None: no broker beside the store has it. 0: one may have it, for a relay went away with it.
    position: int | None = None


class Refusal(NamedTuple):
    """An entry that the broker did not take, though it took others."""

    id: int
    #: Wall time of the store in microseconds: when to try again.
    next_at: int
    #: For the operator.
    error: str


async def claim(tx: Tx, *, owner: str, limit: int, claim_timeout_us: int) -> list[Entry]:
    """Claim what is due: live before backfill, most urgent first, then the oldest first.

    What goes before an entry in its key (see `App.on(key=True)`) comes with it, however low its
    priority, so up to twice `limit` entries may come: fan out to groups in key order in this very
    unit, and no event is overtaken by a later one of its key.
    """
    terms = {"owner": owner, "claimed_until": claimed_until(tx.now_us, timeout_us=claim_timeout_us)}
    rows = await tx.fetch_all("outbox.claim", now_us=tx.now_us, limit=limit, **terms)
    ahead = await look_ahead(tx, rows, limit=limit)
    if ahead:
        ids = json.dumps([place.id for place in ahead])
        more = await tx.fetch_all("outbox.claim_these", ids=ids, **terms)
        held = {row["id"] for row in more}
        go = in_key_order(list(map(_place, rows)), ahead, held, limit=limit)
        rows += more
        if wait := [row["id"] for row in rows if row["id"] not in go]:
            await tx.execute("outbox.give_back", ids=json.dumps(wait), owner=owner)
        rows = [row for row in rows if row["id"] in go]
    return sorted(map(_entry, rows), key=_urgency)


async def look_ahead(tx: Tx, rows: Sequence[Row], *, limit: int) -> list[Place]:
    """What is due of the keys of these entries, was written before them and is not among them."""
    if all(row["key"] is None for row in rows):
        return []
    ids = json.dumps([row["id"] for row in rows])
    found = await tx.fetch_all("outbox.ahead", ids=ids, now_us=tx.now_us, limit=limit)
    return [_place(row) for row in found]


class Found(NamedTuple):
    """What is due."""

    ids: list[int]
    #: Some group wants the order of their keys.
    ordered: bool
    #: The look came to the backfill: what is live and due is among them, all of it.
    backfill: bool
    #: Type -> how many groups want its events.
    types: dict[str, int]
    #: Of outbox.due, most urgent first: those of `ids` that are not here were behind others.
    rows: Sequence[Row]


async def due(tx: Tx, *, limit: int, whole: bool = False) -> Found:
    """What `claim` would take; on PostgreSQL locked until the unit ends.

    `whole`: with what handlers need of an entry that was in no broker's hands yet.
    """
    rows = await tx.fetch_all("outbox.due", now_us=tx.now_us, limit=limit, whole=whole)
    ahead = await look_ahead(tx, rows, limit=limit)
    types = {row["type"]: row["groups"] for row in rows}
    ordered = any(row["key"] is not None for row in rows)
    backfill = any(row["lane"] == BACKFILL for row in rows)
    if not ahead:
        return Found([row["id"] for row in rows], ordered, backfill, types, rows)
    taken = await tx.fetch_all("outbox.take", ids=json.dumps([place.id for place in ahead]))
    held = {row["id"] for row in taken}
    go = in_key_order(list(map(_place, rows)), ahead, held, limit=limit)
    rows = [row for row in rows if row["id"] in go]
    return Found(sorted(go), ordered, backfill, types, rows)


async def mark_published(tx: Tx, ids: Sequence[int]) -> int:
    """The broker has them, whoever holds them by now. Returns how many were not marked before."""
    return await tx.execute("outbox.mark_published", ids=json.dumps(ids), now_us=tx.now_us)


async def put_back(
    tx: Tx, refusals: Iterable[Refusal], *, owner: str, max_attempts: int
) -> list[str]:
    """What the broker refused: again at its time, or dead after `max_attempts` refusals.

    Returns the event ids of those that are dead now.
    """
    rows = await tx.fetch_all(
        "outbox.again",
        entries=json.dumps([list(refusal) for refusal in refusals]),
        owner=owner,
        max_attempts=max_attempts,
    )
    return [row["event_id"] for row in rows if row["state"] == "dead"]


async def give_back(tx: Tx, ids: Sequence[int], *, owner: str) -> int:
    """Entries that were not tried, or could not be because the broker is away. Others may go on."""
    count = await tx.execute("outbox.give_back", ids=json.dumps(ids), owner=owner)
    if count:
        tx.notify(OUTBOX_TOPIC)
    return count


async def owners(tx: Tx) -> dict[str, int]:
    """Every process that holds entries -> when the first of its claims expires."""
    return {row["owner"]: row["claimed_until"] for row in await tx.fetch_all("outbox.owners")}


async def take_back(tx: Tx, dead: Iterable[str]) -> int:
    """Free what has expired, and all that the processes known `dead` hold. Returns how many."""
    count = await tx.execute("outbox.reclaim", now_us=tx.now_us, dead=json.dumps(sorted(dead)))
    if count:
        tx.notify(OUTBOX_TOPIC)
    return count


def _place(row: Row) -> Place:
    return Place(row["id"], row["type"], row["key"])


def _entry(row: Row) -> Entry:
    return Entry(**dict(row))


def _urgency(entry: Entry) -> tuple[bool, int, int, int]:
    return entry.lane == BACKFILL, -entry.priority, entry.next_at, entry.id
