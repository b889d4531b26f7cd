"""Key order: of each key one message is ready, the first; see stream.sql for how that is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from cordata.store import Tx

#: Group and key.
Pair = tuple[str, str]


async def take_places(tx: Tx, entry_ids: str) -> None:
    """Messages of these entries (JSON list of ids) were just written: put them where they belong.

    One that comes late stands before later ones of its key that nobody has claimed yet.
    """
    rows = await tx.fetch_all("stream.keys_of", ids=entry_ids)
    await put_in_order(tx, [(row["group"], row["key"]) for row in rows])


async def put_in_order(tx: Tx, pairs: Iterable[Pair]) -> None:
    """As `go_on`, when earlier ones may have come; a key keeps its place among the others."""
    for group, keys in _by_group(pairs):
        await tx.fetch_all("stream.lock_keys", group=group, keys=keys)
        await tx.write("stream.step_back", group=group, keys=keys)
        await tx.write("stream.promote", group=group, keys=keys, not_before=0)


async def go_on(tx: Tx, pairs: Iterable[Pair]) -> int:
    """Messages of these keys left the hands of their owner: the next ones may be claimed.

    They queue up behind the other keys, so a hot key has its turn and no more. Returns how many.
    """
    count = 0
    for group, keys in _by_group(pairs):
        await tx.fetch_all("stream.lock_keys", group=group, keys=keys)
        count += await tx.execute("stream.promote", group=group, keys=keys, not_before=tx.now_us)
    return count


def _by_group(pairs: Iterable[Pair]) -> Iterator[tuple[str, str]]:
    """Each group with its keys as a JSON list, in one order: nobody waits in a circle."""
    groups: dict[str, set[str]] = {}
    for group, key in pairs:
        groups.setdefault(group, set()).add(key)
    for group, keys in sorted(groups.items()):
        yield group, json.dumps(sorted(keys))
