"""The short way: what a process publishes goes into its own hands, in the unit that publishes it.

    outbox --publish--> message, ready --claim--> message, claimed     the usual way, two units
    outbox --publish----------------------------> message, claimed     where the relay's own process
                                                                       has places free for it

Only for live messages of groups without key order that have left nothing behind: so nothing that
waits is overtaken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from cordata.broker.claim import Found
from cordata.broker.message import Message
from cordata.broker.stray import Mark
from cordata.core.outbox import LIVE
from cordata.store import Row, Tx


class Taker(NamedTuple):
    """Whose hands these are."""

    owner: str
    #: By group how many live messages may be brought; groups that want none are missing. There is
    #: room for them until `receive` is called.
    expect: Callable[[], Mapping[str, int]]
    #: Takes what was brought, perhaps nothing. What it cannot handle any more it gives back.
    receive: Callable[[Sequence[Message]], None]
    #: Group and id of all it has, until they are settled.
    known: Callable[[], Collection[Mark]]


class Direct(NamedTuple):
    """What goes the short way."""

    #: Outbox id -> its row.
    mine: Mapping[int, Row]
    #: Groups that get all of `mine` whose type is theirs.
    groups: frozenset[str]


def choose(found: Found, types: Mapping[str, str], room: Mapping[str, int]) -> Direct:
    """The most urgent entries, while there is room in all groups of this process that want them.

    `types`: group -> type, of the groups registered here.
    """
    by_type: dict[str, list[str]] = {}
    for group in room:
        by_type.setdefault(types[group], []).append(group)
    left = Counter(room)
    mine: dict[int, Row] = {}
    for row in found.rows:
        groups = by_type.get(row["type"])
        if not groups or row["lane"] != LIVE or row["payload"] is None:
            continue
        if all(left[group] > 0 for group in groups):
            left.subtract(groups)
            mine[row["id"]] = row
    return Direct(mine, frozenset(g for groups in by_type.values() for g in groups))


async def fan_out(
    tx: Tx, ids: str, direct: Direct, *, owner: str, claimed_until: int
) -> tuple[list[Message], bool]:
    """Publish entries (JSON list of ids): what is `owner`'s now, and whether there is more."""
    rows = await tx.fetch_all(
        "stream.fan_out_here",
        ids=ids,
        mine=json.dumps(list(direct.mine)),
        here=json.dumps(sorted(direct.groups)),
        owner=owner,
        claimed_until=claimed_until,
        now_us=tx.now_us,
    )
    own = [row for row in rows if row["state"] == "claimed"]
    place = {id: n for n, id in enumerate(direct.mine)}
    # In the order of urgency, and those of one group together, as every claim brings them.
    own.sort(key=lambda row: (row["group"], place[row["outbox_id"]]))
    messages = [_message(direct.mine[row["outbox_id"]], row["group"]) for row in own]
    return messages, len(own) < len(rows)


def _message(row: Row, group: str) -> Message:
    return Message(
        id=row["id"],
        group=group,
        event_id=row["event_id"],
        type=row["type"],
        key=row["event_key"],
        payload=row["payload"],
        headers=row["headers"],
        created_at=row["created_at"],
        attempts=0,
        history=None,
        seen=False,
    )
