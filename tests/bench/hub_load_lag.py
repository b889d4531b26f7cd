"""Whether the hub has done all that its answers promised: a fast answer may leave work behind."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

_PATIENCE_S = 60.0
#: Ids begin with their time: a range of the primary key.
_UNTOLD = (
    "SELECT count(*) FROM reservation r WHERE r.id > '{since}' AND NOT EXISTS (SELECT 1 FROM"
    " reservation_history e WHERE e.reservation_id = r.id AND e.event = 'received')"
)
_UNREAD = "SELECT count(*) FROM inbox WHERE state IN ('received', 'review') AND state = 'received'"


def handlers_done(folder: Path, store: str, since_us: int) -> bool:
    """Wait until each request stored since a moment has its trail, and each form was read."""
    untold = _UNTOLD.format(since=f"{since_us // 1000:012x}")
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        if not any(_count(folder, store, query) for query in (_UNREAD, untold)):
            return True
        time.sleep(0.1)
    return False


def _count(folder: Path, store: str, query: str) -> int:
    if store.startswith("sqlite:"):
        path = folder / "hub" / "cordata.db"
        embedded = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            return int(embedded.execute(query).fetchone()[0])
        finally:
            embedded.close()
    import psycopg

    with psycopg.connect(store, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0
