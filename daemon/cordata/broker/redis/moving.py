"""Messages that leave their stream for the store, and those that are there already."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cordata.broker.message import Outcome
from cordata.broker.redis.hands import Taken
from cordata.broker.redis.naming import position_of
from cordata.broker.redis.registry import Knowledge, Mark
from cordata.broker.settle import STREAM_TOPIC
from cordata.core.delivery import Verdict
from cordata.store import Store, Tx


async def keep(store: Store, outcomes: Sequence[tuple[Outcome, Taken]]) -> None:
    """Write messages that were not handled: they go on from there, and may be acknowledged.

    Nothing is written of those that the store has already, or that were handled after all: whoever
    took this message over may have been faster. But what is `marked` has its mark of the very
    attempt that failed. Raises: StoreUnavailable.
    """

    async def unit(tx: Tx) -> None:
        await _restore(tx, [taken for _, taken in outcomes])
        rows = [_row(outcome, taken, tx.now_us) for outcome, taken in outcomes]
        await tx.write("redis.keep", messages=json.dumps(sorted(rows)))
        tx.notify(STREAM_TOPIC)

    await store.run(unit)


def _row(outcome: Outcome, taken: Taken, now_us: int) -> list[object]:
    """[outbox id, event id, group, state, attempts, next_at, history, dead_at, marked]"""
    dead = outcome.verdict is Verdict.DEAD
    return [
        taken.outbox_id,
        taken.message.event_id,
        outcome.group,
        "dead" if dead else "ready",
        outcome.attempts,
        now_us + outcome.delay_us,
        outcome.history or "",
        now_us if dead else 0,
        int(outcome.marked),
    ]


async def _restore(tx: Tx, all_taken: Sequence[Taken]) -> None:
    """Put back outbox entries that were deleted though a group still had to handle them."""
    by_id = {taken.outbox_id: taken for taken in all_taken}
    missing = await tx.fetch_all("redis.missing", ids=json.dumps(sorted(by_id)))
    for row in missing:
        taken = by_id[row["id"]]
        message = taken.message
        await tx.execute(
            "redis.restore",
            id=taken.outbox_id,
            event_id=message.event_id,
            type=message.type,
            key=message.key,
            lane=message.lane,
            priority=taken.priority,
            payload=message.payload,
            headers=message.headers,
            created_at=message.created_at,
            now_us=tx.now_us,
        )


async def split(
    store: Store, doubtful: Sequence[Taken], known: Knowledge
) -> tuple[list[Taken], list[Taken]]:
    """(To be handled, done or in the store already) of what may have been delivered before.

    Raises: StoreUnavailable.
    """
    by_group: dict[str, list[Taken]] = {}
    for taken in doubtful:
        by_group.setdefault(taken.message.group, []).append(taken)

    async def unit(tx: Tx) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for group, own in by_group.items():
            entries = json.dumps([[taken.outbox_id, taken.message.event_id] for taken in own])
            rows = await tx.fetch_all("redis.known", entries=entries, group=group)
            found.update((group, row["id"]) for row in rows)
        return found

    old = await store.read(unit)
    fresh: list[Taken] = []
    done: list[Taken] = []
    for taken in doubtful:
        group = taken.message.group
        handled_to = known.marks.get(Mark(taken.stream, group), 0)
        is_done = (group, taken.outbox_id) in old or position_of(taken.entry_id) <= handled_to
        (done if is_done else fresh).append(taken)
    return fresh, done


async def mark_seen(store: Store, events: Sequence[tuple[str, str]]) -> None:
    """Note that these (group, event id) are handled. Raises: StoreUnavailable."""
    by_group: dict[str, set[str]] = {}
    for group, event_id in events:
        by_group.setdefault(group, set()).add(event_id)

    async def unit(tx: Tx) -> None:
        for group, event_ids in sorted(by_group.items()):
            ids = json.dumps(sorted(event_ids))
            await tx.write("stream.mark_seen", event_ids=ids, group=group, now_us=tx.now_us)

    if by_group:
        await store.run(unit)
