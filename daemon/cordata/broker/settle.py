"""What was handled, as rows: marks, deletions, next attempts, dead letters, what is given back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from cordata.broker.key import go_on
from cordata.broker.message import Outcome
from cordata.core.delivery import Verdict
from cordata.store import Tx

#: Wakes the subscriptions: new messages, or some given back.
STREAM_TOPIC = "stream"


async def add_groups(tx: Tx, groups: Mapping[str, str], keyed: Collection[str]) -> dict[str, str]:
    """Make groups known (group -> event type); every process does it in one order.

    Returns those that were known for another type, with that type.
    """
    known = {row["group"]: row["type"] for row in await tx.fetch_all("stream.groups")}
    for group, type_ in sorted(groups.items()):
        await tx.write(
            "stream.register",
            group=group,
            type=type_,
            keyed=int(group in keyed),
            now_us=tx.now_us,
        )
    return {g: known[g] for g, type_ in groups.items() if known.get(g, type_) != type_}


async def refresh_groups(tx: Tx, groups: Collection[str]) -> None:
    """A program still knows these. Whatever it has them for, it changes nothing else of them: in a
    rolling upgrade a newer one may have registered them for another type.
    """
    for group in sorted(groups):
        await tx.write("stream.refresh", group=group, now_us=tx.now_us)


async def settle(tx: Tx, owner: str, outcomes: Sequence[Outcome]) -> int:
    """Write what became of messages that `owner` holds.

    Group by group, in one order: two that settle the same do not wait in a circle. Returns how many
    messages may be claimed now because an earlier one of their key is out of the way.
    """
    done: dict[str, list[Outcome]] = {}
    back: dict[str, list[int | str]] = {}
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
            if events := [outcome.event_id for outcome in handled if not outcome.marked]:
                ids = json.dumps(events)
                await tx.write("stream.mark_seen", event_ids=ids, group=group, now_us=tx.now_us)
            ids = json.dumps([outcome.id for outcome in handled])
            await tx.write("stream.done", ids=ids, group=group, owner=owner)
        for outcome in sorted(failed.get(group, ()), key=attrgetter("id")):
            await _settle_failed(tx, owner, outcome)
        if untried := back.get(group):
            ids = json.dumps(untried)
            if await tx.execute("stream.give_back", ids=ids, group=group, owner=owner):
                tx.notify(STREAM_TOPIC)
    keys = [(o.group, o.order_key) for o in outcomes if o.order_key is not None]
    return await go_on(tx, keys) if keys else 0


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
