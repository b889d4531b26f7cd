"""Retention: deletes data after the days of the configuration, or of a hotel's own settings.

Once a day the primary reads each table from its oldest row to the newest that may be due, a window
at a time, and deletes the rows that are due in small units with pauses between them. A run that
takes too long is continued by the next one; a new primary begins again.

    inbox_days ........... the text of a submission, once it was interpreted; its row stays
    review_days .......... a submission that waits for a person, or for a replay of its event; there
                           is an alert before
    history_days ......... the history of a request
    reservation_days ..... a whole request, its stay being over and nothing waiting
    customer_days ........ a customer since their last request: erased (erasure.py)
    inbound_days ......... records of inbound messages, not their data
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date
from functools import partial
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from alpinehub.customers.erasure import Reason, erase_requests, erase_rows, erase_traces
from alpinehub.customers.search import Customer, with_numbers
from alpinehub.hotels import Unusable
from alpinehub.models import Settings
from alpinehub.reservations import decode
from alpinehub.sql import encode_list
from cordata import Context, Row, Store, Tx, from_us

#: Rows of one read; rows, and persons, of one unit.
WINDOW, STEP, PERSONS = 5000, 200, 50
#: Persons whose traces are searched at once: each search reads all that is stored.
TRACED_AT_ONCE = 500
_DAY_US = 86_400_000_000
#: How long before their deletion an alert names the waiting submissions.
WARNED_US = 14 * _DAY_US
#: Longest run, and pause between its units, in seconds.
_LONGEST_S, _PAUSE_S = 60.0, 0.05
_BY = Reason(by="retention", spare_open=True)

#: After every id.
_NEWEST = 2**62

Cursor = int | str
#: Deletes the rows with these ids that are still due at a time. Returns how many.
End = Callable[[Context, Sequence[Any], int], Awaitable[int]]


class Kind(Struct, frozen=True):
    """A kind of data with a retention in days."""

    #: Name in HubSettings and in `hotel.settings.retention`.
    setting: str
    first: Cursor
    #: Queries: of the next rows after a cursor the last one, and how old the oldest is; and those
    #: of them that are older than a moment, as (id, hotel_id, at).
    window: str
    old: str
    end: End
    step: int = STEP
    #: Runs at the end of a pass: alerts.
    warn: Callable[[Context], Awaitable[None]] | None = None


class _Pass(Struct):
    """The progress of the pass through one table."""

    cursor: Cursor
    done_at: int | None = None


_passes: WeakKeyDictionary[Store, dict[str, _Pass]] = WeakKeyDictionary()


async def retain(ctx: Context) -> dict[str, int]:
    """One run. Returns how many rows of each kind were deleted."""
    passes = _passes.setdefault(ctx.store, {})
    deadline = monotonic() + _LONGEST_S
    ended = {}
    for kind in KINDS:
        one = passes.setdefault(kind.setting, _Pass(kind.first))
        # The clock may have been set back.
        if one.done_at is None or abs(ctx.now_us() - one.done_at) >= _DAY_US:
            ended[kind.setting] = await _go_on(ctx, kind, one, deadline)
    if any(ended.values()):
        counts = ", ".join(f"{kind} {count}" for kind, count in ended.items() if count)
        ctx.log.info("retention deleted: %s", counts)
    return ended


async def _go_on(ctx: Context, kind: Kind, one: _Pass, deadline: float) -> int:
    one.done_at = None
    before = await _read_limits(ctx, kind.setting)
    count = 0
    while monotonic() < deadline:
        newest = max(before.values(), default=0)
        last, rows = await ctx.store.read(partial(_look, kind, one.cursor, newest))
        due = [row["id"] for row in rows if row["at"] < _limit(before, row["hotel_id"])]
        for start in range(0, len(due), kind.step):
            if monotonic() >= deadline:
                return count
            count += await kind.end(ctx, due[start : start + kind.step], newest)
            await asyncio.sleep(_PAUSE_S)
        if last is None:
            one.cursor, one.done_at = kind.first, ctx.now_us()
            if kind.warn is not None:
                await kind.warn(ctx)
            break
        one.cursor = last
        await asyncio.sleep(0)
    return count


def _limit(before: Mapping[int, int], hotel_id: int | None) -> int:
    """The moment before which a row is deleted; a row without a hotel goes with the first."""
    if hotel_id is None:
        return max(before.values(), default=0)
    return before.get(hotel_id, 0)


async def _look(kind: Kind, after: Cursor, before: int, tx: Tx) -> tuple[Cursor | None, list[Row]]:
    """The end of the next window (None: no old rows are left), and its rows that are older."""
    if not before:
        return None, []
    [window] = await tx.fetch_all(kind.window, after=after, limit=WINDOW)
    if window["last"] is None or window["oldest"] >= before:
        return None, []  # later rows are not old, either
    last = window["last"]
    return last, await tx.fetch_all(kind.old, after=after, last=last, before=before)


async def _read_limits(ctx: Context, setting: str) -> Mapping[int, int]:
    """Hotel id -> time before which data is deleted; without hotels that keep it for ever."""
    general = int(getattr(ctx.settings["alpinehub"], setting))
    rows = await ctx.store.read(lambda tx: tx.fetch_all("retention_hotels"))
    limits = {}
    for row in rows:
        days = _days_of(row["settings"], setting, general)
        if days > 0:
            limits[int(row["id"])] = ctx.now_us() - days * _DAY_US
    return limits


def _days_of(settings: str | None, setting: str, general: int) -> int:
    """The days of one hotel; 0, for ever, if its settings cannot be read."""
    if settings is None:
        return general
    try:
        return msgspec.json.decode(settings, type=Settings).retention.get(setting, general)
    except msgspec.DecodeError:
        return 0


def _by(statement: str, **params: object) -> End:
    """Ends the rows by one statement."""

    async def end(ctx: Context, ids: Sequence[int], before: int) -> int:
        return await ctx.store.run(lambda tx: tx.execute(statement, ids=encode_list(ids), **params))

    return end


async def _expire_reviews(ctx: Context, ids: Sequence[int], before: int) -> int:
    encoded = encode_list(ids)
    return await ctx.store.run(
        lambda tx: tx.execute("retention_expire_reviews", ids=encoded, now=tx.now_us, empty=b"")
    )


async def _warn_of_reviews(ctx: Context) -> None:
    """Alert, hotel by hotel, about submissions that wait and will be deleted soon."""
    before = {
        hotel: limit + WARNED_US
        for hotel, limit in (await _read_limits(ctx, "review_days")).items()
    }
    newest = max(before.values(), default=0)
    if not newest:
        return
    span = {"after": 0, "last": _NEWEST, "before": newest}
    soon: defaultdict[str, list[int]] = defaultdict(list)
    for row in await ctx.store.read(lambda tx: tx.fetch_all("retention_old_reviews", **span)):
        limit = before.get(row["hotel_id"], 0)
        if row["at"] < limit:
            soon[row["hotel"]].append(row["at"] - limit + WARNED_US)
    for code, left_us in soon.items():
        days = max(0, round(min(left_us) / _DAY_US))
        ctx.alert(
            f"review-expires:{code}",
            f"hotel {code}: submissions that wait for somebody will be rejected and their text "
            f"deleted, {len(left_us)} of them within 14 days, the first in {days}: "
            f"`alpinehub inbox list --hotel {code} --state review`",
            ids=[code],
        )


async def _delete_requests(ctx: Context, ids: Sequence[str], before: int) -> int:
    today = from_us(ctx.now_us()).date()

    async def unit(tx: Tx) -> int:
        encoded = encode_list(ids)
        rows = await tx.fetch_all(
            "retention_requests_to_delete", lock=True, ids=encoded, before=before
        )
        over = encode_list(row["id"] for row in rows if is_over(row["data"], today))
        await tx.execute("retention_delete_deliveries_of", ids=over)
        await tx.execute("retention_delete_events_of", ids=over)
        await tx.execute("retention_delete_inbox_of", ids=over)
        await tx.execute("retention_delete_versions_of", ids=over)
        return await tx.execute("retention_delete_requests", ids=over)

    return await ctx.store.run(unit)


async def _erase_customers(ctx: Context, ids: Sequence[int], before: int) -> int:
    cleared: list[Customer] = []
    for start in range(0, len(ids), PERSONS):
        customers = await _read_due(ctx, ids[start : start + PERSONS], before)
        try:
            await erase_requests(ctx.store, customers, _BY)
        except Unusable:  # one of them has a new request
            continue
        cleared += customers
        await asyncio.sleep(_PAUSE_S)
    if not cleared:
        return 0
    await erase_traces(ctx.store, cleared, _BY)
    # Customers with a new request are not due any more, and stay.
    gone, _ = await erase_rows(ctx.store, cleared)
    return gone


async def _read_due(ctx: Context, ids: Sequence[int], before: int) -> list[Customer]:
    """Those of these customers whose stays are over and who have no request since `before`."""
    today = from_us(ctx.now_us()).date()

    async def unit(tx: Tx) -> tuple[list[Row], list[Row]]:
        encoded = encode_list(ids)
        stays = await tx.fetch_all("retention_stays", ids=encoded)
        return stays, await tx.fetch_all("customer_read", ids=encoded)

    stays, people = await ctx.store.read(unit)
    coming = {row["customer_id"] for row in stays if not is_over(row["data"], today)}
    return await with_numbers(
        [row for row in people if row["id"] not in coming and _is_due(row, before)]
    )


def _is_due(row: Row, before: int) -> bool:
    """Whether a customer is due: the last request (or the customer itself) is older."""
    return int(row["last_request_at"] or row["created_at"]) < before


def is_over(data: str, today: date) -> bool:
    """Whether the stay of a record lies in the past, or it has none."""
    try:
        record = decode(data)
    except msgspec.DecodeError:
        return True
    return (record.departure or date.min) < today


KINDS = (
    Kind(
        "inbox_days",
        0,
        "customer_inbox_range",
        "retention_old_inbox",
        _by("retention_empty_inbox", empty=b""),
    ),
    Kind(
        "review_days",
        0,
        "retention_review_range",
        "retention_old_reviews",
        _expire_reviews,
        warn=_warn_of_reviews,
    ),
    Kind(
        "history_days",
        0,
        "retention_event_range",
        "retention_old_events",
        _by("retention_delete_events"),
    ),
    Kind(
        "inbound_days",
        0,
        "retention_inbound_range",
        "retention_old_inbound",
        _by("retention_delete_inbound"),
    ),
    Kind(
        "reservation_days",
        "",
        "retention_request_range",
        "retention_old_requests",
        _delete_requests,
        step=50,
    ),
    Kind(
        "customer_days",
        0,
        "customer_range",
        "retention_old_customers",
        _erase_customers,
        step=TRACED_AT_ONCE,
    ),
)
