"""Lists of guest requests, newest first; one with its deliveries and history, or as XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from alpinehub.accounts import require_account
from alpinehub.alpinebits.guest import Undeliverable, render, response, validate
from alpinehub.alpinebits.guest_requests import stored_version_of
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.directory import joined_hotel
from alpinehub.hotels import Unusable, require_hotel
from alpinehub.reservations import Status
from alpinehub.sql import encode_list
from cordata import Row, Store, Tx

#: State of the delivery of a version to an account. open: waiting, sent or undeliverable. A version
#: that is disabled, revoked or unneeded is not delivered, so it does not wait.
State = Literal[
    "open",
    "waiting",
    "sent",
    "undeliverable",
    "acknowledged",
    "rejected",
    "cancelled",
    "disabled",
    "revoked",
    "unneeded",
]
OPEN = frozenset({"waiting", "sent", "undeliverable"})
#: Reasons why a version that would be open is not delivered to the account.
_NOT_GIVEN = ("revoked", "disabled", "unneeded")

#: Rows of one read; and the most that are examined for one page of a filtered list.
_READ, _EXAMINED = 200, 10_000
#: Largest difference of the time in an id (the worker's clock) and `created_at` (the store's).
_APART_US = 60_000_000
#: Greater than every id: ids are hex digits.
_LAST = "g"
#: Later than every time.
_EVER_US = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFilter:
    """Criteria of a list of guest requests; None: no restriction."""

    hotel: str | None = None
    status: Status | None = None
    state: State | None = None
    account: str | None = None
    #: Microseconds since the epoch: created at `since_us` or later, and before `until_us`.
    since_us: int | None = None
    until_us: int | None = None
    #: The id of the last request of the page before.
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """A page of guest requests, without the guests' data."""

    items: Sequence[dict[str, Any]]
    #: `RequestFilter.after` of the next page; None: this is the last.
    next: str | None
    #: Guest requests that were examined, if the limit for that ended the page; else 0.
    examined: int = 0


async def list_requests(store: Store, wanted: RequestFilter) -> Page:
    """A page of a list. Raises: Unusable, StoreUnavailable."""
    return await store.read(lambda tx: _list(tx, wanted))


async def _list(tx: Tx, wanted: RequestFilter) -> Page:
    hotel_id = await require_hotel(tx, wanted.hotel) if wanted.hotel is not None else None
    account_id = await require_account(tx, wanted.account) if wanted.account is not None else None
    before_id, before_at = await _start(tx, wanted)
    items: list[dict[str, Any]] = []
    examined = 0
    while True:
        if wanted.state in (*OPEN, "open", *_NOT_GIVEN):
            rows = await tx.fetch_all(
                "requests_open",
                hotel_id=hotel_id,
                account_id=account_id,
                undeliverable=int(wanted.state == "undeliverable"),
                before_id=before_id,
                limit=_READ,
            )
        else:
            rows = await _read(tx, hotel_id, before_id, before_at)
        states = await _states(tx, rows)
        for row in rows:
            if row["created_at"] < (wanted.since_us or 0) - _APART_US:
                return Page(items, None)
            if (found := _chosen(row, states.get(row["id"], []), wanted)) is not None:
                if len(items) == wanted.limit:
                    return Page(items, before_id)
                items.append(found)
            before_id, before_at = row["id"], row["created_at"]
        if len(rows) < _READ:
            return Page(items, None)
        examined += len(rows)
        if examined >= _EXAMINED:
            return Page(items, before_id, examined)


async def _start(tx: Tx, wanted: RequestFilter) -> tuple[str, int]:
    """The id and the time (microseconds since the epoch) before which the list begins."""
    if wanted.after is not None:
        row = await tx.fetch_one("requests_when", id=wanted.after)
        if row is None:
            raise unknown(wanted.after)
        return wanted.after, row["created_at"]
    if wanted.until_us is not None:  # an id begins with its millisecond
        at = wanted.until_us + _APART_US
        return f"{at // 1000:012x}", at
    return _LAST, _EVER_US


async def _read(tx: Tx, hotel_id: int | None, before_id: str, before_at: int) -> list[Row]:
    if hotel_id is None:
        return await tx.fetch_all("requests_newest", before_id=before_id, limit=_READ)
    return await tx.fetch_all(
        "requests_of_hotel",
        hotel_id=hotel_id,
        before_at=before_at,
        before_id=before_id,
        limit=_READ,
    )


