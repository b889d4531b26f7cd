"""What waits in the store: messages by group, mails. Of each kind LIMIT rows are read at most, so
that the cost does not grow with the backlog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cordata.store import Row, Store, Tx

#: Counts end here. With a million messages in three groups it takes 32 ms on PostgreSQL and 71 ms,
#: in a thread, on SQLite; with ten thousand 26 and 12 (tests/bench/metrics_backlog.py).
LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacklog:
    """The open messages of a consumer group; those in Redis are not counted."""

    group: str
    ready: int
    scheduled: int
    claimed: int
    dead: int
    #: Those of ready and scheduled that have failed before.
    retrying: int
    #: How long the oldest message that is due has waited; 0: none is due.
    oldest_s: float
    #: Seconds since a process with this group was present.
    absent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """All that waits."""

    groups: Sequence[GroupBacklog]
    mails: int
    #: Age of the oldest mail that waits; 0: none waits.
    oldest_mail_s: float
    #: Number of terms of the primary so far: it grows with each change of the primary.
    term: int


async def read_backlog(store: Store) -> Backlog:
    """Ask the store. Raises: StoreUnavailable."""
    return await store.read(_read)


async def _read(tx: Tx) -> Backlog:
    now_us = tx.now_us
    scheduled = await _by_group(tx, "metrics.scheduled")
    claimed = await _by_group(tx, "metrics.claimed")
    dead = await _by_group(tx, "metrics.dead")
    groups = []
    for row in await tx.fetch_all("metrics.groups"):
        name = row["group"]
        found = [
            await tx.fetch_one(query, group=name, limit=LIMIT)
            for query in ("metrics.ready", "metrics.keyed")
        ]
        found.append(scheduled.get(name))
        due = [one["due_at"] for one in found if one is not None and one["due_at"] is not None]
        groups.append(
            GroupBacklog(
                group=name,
                ready=min(LIMIT, sum(one["count"] for one in found[:2] if one is not None)),
                scheduled=_count(scheduled, name),
                claimed=_count(claimed, name),
                dead=_count(dead, name),
                retrying=sum(one["retrying"] for one in found if one is not None),
                oldest_s=max(0.0, (now_us - min(due)) / 1e6) if due else 0.0,
                absent_s=max(0.0, (now_us - row["present_at"]) / 1e6),
            )
        )
    mail = await tx.fetch_one("metrics.mail", limit=LIMIT)
    lease = await tx.fetch_one("status.primary")
    assert mail is not None
    oldest_at = mail["oldest_at"]
    return Backlog(
        groups=groups,
        mails=mail["count"],
        oldest_mail_s=0.0 if oldest_at is None else max(0.0, (now_us - oldest_at) / 1e6),
        term=0 if lease is None else lease["term"],
    )


async def _by_group(tx: Tx, query: str) -> Mapping[str, Row]:
    return {row["group"]: row for row in await tx.fetch_all(query, limit=LIMIT)}


def _count(rows: Mapping[str, Row], group: str) -> int:
    return rows[group]["count"] if group in rows else 0
