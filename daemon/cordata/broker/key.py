"""Key order: of each key one message is ready, the first; see stream.sql for how that is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable

from cordata.store import Tx


async def take_places(tx: Tx, entry_ids: str) -> int:
    """Messages of these entries (JSON list of ids) were just written: put them where they belong.

    One that comes late stands before later ones of its key that nobody has claimed yet. Returns how
    many became ready.
    """
    rows = await tx.fetch_all("stream.keys_of", ids=entry_ids)
    pairs = [(row["group"], row["key"]) for row in rows]
    return await put_in_order(tx, pairs, not_before=0) if pairs else 0


async def put_in_order(tx: Tx, pairs: Iterable[tuple[str, str]], *, not_before: int) -> int:
    """As `go_on`, when earlier ones may have come."""
    as_json = json.dumps(sorted(set(pairs)))
    await tx.fetch_all("stream.lock_keys", pairs=as_json)
    await tx.write("stream.step_back", pairs=as_json)
    return await tx.execute("stream.promote", pairs=as_json, not_before=not_before)


async def go_on(tx: Tx, pairs: Iterable[tuple[str, str]]) -> int:
    """Messages of these (group, key) left the hands of their owner: the next ones may be claimed.

    They queue up behind the other keys, so a hot key has its turn and no more. Returns how many.
    """
    as_json = json.dumps(sorted(set(pairs)))
    await tx.fetch_all("stream.lock_keys", pairs=as_json)
    return await tx.execute("stream.promote", pairs=as_json, not_before=tx.now_us)
