"""What one exchange claims from the store's tables: live before backfill, keys in their order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from cordata.broker.message import Due, Message, Want
from cordata.core.outbox import BACKFILL, LIVE
from cordata.store import Row, Tx


class Hand:
    """What one exchange claims."""

    def __init__(self, tx: Tx, owner: str, claimed_until: int) -> None:
        self._tx = tx
        self._terms = {"owner": owner, "claimed_until": claimed_until}
        self.messages: list[Message] = []
        #: Whether a crash of the server must not take this claim back.
        self.lasts = False
        #: Groups of which fewer were to be had than were wanted.
        self.short: Sequence[str] = ()

    async def fill(self, wanted: Mapping[str, Want]) -> dict[str, Due]:
        """Claim for all groups, live before backfill. Returns when more is due."""
        now_us = self._tx.now_us
        due = await due_of(self._tx, wanted)
        emptied: list[str] = []
        rest: list[str] = []
        for group in due:
            want = wanted[group]
            if want.live and is_due(due[group].live, now_us):
                if await self._claim(group, LIVE, want.live, want.run):
                    emptied.append(group)
        due |= await self._look_again(emptied)
        if not any(is_due(one.live, now_us) for one in due.values()):
            for group in due:
                want = wanted[group]
                if want.backfill and is_due(due[group].backfill, now_us):
                    if await self._claim(group, BACKFILL, want.backfill, want.run):
                        rest.append(group)
            due |= await self._look_again(rest)
        self.short = (*emptied, *rest)
        return due

    async def _look_again(self, emptied: Sequence[str]) -> dict[str, Due]:
        """When the next is due in groups of which all that was due is claimed."""
        if not emptied:
            return {}
        return dict.fromkeys(emptied, Due()) | await due_of(self._tx, emptied)

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
        # Lost in a crash of the server, the key would be another's while we handle it.
        self.lasts = self.lasts or any(row["order_key"] is not None for row in claimed)
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


def is_due(at: int | None, now_us: int) -> bool:
    """Whether something can be claimed at once."""
    return at is not None and at <= now_us


async def due_of(tx: Tx, groups: Iterable[str]) -> dict[str, Due]:
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
