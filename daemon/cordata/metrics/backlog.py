"""What waits in the store: messages by group, mails. Each count reads LIMIT rows at most, so that
the cost does not grow with the backlog; a caller that needs exact counts passes NO_LIMIT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cordata.pid import is_gone_here
from cordata.store import Row, Tx

#: Counts end here, unless the caller says otherwise. With a million messages in three groups it
#: takes 32 ms on PostgreSQL and 71 ms, in a thread, on SQLite; with ten thousand 26 and 12
#: (tests/bench/metrics_backlog.py).
LIMIT = 10_000
#: For callers who need to know exactly.
NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacklog:
    """The open messages of a consumer group; each count ends at the limit of `read_backlog`."""

    group: str
    #: Type of its events; *: all.
    type: str
    broker: str
    #: With those in Redis; there it is not known which of them a worker handles now.
    ready: int
    scheduled: int
    claimed: int
    #: Those of ready and scheduled that have failed before.
    retrying: int
    dead: int
    #: How long the oldest message that is due has waited; None: none is due.
    oldest_s: float | None
    #: Seconds since a process reported that it has this group: up to about 60 while one has it.
    absent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryState:
    """The lease of the primary."""

    holder: str
    #: Grows with each change of the primary.
    term: int
    #: Seconds since the term began.
    since_s: float
    #: Whether it was given back, and nobody has taken it since.
    released: bool
    #: Whether the holder is a process of this host that has ended. Of another host it is not known.
    gone: bool

    @property
    def is_held(self) -> bool:
        """Whether somebody leads, as far as it is known here."""
        return not (self.released or self.gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """All that waits, and for whom."""

    groups: Sequence[GroupBacklog]
    #: Partitions that wait for an operator, of each subscription.
    blocked: Mapping[str, int]
    mails: int
    #: Age of the oldest mail that waits; None: none waits.
    oldest_mail_s: float | None
    #: None: there has been none yet.
    primary: PrimaryState | None


async def read_backlog(tx: Tx, *, limit: int = LIMIT) -> Backlog:
    """Ask the store. Counts end at `limit`."""
    now_us = tx.now_us
    kinds = ("suspect", "scheduled", "claimed", "dead")
    counted = {kind: await _by_group(tx, f"metrics.{kind}", limit) for kind in kinds}
    groups = []
    for row in await tx.fetch_all("metrics.groups"):
        name = row["group"]
        ready = [
            await tx.fetch_one(query, group=name, limit=limit)
            for query in ("metrics.ready", "metrics.keyed")
        ]
        ready.append(counted["suspect"].get(name))
        if row["broker"] == "redis":
            where = {"group": name, "type": row["type"], "since": row["since"]}
            ready.append(await tx.fetch_one("metrics.streamed", **where, limit=limit))
        waiting = [one for one in (*ready, counted["scheduled"].get(name)) if one is not None]
        due = [at for one in waiting if (at := one["due_at"]) is not None and at <= now_us]
        groups.append(
            GroupBacklog(
                group=name,
                type=row["type"],
                broker=row["broker"],
                ready=min(limit, sum(one["count"] for one in ready if one is not None)),
                scheduled=_count(counted["scheduled"], name),
                claimed=_count(counted["claimed"], name),
                retrying=min(limit, sum(one["retrying"] for one in waiting)),
                dead=_count(counted["dead"], name),
                oldest_s=(now_us - min(due)) / 1e6 if due else None,
                absent_s=max(0.0, (now_us - row["present_at"]) / 1e6),
            )
        )
    mail = await tx.fetch_one("metrics.mail", limit=limit)
    lease = await tx.fetch_one("status.primary")
    assert mail is not None
    oldest_at = mail["oldest_at"]
    return Backlog(
        groups=groups,
        blocked={row["subscription"]: row["count"] for row in await tx.fetch_all("status.blocked")},
        mails=mail["count"],
        oldest_mail_s=None if oldest_at is None else max(0.0, (now_us - oldest_at) / 1e6),
        primary=None
        if lease is None
        else PrimaryState(
            holder=lease["holder"],
            term=lease["term"],
            since_s=max(0.0, (now_us - lease["acquired_at"]) / 1e6),
            released=lease["released_at"] is not None,
            gone=is_gone_here(lease["holder"]),
        ),
    )


def shown(count: int) -> str:
    """A count, which may have ended at LIMIT, as text."""
    return str(count) if count < LIMIT else f"{LIMIT:,}+"


async def _by_group(tx: Tx, query: str, limit: int) -> Mapping[str, Row]:
    return {row["group"]: row for row in await tx.fetch_all(query, limit=limit)}


def _count(rows: Mapping[str, Row], group: str) -> int:
    return rows[group]["count"] if group in rows else 0
