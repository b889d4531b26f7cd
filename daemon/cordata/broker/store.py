"""The broker on the store's own tables: publish, claim and acknowledge are units of the store.

An event is fanned out when the relay publishes it: one message for each group that is registered
for its type at that moment, in the transaction that marks it published, so exactly once. A group
registered later gets what is published from then on. An event whose type has no group is published
to nobody; it stays in the outbox until retention, and can be replayed until then.

In the outbox an entry goes from pending to published and through no other state: those (processing,
failed, dead; owner, claimed_until) are for a broker that is not the store.

A group is known from when the first worker with it starts until retention has passed since the
last one did; then it is forgotten, with what it never handled.

A claim is owned by one process (see owner.py) and renewed while that lives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cordata.broker import claim, key
from cordata.broker.contract import Broker
from cordata.broker.message import Claimed, Depth, Due, Held, Message, Outcome, Relayed, Want
from cordata.broker.settle import STREAM_TOPIC as STREAM_TOPIC
from cordata.broker.settle import add_groups, settle
from cordata.core.claim import claimed_until, is_expired
from cordata.core.outbox import BACKFILL, LIVE, not_at_once
from cordata.store import OUTBOX_TOPIC, Fence, Row, Store, Tx

#: How long one wait on the store lasts; only bounds what a lost wake-up could hide.
_WAIT_S = 3600.0


class StoreBroker(Broker):
    """Streams, consumer groups, claims and dead letters in the tables of 0002_stream."""

    outbox_topic = OUTBOX_TOPIC
    stream_topic = STREAM_TOPIC

    def __init__(self, store: Store, *, claim_timeout_s: float) -> None:
        self._store = store
        self._claim_timeout_us = int(claim_timeout_s * 1_000_000)

    async def register(
        self,
        groups: Mapping[str, str],
        *,
        keyed: Collection[str] = (),
        fence: Fence | None = None,
    ) -> None:
        """Make groups known (group -> event type), so that they get what is published from now.

        Those in `keyed` handle the events of one key one at a time, in their order.
        """

        async def unit(tx: Tx) -> None:
            await add_groups(tx, groups, keyed)

        if groups:
            await self._store.run(unit, fence=fence)
        for group in sorted(keyed):
            await self._rescue(group, fence)

    async def _rescue(self, group: str, fence: Fence | None) -> None:
        """Messages that wait for nobody may go on: of a group that was half forgotten, say."""
        rows = await self._store.read(lambda tx: tx.fetch_all("stream.stranded", group=group))
        pairs = [(group, row["key"]) for row in rows]
        if pairs:
            await self._store.run(lambda tx: key.put_in_order(tx, pairs), fence=fence)

    async def relay(self, limit: int) -> Relayed:
        """Publish due outbox entries, `limit` at most: most urgent first, then oldest first."""

        async def unit(tx: Tx) -> Relayed:
            ids, ordered, backfill = await claim.due(tx, limit=limit)
            if ids:
                as_json = json.dumps(ids)
                if await tx.execute("stream.fan_out", ids=as_json, now_us=tx.now_us):
                    tx.notify(STREAM_TOPIC)
                if ordered:
                    await key.take_places(tx, as_json)
                await tx.write("outbox.mark_published", ids=as_json, now_us=tx.now_us)
            # After a full batch the next pass looks anyway.
            full = len(ids) >= limit
            next_at = tx.now_us if full else not_at_once(await _outbox_due_at(tx), tx.now_us)
            return Relayed(published=len(ids), next_at=next_at, backfill=backfill)

        return await self._store.run(unit)

    async def outbox_due_at(self) -> int | None:
        """When the next outbox entry is due, without waiting for writers; None: it is empty."""

        async def unit(tx: Tx) -> int | None:
            return await _outbox_due_at(tx)

        return await self._store.read(unit)

    async def due_at(self, groups: Iterable[str]) -> dict[str, Due]:
        """Groups that have messages -> when the next is due, without waiting for writers."""
        names = tuple(groups)

        async def unit(tx: Tx) -> dict[str, Due]:
            return await _due(tx, names)

        return await self._store.read(unit)

    async def exchange(
        self, owner: str, outcomes: Sequence[Outcome], wanted: Mapping[str, Want]
    ) -> Claimed:
        """Settle what was handled and claim more, in one unit.

        Outcomes of messages that `owner` no longer holds change nothing, but for their seen-mark.
        Backfill is claimed while none of the wanted groups has anything live that is due.
        """

        async def unit(tx: Tx) -> Claimed:
            freed = await settle(tx, owner, outcomes)
            if not wanted:
                if freed:
                    tx.notify(STREAM_TOPIC)
                return Claimed(messages=(), next_at={})
            hand = _Hand(tx, owner, self._until(tx))
            next_at = await hand.fill(wanted)
            if freed and any(_is_due(at, tx.now_us) for due in next_at.values() for at in due):
                tx.notify(STREAM_TOPIC)  # for those who looked before and found them in our hands
            return Claimed(messages=hand.messages, next_at=next_at)

        return await self._store.run(unit)

    def _until(self, tx: Tx) -> int:
        return claimed_until(tx.now_us, timeout_us=self._claim_timeout_us)

    async def renew(self, owner: str) -> None:
        """Extend all claims of a living process."""

        async def unit(tx: Tx) -> None:
            await tx.execute("stream.renew", owner=owner, claimed_until=self._until(tx))

        await self._store.run(unit)

    async def listen(self, owner: str, groups: Collection[str], ring: Callable[[], None]) -> None:
        """Call `ring` whenever there may be something new; until cancelled."""
        while True:
            if await self._store.wait(STREAM_TOPIC, _WAIT_S):
                ring()

    async def owners(self, dead: Collection[str] = ()) -> dict[str, bool]:
        """Every process that holds messages -> whether some of its claims have expired."""

        async def unit(tx: Tx) -> dict[str, bool]:
            rows = await tx.fetch_all("stream.owners")
            return {row["owner"]: is_expired(row["claimed_until"], tx.now_us) for row in rows}

        return await self._store.read(unit)

    async def held(self, owner: str, *, limit: int) -> list[Held]:
        """Messages in the hands of a process, `limit` at most."""

        async def unit(tx: Tx) -> list[Held]:
            rows = await tx.fetch_all("stream.held", owner=owner, limit=limit)
            return [
                Held(
                    id=row["outbox_id"],
                    group=row["group"],
                    order_key=row["key"],
                    attempts=row["attempts"],
                    history=row["history"],
                    expired=is_expired(row["claimed_until"], tx.now_us),
                )
                for row in rows
            ]

        return await self._store.read(unit)

    async def depth(self, groups: Iterable[str]) -> Depth:
        """What is left to do in the outbox and for the groups."""
        names = tuple(groups)

        async def unit(tx: Tx) -> Depth:
            row = await tx.fetch_one("stream.depth")
            assert row is not None
            outbox_at = await _outbox_due_at(tx)
            return Depth(
                outbox=outbox_at is not None and outbox_at <= tx.now_us,
                ready=bool(await _due(tx, names)),
                claimed=bool(row["claimed"]),
                dead=row["dead"],
            )

        return await self._store.read(unit)


class _Hand:
    """What one exchange claims."""

    def __init__(self, tx: Tx, owner: str, claimed_until: int) -> None:
        self._tx = tx
        self._terms = {"owner": owner, "claimed_until": claimed_until}
        self.messages: list[Message] = []

    async def fill(self, wanted: Mapping[str, Want]) -> dict[str, Due]:
        """Claim for all groups, live before backfill. Returns when more is due."""
        now_us = self._tx.now_us
        due = await _due(self._tx, wanted)
        emptied: list[str] = []
        rest: list[str] = []
        for group in due:
            want = wanted[group]
            if want.live and _is_due(due[group].live, now_us):
                if await self._claim(group, LIVE, want.live, want.run):
                    emptied.append(group)
        due |= await self._look_again(emptied)
        if not any(_is_due(one.live, now_us) for one in due.values()):
            for group in due:
                want = wanted[group]
                if want.backfill and _is_due(due[group].backfill, now_us):
                    if await self._claim(group, BACKFILL, want.backfill, want.run):
                        rest.append(group)
            due |= await self._look_again(rest)
        short = (*emptied, *rest)
        return due | {g: Due(*(not_at_once(at, now_us) for at in due[g])) for g in short}

    async def _look_again(self, emptied: Sequence[str]) -> dict[str, Due]:
        """When the next is due in groups of which all that was due is claimed."""
        if not emptied:
            return {}
        return dict.fromkeys(emptied, Due()) | await _due(self._tx, emptied)

    async def _claim(self, group: str, lane: str, limit: int, run: int) -> bool:
        """Returns whether that was all; after a full claim the next exchange looks anyway."""
        rows = await self._tx.fetch_all(
            "stream.due", group=group, lane=lane, now_us=self._tx.now_us, limit=limit
        )
        if not rows:
            return True
        followers: dict[str, list[Row]] = {}
        if run > 1:
            followers = await self._followers(group, rows, run - 1, limit)
        claimed: list[Row] = []
        for row in rows:
            claimed.append(row)
            claimed += followers.get(row["order_key"], ())
        ids = json.dumps([row["outbox_id"] for row in claimed])
        await self._tx.write("stream.claim", ids=ids, group=group, **self._terms)
        self.messages += [_message(row, group, lane) for row in claimed]
        return len(rows) < limit

    async def _followers(
        self, group: str, rows: Sequence[Row], run: int, limit: int
    ) -> dict[str, list[Row]]:
        """What comes after these of their keys, `limit` in all: key -> messages in their order."""
        heads = [(k, row["outbox_id"]) for row in rows if (k := row["order_key"]) is not None]
        if not heads:
            return {}
        found: dict[str, list[Row]] = {}
        for row in await self._tx.fetch_all(
            "stream.followers", group=group, heads=json.dumps(heads), run=run, limit=limit
        ):
            found.setdefault(row["order_key"], []).append(row)
        for one in found.values():
            one.sort(key=lambda row: int(row["outbox_id"]))
        return found


def _is_due(at: int | None, now_us: int) -> bool:
    return at is not None and at <= now_us


async def _outbox_due_at(tx: Tx) -> int | None:
    levels = await tx.fetch_all("outbox.levels")
    return min((level["next_at"] for level in levels), default=None)


async def _due(tx: Tx, groups: Iterable[str]) -> dict[str, Due]:
    """Groups that have messages which can be claimed, now or later."""
    found: dict[str, dict[str, int]] = {}
    for level in await tx.fetch_all("stream.levels", groups=json.dumps(list(groups))):
        lanes = found.setdefault(level["group"], {})
        lanes[level["lane"]] = min(level["next_at"], lanes.get(level["lane"], level["next_at"]))
    return {group: Due(lanes.get(LIVE), lanes.get(BACKFILL)) for group, lanes in found.items()}


def _message(row: Row, group: str, lane: str) -> Message:
    return Message(
        id=row["outbox_id"],
        group=group,
        event_id=row["event_id"],
        type=row["type"],
        key=row["key"],
        payload=row["payload"],
        headers=row["headers"],
        created_at=row["created_at"],
        attempts=row["attempts"],
        history=row["history"],
        seen=bool(row["seen"]),
        lane=lane,
        order_key=row["order_key"],
    )
