"""Lists of the inbox: submissions, and undeliverable versions of guest requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from alpinehub.hotels import Unusable
from alpinehub.inbox.processing import fields_of, interpreted
from alpinehub.sources import check_filter
from alpinehub.webhooks.field_names import target_of_key, target_of_label
from alpinehub.webhooks.fields import OF_KIND, title
from alpinehub.webhooks.interpretation import Ignored, Mapped, Unmapped
from cordata import Row, Store, Tx

#: What `alpinehub inbox list --state` takes.
STATES = ("review", "undeliverable", "mapped", "rejected", "all")
_NEWEST = 2**62
#: Rows of the inbox that one query looks at.
_WINDOW = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    """Which submissions to list; None and 0: all."""

    #: None: what waits for a person: in review, or undeliverable.
    state: str | None = None
    hotel: str | None = None
    source: str | None = None
    #: Received, or found undeliverable, then or later; microseconds since the epoch.
    since: int = 0
    limit: int = 50
    #: The id of the last submission on the page before.
    after: int = 0


async def list_inbox(store: Store, wanted: InboxFilter) -> list[dict[str, Any]]:
    """A page, newest first, without personal data. Raises: Unusable: no such hotel or source."""
    return await store.read(lambda tx: _list(tx, wanted))


async def _list(tx: Tx, wanted: InboxFilter) -> list[dict[str, Any]]:
    await check_filter(tx, hotel=wanted.hotel, source=wanted.source)
    asked = {
        "hotel": wanted.hotel,
        "source": wanted.source,
        "since": wanted.since,
        "limit": wanted.limit,
    }
    after = wanted.after or _NEWEST
    if wanted.state in ("mapped", "rejected", "all"):
        state = None if wanted.state == "all" else wanted.state
        return await _by_windows(tx, asked | {"state": state, "after": after}, wanted)
    rows: list[Row] = []
    if wanted.state != "undeliverable":
        rows += await tx.fetch_all("inbox_list_review", after=after, **asked)
    if wanted.state == "undeliverable" or (wanted.state is None and not wanted.after):
        rows += await tx.fetch_all("inbox_undeliverable", **asked)
    return [dict(row) for row in rows]


async def _by_windows(tx: Tx, asked: dict[str, Any], wanted: InboxFilter) -> list[dict[str, Any]]:
    """A page of a long inbox, searched in windows of rows, since matching rows may be rare."""
    found: list[dict[str, Any]] = []
    while len(found) < wanted.limit:
        asked["limit"] = wanted.limit - len(found)
        found += [dict(row) for row in await tx.fetch_all("inbox_list", window=_WINDOW, **asked)]
        end = await tx.fetch_one("inbox_window", after=asked["after"], window=_WINDOW)
        if end is None or end["id"] is None or end["received_at"] < wanted.since:
            break
        asked["after"] = end["id"]
    return found


async def require_row(tx: Tx, inbox_id: int) -> Row:
    """A submission. Raises: Unusable."""
    row = await tx.fetch_one("inbox_open", id=inbox_id)
    if row is None:
        raise Unusable(f"there is no submission {inbox_id}", hint="`alpinehub inbox list`")
    return row


async def show_submission(store: Store, inbox_id: int) -> dict[str, object]:
    """A submission with its fields and their meanings; personal data. Without `now` if there is
    nothing to interpret. Raises: Unusable.
    """
    row = await store.read(lambda tx: require_row(tx, inbox_id))
    shown = (
        "id", "hotel", "source", "kind", "state", "outcome", "error", "received_at", "handled_at",
        "reservation_id", "external_id", "request_id",
    )  # fmt: skip
    return {
        **{name: row[name] for name in shown},
        "fields": [
            {
                "key": answer.key,
                "label": answer.label,
                "value": answer.value,
                "means": target_of_key(answer.key) or target_of_label(answer.label),
                "title": title(answer),
            }
            for answer in fields_of(row)
        ],
        "now": asdict(preview_of(row)) if row["kind"] in OF_KIND and row["body"] else None,
        "body": bytes(row["body"]).decode("utf-8", "replace"),
    }


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of interpreting a submission now."""

    state: str
    #: Revision of the mapping.
    mapping: int
    problems: Sequence[str] = ()


def state_of(found: Mapped | Unmapped | Ignored) -> str:
    """The state of a submission that is interpreted so."""
    if isinstance(found, Mapped):
        return "mapped"
    return "review" if isinstance(found, Unmapped) else "rejected"


def preview_of(row: Row) -> Preview:
    """Interpret a submission by its source's mapping; stores nothing."""
    found, mapping = interpreted(row)
    problems: tuple[str, ...] = ()
    if isinstance(found, Unmapped):
        problems = found.problems
    elif isinstance(found, Ignored):
        problems = (found.outcome,)
    return Preview(state_of(found), mapping.revision, problems)
