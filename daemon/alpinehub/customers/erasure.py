"""Erasing a customer: personal data is deleted, the requests remain.

The stay, price and history of a request remain, so that the figures of a hotel stay correct;
personal data is deleted in every table, and the customer's row with it. This is done in small units
and can be repeated: the customer's row is deleted last, and a foreign key prevents that while a
request of theirs is left or arrives meanwhile.

A person who is no customer is in submissions of the inbox only, in review or rejected. If one of
these becomes a guest request meanwhile, its customer is found and erased, too.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from alpinehub import history
from alpinehub.customers.matcher import (
    GroupMatcher,
    PersonMatcher,
    group_matcher,
    group_matchers,
    matcher_of,
)
from alpinehub.customers.search import Customer, PersonQuery, find_customers
from alpinehub.customers.traces import (
    FoundSubmission,
    Progress,
    Traces,
    find_submissions,
    find_traces,
    no_progress,
    query_matchers,
)
from alpinehub.hotels import Unusable
from alpinehub.reservations import ReservationData, decode, encode
from alpinehub.sql import encode_list
from cordata import Conflict, Row, Store, Tx

#: Requests of one unit.
STEP = 50
#: Fields of a version that are not personal data; all others are deleted.
_KEPT = (
    "status",
    "arrival",
    "departure",
    "adults",
    "children",
    "total",
    "currency",
    "room_type",
    "rate_plan",
    "meal_plan",
    "pets",
)
#: Keys of the detail of a history entry that are not personal data.
_KEPT_DETAILS = (
    *("protocol", "client_id", "res_status", "code"),
    *("by", "mapping", "accepted_by"),
)
#: The form of an id that intake.py makes for a submission without one, and
#: webhooks/interpretation.py of a long one.
_MADE = re.compile("[0-9a-f]{24}")
#: Attempts if requests of the person arrive meanwhile.
_RUNS = 3


class Erased(Struct, frozen=True, kw_only=True):
    """Numbers of what was erased."""

    customers: int
    requests: int
    #: Submissions that belong to none of these requests.
    submissions: int
    #: Old versions of requests that belong to another customer now.
    versions: int
    mails: int


class Reason(Struct, frozen=True, kw_only=True):
    """Who erases and why, for the history; and what to include."""

    by: str
    reason: str = ""
    #: Also requests that still wait for an account: it never gets them.
    force: bool = False
    #: Leave submissions in review: one may be a request of today.
    spare_open: bool = False


async def count_waiting(store: Store, customers: Sequence[Customer]) -> int:
    """How many of their requests still wait for an account."""
    return await store.read(partial(_count_waiting, ids=_ids(customers)))


async def _count_waiting(tx: Tx, ids: str) -> int:
    [row] = await tx.fetch_all("customer_waiting", ids=ids)
    return int(row["waiting"])


async def find_all(
    store: Store, query: PersonQuery, *, progress: Progress = no_progress
) -> tuple[list[Customer], Traces]:
    """What `erase` would erase: the customers, and data that none of their requests refers to."""
    customers = await find_customers(store, query)
    asked = await query_matchers(store, query)
    traces = await _find_traces(store, customers, asked, progress=progress)
    return customers, traces


async def find_submissions_of(
    store: Store, query: PersonQuery, *, progress: Progress = no_progress
) -> tuple[list[Customer], list[FoundSubmission]]:
    """The customers of a query, and the submissions that name the person but are not of their
    requests.
    """
    customers = await find_customers(store, query)
    asked = await query_matchers(store, query)
    matchers = [*asked, *await asyncio.to_thread(_matchers, customers)]
    ids = {customer["id"] for customer in customers}
    groups = group_matchers(matchers)
    return customers, await find_submissions(store, groups, customers=ids, progress=progress)


async def erase(
    store: Store,
    customers: Sequence[Customer],
    why: Reason,
    query: PersonQuery | None = None,
    *,
    progress: Progress = no_progress,
) -> Erased:
    """Erase customers, and the person of a query wherever they are named.

    Raises: Unusable if a request waits for hotel software or arrives now.
    """
    asked = [] if query is None else await query_matchers(store, query)
    known = {customer["id"]: customer for customer in customers}
    requests = submissions = versions = mails = gone = 0
    left = list(customers)
    for _ in range(_RUNS):
        requests += await erase_requests(store, left, why)
        found, cleared = await erase_traces(
            store, list(known.values()), why, asked, progress=progress
        )
        submissions += cleared
        versions += len(found.versions)
        mails += len(found.mails)
        deleted, left = await erase_rows(store, left)
        gone += deleted
        if query is not None:
            left = await find_customers(store, query)
            known |= {customer["id"]: customer for customer in left}
        if left or cleared < len(found.submissions):
            continue
        if gone < len(known) and (query is None or query.id is not None):
            raise Unusable(
                "a customer was merged into another meanwhile", hint="find and erase that one"
            )
        return Erased(
            customers=gone, requests=requests, submissions=submissions, versions=versions,
            mails=mails,
        )  # fmt: skip
    raise Unusable("the customer keeps sending requests", hint="run it once more")


async def erase_requests(store: Store, customers: Sequence[Customer], why: Reason) -> int:
    """The first step: erase their requests, STEP at a time. Returns how many. Raises: Unusable if
    one waits for hotel software.
    """
    matcher = group_matcher(await asyncio.to_thread(_matchers, customers))
    ids, count = _ids(customers), 0
    while done := await store.run(partial(_erase_requests, ids=ids, matcher=matcher, why=why)):
        count += done
    return count


async def erase_traces(
    store: Store,
    customers: Sequence[Customer],
    why: Reason,
    asked: Sequence[PersonMatcher] = (),
    *,
    progress: Progress = no_progress,
) -> tuple[Traces, int]:
    """The second step: erase data that none of their requests refers to. It reads each of the
    tables once, for any number of customers. Returns what was found, and how many submissions were
    erased: not those that became a guest request meanwhile.
    """
    found = await _find_traces(
        store, customers, asked, spare_open=why.spare_open, progress=progress
    )
    count = 0
    for start in range(0, max(len(found.submissions), len(found.versions), len(found.mails)), STEP):
        count += await store.run(partial(_erase_traces, found=found, start=start))
    return found, count


async def _find_traces(
    store: Store, customers: Sequence[Customer], asked: Sequence[PersonMatcher], **how: Any
) -> Traces:
    matchers = [*asked, *await asyncio.to_thread(_matchers, customers)]
    ids = {customer["id"] for customer in customers}
    return await find_traces(store, matchers, customers=ids, **how)


def _matchers(customers: Sequence[Customer]) -> list[PersonMatcher]:
    return [matcher_of(customer) for customer in customers]


async def erase_rows(store: Store, customers: Sequence[Customer]) -> tuple[int, list[Customer]]:
    """The last step: delete the customers. Returns how many were deleted, and those who were not
    because a request arrived meanwhile.
    """
    gone, left = 0, list[Customer]()
    for start in range(0, len(customers), STEP):
        some = customers[start : start + STEP]
        try:
            gone += await store.run(partial(_erase_customers, ids=_ids(some)))
        except Conflict:
            for one in some:
                try:
                    gone += await store.run(partial(_erase_customers, ids=_ids([one])))
                except Conflict:
                    left.append(one)
    return gone, left


def _ids(customers: Sequence[Customer]) -> str:
    return encode_list(customer["id"] for customer in customers)


async def _erase_customers(tx: Tx, ids: str) -> int:
    return await tx.execute("customer_delete", ids=ids)


async def _erase_requests(tx: Tx, ids: str, matcher: GroupMatcher, why: Reason) -> int:
    """Erase the next STEP of their requests. Returns how many there were."""
    requests = await tx.fetch_all("customer_requests_to_erase", lock=True, ids=ids, limit=STEP)
    if not requests:
        return 0
    if not why.force:  # the rows are locked: no more deliveries are added after this count
        waiting = await _count_waiting(tx, ids)
        if waiting:
            raise Unusable(
                f"guest requests of the customer wait for hotel software: {waiting}",
                hint="wait until it has fetched them, or use --force: then it never gets them",
            )
    mine = encode_list(row["id"] for row in requests)
    versions = await tx.fetch_all("customer_versions", ids=mine)
    for row in versions:
        await tx.write("customer_clear_version", **_cleared(row))
    inbox = await tx.fetch_all("customer_inbox", ids=mine)
    await _clear_inbox(tx, [row["id"] for row in inbox])
    await tx.execute("customer_clear_refusals", ids=mine)
    await tx.execute("customer_end_waiting", ids=mine, now=tx.now_us)
    events = await tx.fetch_all("customer_events", ids=mine)
    for row in events:
        if row["detail"]:
            await tx.write("customer_clear_event", **_detail(row))
    for row in requests:
        external_id = row["external_id"]
        if external_id is not None and (
            matcher.is_named_in(external_id.lower())
            or matcher.is_numbered_in(external_id)
            or _is_made(row["kind"], external_id)
        ):
            external_id = None
        await tx.execute(
            "customer_clear_request", id=row["id"], external_id=external_id, now=tx.now_us
        )
    detail = {"by": why.by, "reason": why.reason} if why.reason else {"by": why.by}
    rows = [
        history.HistoryEntry(
            reservation_id=row["id"], version=row["version"], event="erased", detail=detail
        )
        for row in requests
    ]
    await history.add(tx, *rows)
    return len(requests)


async def _erase_traces(tx: Tx, found: Traces, start: int) -> int:
    """Erase the next STEP of each kind. Returns how many submissions were erased."""
    end = start + STEP
    submissions = found.submissions[start:end]
    count = await _clear_inbox(tx, [one.id for one in submissions if one.reservation_id])
    is_open = [one.id for one in submissions if not one.reservation_id]
    count += await _clear_inbox(tx, is_open, is_open=True)
    if versions := found.versions[start:end]:
        rows = await tx.fetch_all("customer_versions_at", ids=encode_list(versions))
        for row in rows:
            await tx.write("customer_clear_version", **_cleared(row))
    for id, subject, text, html in found.mails[start:end]:
        await tx.write("customer_clear_mail", id=id, subject=subject, text=text, html=html)
    return count


async def _clear_inbox(tx: Tx, ids: Sequence[int], *, is_open: bool = False) -> int:
    if not ids:
        return 0
    encoded = encode_list(ids)
    return await tx.execute("customer_clear_inbox", ids=encoded, empty=b"", is_open=int(is_open))


def _is_made(kind: str, external_id: str) -> bool:
    """Whether the hub may have made the id from what the customer wrote: guesses can be tested."""
    return kind != "generic" and bool(_MADE.fullmatch(external_id))


def anonymous(data: ReservationData) -> ReservationData:
    """The record without the person."""
    return ReservationData(**{name: getattr(data, name) for name in _KEPT})


def _cleared(row: Row) -> dict[str, object]:
    """A version without the person. The hash is replaced, because guesses could be tested on it."""
    try:
        data = anonymous(decode(row["data"]))
    except msgspec.DecodeError:
        data = ReservationData(status="cancelled")
    return {
        "reservation_id": row["reservation_id"],
        "version": row["version"],
        "data": encode(data).decode(),
        "content_hash": secrets.token_bytes(16),
    }


def _detail(row: Row) -> dict[str, object]:
    try:
        detail: Any = json.loads(row["detail"])
    except ValueError:
        detail = None
    kept: Mapping[str, Any] = (
        {k: v for k, v in detail.items() if k in _KEPT_DETAILS} if isinstance(detail, dict) else {}
    )
    return {"id": row["id"], "detail": json.dumps(kept) if kept else None}