async def _states(tx: Tx, requests: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """The deliveries of the newest version of each request."""
    newest = {row["id"]: row["version"] for row in requests}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in await tx.fetch_all("requests_deliveries", ids=encode_list(newest)):
        if row["version"] == newest[row["reservation_id"]]:
            found.setdefault(row["reservation_id"], []).append(_delivery(row))
    return found


def _chosen(
    row: Row, deliveries: Sequence[dict[str, Any]], wanted: RequestFilter
) -> dict[str, Any] | None:
    if wanted.status is not None and row["status"] != wanted.status:
        return None
    if not (wanted.since_us or 0) <= row["created_at"] < (wanted.until_us or _EVER_US):
        return None
    meant = [one for one in deliveries if wanted.account in (None, one["account"])]
    if wanted.state is not None:
        states = OPEN if wanted.state == "open" else {wanted.state}
        meant = [one for one in meant if one["state"] in states]
    if not meant and (wanted.account is not None or wanted.state is not None):
        return None
    return {**dict(row), "accounts": deliveries}


def state_of(row: Row) -> str:
    """State of a delivery."""
    if row["acked_at"] is not None:
        return "rejected" if row["rejected"] else "acknowledged"
    if row["cancelled_at"] is not None:
        return "cancelled"
    if not row["waiting"]:
        return "replaced"
    for reason in _NOT_GIVEN:
        if row[reason]:
            return reason
    if row["undeliverable"]:
        return "undeliverable"
    return "sent" if row["sent_at"] is not None else "waiting"


def _delivery(row: Row) -> dict[str, Any]:
    names = (
        "account",
        "version",
        "sent_at",
        "polled_at",
        "acked_at",
        "undeliverable_code",
        "client_id",
    )
    return {"state": state_of(row), **{name: row[name] for name in names}}


async def find_request(store: Store, request_id: str) -> dict[str, Any]:
    """A guest request with the guest's data, versions, deliveries, submissions and history.

    Raises: Unusable, StoreUnavailable.
    """

    async def look(tx: Tx) -> dict[str, Any]:
        row = await tx.fetch_one("requests_one", id=request_id)
        if row is None:
            raise unknown(request_id)
        events = await tx.fetch_all("requests_history", id=request_id)
        deliveries = await tx.fetch_all("requests_deliveries", ids=encode_list([request_id]))
        reasons = {(one["account"], one["version"]): one["rejected_text"] for one in deliveries}
        return {
            **{name: value for name, value in dict(row).items() if name != "data"},
            "data": msgspec.json.decode(row["data"]),
            "versions": [
                dict(one) for one in await tx.fetch_all("requests_versions", id=request_id)
            ],
            "accounts": [
                {
                    **_delivery(one),
                    "rejected_text": one["rejected_text"],
                    "undeliverable_text": one["undeliverable_text"],
                }
                for one in deliveries
            ],
            "inbox": [dict(one) for one in await tx.fetch_all("requests_inbox", id=request_id)],
            "history": [_event(one, reasons) for one in events],
        }

    return await store.read(look)


def _event(row: Row, reasons: Mapping[tuple[str, int], str | None]) -> dict[str, Any]:
    detail = msgspec.json.decode(row["detail"]) if row["detail"] else {}
    # Stored with the delivery only, because it may have personal data that must be erased.
    if row["event"] == "rejected" and (text := reasons.get((row["account"], row["version"]))):
        detail["text"] = text
    names = ("at", "event", "version", "account", "request_id")
    return {**{name: row[name] for name in names}, "detail": detail}


def unknown(request_id: str) -> Unusable:
    """The error for an id without a guest request."""
    hint = "see `alpinehub requests list`; the id is the UniqueID in AlpineBits, too"
    return Unusable(f"there is no guest request {request_id!r}", hint=hint)


async def render_request(store: Store, request_id: str, protocol: Protocol) -> bytes:
    """The response that hotel software would receive; nothing is sent.

    Raises: Unusable, StoreUnavailable.
    """
    row = await store.read(lambda tx: tx.fetch_one("requests_xml", id=request_id))
    if row is None:
        raise unknown(request_id)
    try:
        made = render(stored_version_of(row), joined_hotel(row), protocol)
        validate(made, protocol)
    except Undeliverable as reason:
        text = f"AlpineBits {protocol.name} cannot carry it: {reason} ({reason.code.value})"
        raise Unusable(text) from None
    return response([made])
