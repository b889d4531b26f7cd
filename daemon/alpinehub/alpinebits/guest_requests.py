"""Delivery of guest requests to a client account: rendered, and recorded as sent before they are.

    version made --> waiting --read--> sent, waiting --acknowledged or rejected--> done
                      |  ^               |  ^
                      |  |undeliverable  |  |read again
                      +--+               +--+

    list_page ..... reads what waits, renders and validates it (guest.py); a version that cannot be
                    sent is recorded as undeliverable, with the reason
    send_page ..... also records the page as sent, right before it is; for a poll
    record_sent_if_waiting
                    for a push (push/delivery.py), which connects to its server after the page was
                    read: records what still waits by then, and only that is sent

The first delivery, acknowledgement and rejection are entries of the history, written in the same
unit of work. Each account has its own state: two accounts of one hotel read and acknowledge
independently. A newer version waits again, whatever the state of the older one; so does a request
that an operator resends. One that the operator withdraws is in no list (`requests/actions.py`).

What an account gets depends on what was sent to it before, acknowledged or not: the answer may have
arrived though its acknowledgement did not. A booking is Reserved until it was sent as a booking,
and Modify afterwards; a cancellation is sent only to an account that was sent the request. This is
decided when the list is read (`sql/delivery.sql`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import Struct

from alpinehub import history
from alpinehub.alpinebits.call import Recipient
from alpinehub.alpinebits.contact import is_poll_noted, note_contact, set_poll_noted
from alpinehub.alpinebits.guest import (
    StoredVersion,
    Undeliverable,
    UndeliverableCode,
    render,
    validate,
    validated_in,
)
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.history import HistoryEntry
from alpinehub.models import Hotel
from alpinehub.reservations import decode
from alpinehub.sql import encode_list
from cordata import Context, Row, StoreUnavailable, Tx, from_us

#: Rows read, rendered, validated and recorded at once. A page takes 6 ms of the event loop and
#: 250 KB of memory; between pages other requests are served.
PAGE = 100
#: Most guest requests of a message that are recorded in one unit of work, so that webhooks do not
#: wait long.
STEP = 200
#: Most ids in an alert.
_NAMED = 20
_RENDERER_FAILED = (
    UndeliverableCode.RENDERER,
    "the renderer failed; the journal has the details",
)

_log = logging.getLogger("alpinehub.alpinebits")


class RenderedVersion(Struct, frozen=True, kw_only=True):
    """A version that can be sent."""

    #: The HotelReservation.
    xml: bytes
    reservation_id: str
    version: int
    unique_id_type: int
    #: To be recorded: it is sent for the first time since it was made or resent, or was never
    #: validated in this protocol version.
    is_new: bool


class Cursor(Struct, frozen=True, kw_only=True):
    """Where a page begins in the list of an account and hotel."""

    #: After this id; "": at the start.
    after_id: str = ""
    #: In the list of all that were created then (us since the epoch) or later, acknowledged or not;
    #: None: in that of all that wait.
    since_us: int | None = None


class Page(Struct, frozen=True, kw_only=True):
    """A page of a list."""

    #: Empty if all of it is undeliverable.
    versions: list[RenderedVersion]
    #: None: it is the last page.
    next: Cursor | None


class UndeliverableVersion(Struct, frozen=True, kw_only=True):
    """A version that the protocol of its account cannot carry."""

    reservation_id: str
    version: int
    code: UndeliverableCode
    #: For people.
    text: str


def render_page(
    rows: Sequence[Row], hotel: Hotel, protocol: Protocol
) -> tuple[list[RenderedVersion], list[UndeliverableVersion]]:
    """Render and validate rows; an undeliverable one does not stop the others.

    Returns the rendered versions, and the undeliverable ones whose reason is new.
    """
    page: list[RenderedVersion] = []
    undeliverable: list[UndeliverableVersion] = []
    for row in rows:
        try:
            page.append(_render(row, hotel, protocol))
        except Undeliverable as error:
            reason = error.code, str(error)
        except Exception:  # noqa: BLE001 - the boundary of one record: a bug in the renderer
            reason = _RENDERER_FAILED
            if reason != _known_reason(row):
                id_ = row["reservation_id"]
                _log.warning("reservation %s cannot be rendered", id_, exc_info=True)
        else:
            continue
        if reason != _known_reason(row):
            code, text = reason
            one = UndeliverableVersion(
                reservation_id=row["reservation_id"], version=row["version"], code=code, text=text
            )
            undeliverable.append(one)
    return page, undeliverable


def _render(row: Row, hotel: Hotel, protocol: Protocol) -> RenderedVersion:
    """The version in a row, rendered and valid. Raises: Undeliverable."""
    stored = stored_version_of(row)
    xml = render(stored, hotel, protocol)
    was_validated = row["rendered"] == validated_in(protocol)
    if not was_validated:
        validate(xml, protocol)
    return RenderedVersion(
        xml=xml,
        reservation_id=row["reservation_id"],
        version=row["version"],
        unique_id_type=stored.unique_id_type,
        is_new=row["sent_at"] is None or not was_validated,
    )


def _known_reason(row: Row) -> tuple[str | None, str | None]:
    """Why the version in a row was undeliverable the last time; None: it was not."""
    return row["undeliverable_code"], row["undeliverable_text"]


def stored_version_of(row: Row) -> StoredVersion:
    """The version in a row, for the renderer. Raises: Undeliverable if its JSON cannot be read."""
    try:
        data = decode(row["data"])
    except msgspec.DecodeError:
        raise Undeliverable(
            UndeliverableCode.UNREADABLE, "the stored record cannot be read"
        ) from None
    return StoredVersion(
        id=row["reservation_id"],
        res_status=row["res_status"],
        data=data,
        external_id=row["external_id"] or "",
        source=row["source"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
    )


async def send_page(ctx: Context, recipient: Recipient, hotel: Hotel, cursor: Cursor) -> Page:
    """As `list_page`, PAGE versions, which are recorded as sent. If the page is lost on its way, it
    is sent again, as it is not acknowledged.
    """
    page = await list_page(ctx, recipient, hotel, cursor, size=PAGE)
    await _record_poll(ctx, recipient, hotel.id, page.versions)
    return page


async def list_page(
    ctx: Context, recipient: Recipient, hotel: Hotel, cursor: Cursor, *, size: int
) -> Page:
    """Render the next `size` versions; record what is undeliverable, with an alert.

    Raises: StoreUnavailable. A version that is made meanwhile is in a later page, or in the next
    list.
    """

    async def look(tx: Tx) -> list[Row]:
        where = {"account_id": recipient.account_id, "hotel_id": hotel.id, "limit": size}
        if cursor.since_us is None:
            return await tx.fetch_all("delivery_list_waiting", **where, after_id=cursor.after_id)
        today = from_us(ctx.now_us()).astimezone(hotel.zone).date().isoformat()
        # Every id is greater than "", so that the first page includes this moment.
        after = {"after_at": cursor.since_us, "after_id": cursor.after_id}
        return await tx.fetch_all("delivery_list_since", **where, **after, today=today)

    rows = await ctx.store.read(look)
    versions, undeliverable = render_page(rows, hotel, recipient.protocol)
    if undeliverable:
        mark = partial(_mark_undeliverable, recipient=recipient, versions=undeliverable)
        _alert_undeliverable(ctx, hotel, recipient.protocol, await ctx.store.run(mark))
    if len(rows) < size:
        return Page(versions=versions, next=None)
    last = rows[-1]
    since_us = None if cursor.since_us is None else last["created_at"]
    return Page(versions=versions, next=Cursor(after_id=last["reservation_id"], since_us=since_us))


async def _record_poll(
    ctx: Context, recipient: Recipient, hotel_id: int, page: Sequence[RenderedVersion]
) -> None:
    """Record versions as sent, right before they are, and that the account polled this hotel. What
    is recorded already is not written again, so that a poll which repeats another one only reads.

    Raises: StoreUnavailable; then nothing is recorded. A poll that finds nothing new does not fail
    if it cannot be recorded.
    """
    new = [one for one in page if one.is_new]
    is_noted = is_poll_noted(ctx, recipient, hotel_id)
    if is_noted and not new:
        return

    async def unit(tx: Tx) -> None:
        if new:
            await _mark_sent(tx, recipient, new)
        if not is_noted:
            await note_contact(tx, recipient, hotel_id, polled=True)

    try:
        await ctx.store.run(unit)
    except StoreUnavailable:
        if new:
            raise
    if not is_noted:
        set_poll_noted(ctx, recipient, hotel_id)


async def record_sent_if_waiting(
    ctx: Context, recipient: Recipient, page: Sequence[RenderedVersion]
) -> list[RenderedVersion]:
    """Record as sent those versions of a page that still wait, and return only these: since the
    page was read, others may have been withdrawn, erased, or replaced by a newer version.

    Raises: StoreUnavailable; then none of them is recorded.
    """
    mark = partial(_mark_sent, recipient=recipient, versions=page, still_waiting=True)
    marked = {(row["reservation_id"], row["version"]) for row in await ctx.store.run(mark)}
    return [one for one in page if (one.reservation_id, one.version) in marked]


async def _mark_sent(
    tx: Tx,
    recipient: Recipient,
    versions: Sequence[RenderedVersion],
    *,
    still_waiting: bool = False,
) -> Sequence[Row]:
    """Mark versions as sent; each that is sent for the first time gets a history entry.

    `still_waiting`: only those that wait. Returns those that were marked.
    """

    async def mark(some: Sequence[RenderedVersion]) -> list[Row]:
        return await tx.fetch_all(
            "delivery_mark_sent",
            account_id=recipient.account_id,
            sent=_encode(some),
            rendered=validated_in(recipient.protocol),
            client_id=recipient.client_id or None,
            still_waiting=int(still_waiting),
            now_us=tx.now_us,
        )

    rows = await mark(versions)
    if len(rows) < len(versions) and not still_waiting:
        marked = {(row["reservation_id"], row["version"]) for row in rows}
        missing = [one for one in versions if (one.reservation_id, one.version) not in marked]
        await tx.execute("delivery_add", account_id=recipient.account_id, sent=_encode(missing))
        rows += await mark(missing)
    first = [row for row in rows if row["sent_at"] == tx.now_us]
    await add_history(tx, first, "delivered", recipient)
    return rows


def _encode(versions: Sequence[RenderedVersion]) -> str:
    return encode_list((one.reservation_id, one.version, one.unique_id_type) for one in versions)


async def _mark_undeliverable(
    tx: Tx, recipient: Recipient, versions: Sequence[UndeliverableVersion]
) -> list[UndeliverableVersion]:
    """Mark versions as undeliverable; they still wait. Returns those whose reason is new for this
    protocol version: an account that alternates between two versions causes one alert for each. The
    history decides, because an account that came later may have no delivery to be marked.
    """
    new: list[UndeliverableVersion] = []
    # Every unit of work locks deliveries in this order, so that two of them cannot deadlock.
    for one in sorted(versions, key=lambda one: (one.reservation_id, one.version)):
        await tx.write(
            "delivery_mark_undeliverable",
            account_id=recipient.account_id,
            reservation_id=one.reservation_id,
            version=one.version,
            undeliverable_code=one.code.value,
            undeliverable_text=one.text,
            now_us=tx.now_us,
        )
        entry = HistoryEntry(
            reservation_id=one.reservation_id,
            version=one.version,
            event="undeliverable",
            account_id=recipient.account_id,
            detail={
                "protocol": recipient.protocol.name,
                "code": one.code.value,
                "text": one.text,
            },
        )
        if await history.add_once(tx, entry):
            new.append(one)
    return new


async def add_history(
    tx: Tx, rows: Sequence[Row], event: str, recipient: Recipient, **detail: str
) -> None:
    """Add a history entry for each version in these rows: what a client account did with it."""
    known = {"protocol": recipient.protocol.name, "client_id": recipient.client_id, **detail}
    await history.add_for_each(
        tx,
        [(row["reservation_id"], row["version"]) for row in rows],
        event,
        account_id=recipient.account_id,
        detail={name: value for name, value in known.items() if value},
    )


def _alert_undeliverable(
    ctx: Context, hotel: Hotel, protocol: Protocol, versions: Sequence[UndeliverableVersion]
) -> None:
    """Send one alert for each cause; the history has an entry for each version."""
    causes: defaultdict[UndeliverableCode, list[UndeliverableVersion]] = defaultdict(list)
    for one in versions:
        causes[one.code].append(one)
    for code, ones in causes.items():
        many, ids = name_requests([one.reservation_id for one in ones])
        ctx.alert(
            f"undeliverable:{hotel.code}:{code.value}",
            f"{many} of hotel {hotel} held back, AlpineBits {protocol.name} cannot carry "
            f"this: {ones[0].text} ({ids}); "
            f"see: alpinehub requests list --hotel {hotel.code} --state undeliverable",
            ids=[hotel.code],
        )


def name_requests(ids: Sequence[str]) -> tuple[str, str]:
    """How many guest requests an alert is about, and the ids of the first."""
    many = "1 guest request" if len(ids) == 1 else f"{len(ids)} guest requests"
    more = ", ..." if len(ids) > _NAMED else ""
    return many, ", ".join(ids[:_NAMED]) + more
