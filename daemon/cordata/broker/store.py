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
from collections.abc import Iterable, Mapping, Sequence

from cordata.broker import claim
from cordata.broker.message import Claimed, Depth, Held, Message, Outcome, Relayed
from cordata.core.delivery import Verdict
from cordata.store import OUTBOX_TOPIC, Fence, Row, Store, Tx

#: Wakes the subscriptions: new messages, or some given back.
STREAM_TOPIC = "stream"


class StoreBroker:
    """Streams, consumer groups, claims and dead letters in the tables of 0002_stream."""

    outbox_topic = OUTBOX_TOPIC
    stream_topic = STREAM_TOPIC

    def __init__(self, store: Store, *, claim_timeout_s: float) -> None:
        self._store = store
        self._claim_timeout_us = int(claim_timeout_s * 1_000_000)

    async def register(self, groups: Mapping[str, str], *, fence: Fence | None = None) -> None:
        """Make groups known (group -> event type), so that they get what is published from now."""

        async def unit(tx: Tx) -> None:
            for group, type_ in sorted(groups.items()):  # every process in one order
                await tx.write("stream.register", group=group, type=type_, now_us=tx.now_us)

        if groups:
            await self._store.run(unit, fence=fence)

    async def relay(self, limit: int) -> Relayed:
        """Publish due outbox entries, `limit` at most: most urgent first, then oldest first."""

        async def unit(tx: Tx) -> Relayed:
            ids = await claim.due(tx, limit=limit)
            if ids:
                as_json = json.dumps(ids)
                if await tx.execute("stream.fan_out", ids=as_json, now_us=tx.now_us):
                    tx.notify(STREAM_TOPIC)
                await tx.write("outbox.mark_published", ids=as_json, now_us=tx.now_us)
            # After a full batch the next pass looks anyway.
            full = len(ids) >= limit
            next_at = tx.now_us if full else await _next_at(tx, "outbox.levels")
            return Relayed(published=len(ids), next_at=next_at)

        return await self._store.run(unit)

    async def outbox_due_at(self) -> int | None:
        """When the next outbox entry is due, without waiting for writers; None: it is empty."""

        async def unit(tx: Tx) -> int | None:
            return await _next_at(tx, "outbox.levels")

        return await self._store.read(unit)

    async def due_at(self, groups: Iterable[str]) -> dict[str, int]:
        """Groups that have messages -> when the next is due, without waiting for writers."""
        names = tuple(groups)

        async def unit(tx: Tx) -> dict[str, int]:
            return await _next_of(tx, names)

        return await self._store.read(unit)

    async def exchange(
        self, owner: str, outcomes: Sequence[Outcome], wanted: Mapping[str, int]
    ) -> Claimed:
        """Settle what was handled and claim more (group -> number), in one unit.

        Outcomes of messages that `owner` no longer holds change nothing, but for their seen-mark.
        """

        async def unit(tx: Tx) -> Claimed:
            await _settle(tx, owner, outcomes)
            messages: list[Message] = []
            next_at: dict[str, int] = {}
            for group, limit in wanted.items():
                claimed = await self._claim(tx, owner, group, limit)
                messages += claimed
                if len(claimed) >= limit:  # what is left is seen by the next exchange
                    next_at[group] = tx.now_us
            next_at |= await _next_of(tx, wanted.keys() - next_at.keys())
            return Claimed(messages=messages, next_at=next_at)

        return await self._store.run(unit)

    async def _claim(self, tx: Tx, owner: str, group: str, limit: int) -> list[Message]:
        rows: list[Row] = []
        for level in await tx.fetch_all("stream.levels", group=group):
            if level["next_at"] > tx.now_us:
                continue
            rows += await tx.fetch_all(
                "stream.due",
                group=group,
                priority=level["priority"],
                now_us=tx.now_us,
                limit=limit - len(rows),
            )
            if len(rows) >= limit:
                break
        if rows:
            await tx.write(
                "stream.claim",
                ids=json.dumps([row["outbox_id"] for row in rows]),
                group=group,
                owner=owner,
                claimed_until=tx.now_us + self._claim_timeout_us,
            )
        return [_message(row, group) for row in rows]

    async def renew(self, owner: str) -> None:
        """Extend all claims of a living process."""

        async def unit(tx: Tx) -> None:
            await tx.execute(
                "stream.renew", owner=owner, claimed_until=tx.now_us + self._claim_timeout_us
            )

        await self._store.run(unit)

    async def owners(self) -> dict[str, bool]:
        """Every process that holds messages -> whether some of its claims have expired."""

        async def unit(tx: Tx) -> dict[str, bool]:
            rows = await tx.fetch_all("stream.owners")
            return {row["owner"]: row["claimed_until"] < tx.now_us for row in rows}

        return await self._store.read(unit)

    async def held(self, owner: str, *, limit: int) -> list[Held]:
        """Messages in the hands of a process, `limit` at most."""

        async def unit(tx: Tx) -> list[Held]:
            rows = await tx.fetch_all("stream.held", owner=owner, limit=limit)
            return [
                Held(
                    id=row["outbox_id"],
                    group=row["group"],
                    attempts=row["attempts"],
                    history=row["history"],
                    expired=row["claimed_until"] < tx.now_us,
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
            outbox_at = await _next_at(tx, "outbox.levels")
            return Depth(
                outbox=outbox_at is not None and outbox_at <= tx.now_us,
                ready=bool(await _next_of(tx, names)),
                claimed=bool(row["claimed"]),
                dead=row["dead"],
            )

        return await self._store.read(unit)


async def _next_at(tx: Tx, query: str, **params: object) -> int | None:
    levels = await tx.fetch_all(query, **params)
    return min((level["next_at"] for level in levels), default=None)


async def _next_of(tx: Tx, groups: Iterable[str]) -> dict[str, int]:
    nexts = {group: await _next_at(tx, "stream.levels", group=group) for group in groups}
    return {group: at for group, at in nexts.items() if at is not None}


async def _settle(tx: Tx, owner: str, outcomes: Sequence[Outcome]) -> None:
    """Group by group, in one order: two that settle the same do not wait in a circle."""
    done: dict[str, list[Outcome]] = {}
    back: dict[str, list[int]] = {}
    failed: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict is Verdict.DONE:
            done.setdefault(outcome.group, []).append(outcome)
        elif outcome.verdict is Verdict.BACK:
            back.setdefault(outcome.group, []).append(outcome.id)
        else:
            failed.setdefault(outcome.group, []).append(outcome)
    for group in sorted(done.keys() | back.keys() | failed.keys()):
        if handled := done.get(group):
            events = json.dumps([outcome.event_id for outcome in handled])
            await tx.write("stream.mark_seen", event_ids=events, group=group, now_us=tx.now_us)
            ids = json.dumps([outcome.id for outcome in handled])
            await tx.write("stream.done", ids=ids, group=group, owner=owner)
        for outcome in sorted(failed.get(group, ()), key=lambda outcome: outcome.id):
            await _settle_failed(tx, owner, outcome)
        if untried := back.get(group):
            ids = json.dumps(untried)
            if await tx.execute("stream.give_back", ids=ids, group=group, owner=owner):
                tx.notify(STREAM_TOPIC)


async def _settle_failed(tx: Tx, owner: str, outcome: Outcome) -> None:
    row = {
        "id": outcome.id,
        "group": outcome.group,
        "owner": owner,
        "attempts": outcome.attempts,
        "history": outcome.history,
    }
    if outcome.verdict is Verdict.DEAD:
        await tx.write("stream.bury", **row, now_us=tx.now_us)
    else:
        await tx.write("stream.again", **row, next_at=tx.now_us + outcome.delay_us)


def _message(row: Row, group: str) -> Message:
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
    )
