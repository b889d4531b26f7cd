"""Fallback to the store: messages that leave their stream, and those that it has already."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cordata.broker.message import Outcome
from cordata.broker.redis.state import StoredState, StreamGroup
from cordata.broker.redis.stream import Delivery, position_of
from cordata.broker.settle import STREAM_TOPIC
from cordata.core.delivery import Verdict
from cordata.store import Store, Tx


async def move_to_store(store: Store, outcomes: Sequence[tuple[Outcome, Delivery]]) -> None:
    """Write messages that were not handled: the store retries them, and they may be acknowledged.

    Nothing is written of those that the store has already, or that were handled after all: another
    process may have taken the message over and been faster. But the mark of what is `marked` is
    that of the very attempt that failed. Raises: StoreUnavailable.
    """

    async def unit(tx: Tx) -> None:
        await _restore(tx, [delivery for _, delivery in outcomes])
        rows = [_row(outcome, delivery, tx.now_us) for outcome, delivery in outcomes]
        await tx.write("redis.keep", messages=json.dumps(sorted(rows)))
        tx.notify(STREAM_TOPIC)

    await store.run(unit)


def _row(outcome: Outcome, delivery: Delivery, now_us: int) -> list[object]:
    """[outbox id, event id, group, state, attempts, next_at, history, dead_at, marked]"""
    dead = outcome.verdict is Verdict.DEAD
    return [
        delivery.outbox_id,
        delivery.message.event_id,
        outcome.group,
        "dead" if dead else "ready",
        outcome.attempts,
        now_us + outcome.delay_us,
        outcome.history or "",
        now_us if dead else 0,
        int(outcome.marked),
    ]


async def _restore(tx: Tx, deliveries: Sequence[Delivery]) -> None:
    """Put back outbox entries that were deleted though a group still had to handle them."""
    by_id = {delivery.outbox_id: delivery for delivery in deliveries}
    missing = await tx.fetch_all("redis.missing", ids=json.dumps(sorted(by_id)))
    for row in missing:
        delivery = by_id[row["id"]]
        message = delivery.message
        await tx.execute(
            "redis.restore",
            id=delivery.outbox_id,
            event_id=message.event_id,
            type=message.type,
            key=message.key,
            lane=message.lane,
            priority=delivery.priority,
            payload=message.payload,
            headers=message.headers,
            created_at=message.created_at,
            now_us=tx.now_us,
        )


async def split(
    store: Store, doubtful: Sequence[Delivery], state: StoredState
) -> tuple[list[Delivery], list[Delivery]]:
    """(To be handled, handled or in the store already) of what may have been delivered before.

    Raises: StoreUnavailable.
    """
    by_group: dict[str, list[Delivery]] = {}
    for delivery in doubtful:
        by_group.setdefault(delivery.message.group, []).append(delivery)

    async def unit(tx: Tx) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for group, own in by_group.items():
            entries = json.dumps([[one.outbox_id, one.message.event_id] for one in own])
            rows = await tx.fetch_all("redis.known", entries=entries, group=group)
            found.update((group, row["id"]) for row in rows)
        return found

    known = await store.read(unit)
    fresh: list[Delivery] = []
    done: list[Delivery] = []
    for delivery in doubtful:
        group = delivery.message.group
        committed = state.committed.get(StreamGroup(delivery.stream, group), 0)
        is_known = (group, delivery.outbox_id) in known
        is_done = is_known or position_of(delivery.entry_id) <= committed
        (done if is_done else fresh).append(delivery)
    return fresh, done


async def mark_handled(store: Store, events: Sequence[tuple[str, str]]) -> None:
    """Mark these (group, event id) as handled. Raises: StoreUnavailable."""
    by_group: dict[str, set[str]] = {}
    for group, event_id in events:
        by_group.setdefault(group, set()).add(event_id)

    async def unit(tx: Tx) -> None:
        for group, event_ids in sorted(by_group.items()):
            ids = json.dumps(sorted(event_ids))
            await tx.write("stream.mark_seen", event_ids=ids, group=group, now_us=tx.now_us)

    if by_group:
        await store.run(unit)
