"""The handler of `push.due`: pushes the guest requests of one hotel that wait for an account, and
records the answer.

A dead, slow or failing server delays only its own hotel, by growing pauses. The event after the
pause is written in the same unit of work as the failure, so that no crash loses it. The answer
acknowledges a push as a NotifReport acknowledges a poll. If no answer comes, or this process dies
before it has recorded the answer, the same requests are pushed once more, with the same UniqueID.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import uniform
from time import monotonic

from msgspec import Struct

from alpinehub.alpinebits.action import PUSH
from alpinehub.alpinebits.actions.acknowledge import acknowledge
from alpinehub.alpinebits.call import Recipient
from alpinehub.alpinebits.guest_requests import (
    Cursor,
    RenderedVersion,
    list_page,
    record_sent_if_waiting,
)
from alpinehub.alpinebits.rules.acknowledgement import REPORT, Acknowledgement
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.client import AlpineBitsClient
from alpinehub.alpinebits_client.http import HttpResponse, RequestFailed
from alpinehub.alpinebits_client.reply import read_reply
from alpinehub.directory import directory_of
from alpinehub.models import Hotel
from alpinehub.push.schedule import LONGEST_PAUSE_S, publish, wake
from alpinehub.push.target import CLIENT_ID, HTTP_TIMEOUT_S, open_client, read_target
from cordata import Context, CordataError, Event, EventContext, Row, StoreUnavailable, Tx, fields

#: Guest requests in one message.
_AT_ONCE = 20
#: After this time no further message is begun; what still waits gets an event of its own.
_BUSY_S = 30.0
#: How long to try to record an answer while the store is away.
_RECORD_S = 30.0
#: Of the handler: a message begun at the last moment, with its connection, its answer and the
#: recording of it, and a reserve.
TIMEOUT_S = _BUSY_S + 2 * HTTP_TIMEOUT_S + _RECORD_S + 30.0
#: The first pause in seconds, doubled by each failure, up to LONGEST_PAUSE_S; the longest if the
#: server answers, since it may accept other guest requests.
_PAUSE_S, _LONGEST_ANSWERED_S = 5, 120
#: Pauses are shorter by up to this share, so that servers which failed together are not called
#: together again.
_JITTER = 0.1
#: After this many failures in a row each guest request goes alone.
_ALONE_AFTER = 2
#: From this failure in a row on there is an alert: 35 s after the first.
_ALERT_AFTER = 4
#: A push.due that is at least this late is lost: its handler was cancelled, or the broker lost it.
_LOST_US = 600 * 1_000_000


class PushFailed(Exception):
    """Not all was accepted. The text is for people, and holds only codes of the answer."""


class _Due(Struct, kw_only=True):
    """The work of one push.due, and its progress."""

    account_id: int
    hotel: Hotel
    target: Row
    failures: int
    #: The push begins after this id, then continues from the start of the list; "": it begins
    #: there. It advances with the push: if that fails, the next one begins there.
    after_id: str
    #: How many guest requests were accepted or rejected.
    pushed: int = 0


async def deliver(event: Event, ctx: EventContext) -> None:
    """Handle a push.due. Raises: StoreUnavailable."""
    account_id, hotel_id = int(event.payload["account_id"]), int(event.payload["hotel_id"])
    due = await _read_due(ctx, account_id, hotel_id, str(event.payload.get("after_id", "")))
    if due is None:
        return
    problem, longest_s = "", LONGEST_PAUSE_S
    try:
        server = open_client(ctx, due.target)
    except CordataError:
        problem = (
            "its password cannot be decrypted: restore the master key, or set the password again"
        )
    else:
        try:
            failed = await _push(ctx, due, server)
        except RequestFailed as error:
            problem = str(error)
        else:
            if failed is not None:
                problem, longest_s = str(failed), _LONGEST_ANSWERED_S
    if problem:
        await _fail(ctx, due, problem, longest_s)
        return
    await ctx.run(lambda tx: _settle(tx, account_id, hotel_id, pushed=due.pushed))
    if due.pushed:
        extra = fields(hotel=due.hotel.code, count=due.pushed)
        name = due.target["name"]
        ctx.log.info("account %s: %d guest requests pushed", name, due.pushed, extra=extra)


async def _read_due(
    ctx: EventContext, account_id: int, hotel_id: int, after_id: str
) -> _Due | None:
    """The work of a push.due; None: it is no longer due, or there is no push target any more."""

    async def unit(tx: Tx) -> tuple[Row | None, Row | None, int]:
        state = await tx.fetch_one("push_state", account_id=account_id, hotel_id=hotel_id)
        return state, await read_target(tx, account_id), tx.now_us

    state, target, now_us = await ctx.store.read(unit)
    if state is None or state["due_at"] is None or state["due_at"] > now_us:
        return None
    accounts = (await directory_of(ctx).snapshot()).accounts.values()
    hotels = next((account.hotels for account in accounts if account.id == account_id), ())
    hotel = next((hotel for hotel in hotels if hotel.id == hotel_id), None)
    if target is None or hotel is None:
        await ctx.run(lambda tx: _settle(tx, account_id, hotel_id, stop=True))
        return None
    failures = state["failures"]
    return _Due(
        account_id=account_id, hotel=hotel, target=target, failures=failures, after_id=after_id
    )


async def _push(ctx: Context, due: _Due, server: AlpineBitsClient) -> PushFailed | None:
    """Push what waits; returns the first failure of a message. Raises: RequestFailed.

    After repeated errors each guest request is sent alone, so that one that the server cannot read
    does not stop the others. The next push begins where this one ended, and continues from the
    start of the list, so that any number of such requests stops no other.
    """
    recipient = Recipient(
        account_id=due.account_id, protocol=server.login.protocol, client_id=CLIENT_ID
    )
    gzip, alone = bool(due.target["gzip"]), due.failures >= _ALONE_AFTER
    size, until = (1 if alone else _AT_ONCE), monotonic() + _BUSY_S
    failed: list[PushFailed] = []
    for after_id in dict.fromkeys((due.after_id, "")):
        cursor: Cursor | None = Cursor(after_id=after_id)
        while cursor is not None:
            page = await list_page(ctx, recipient, due.hotel, cursor, size=size)
            if page.versions:  # else all of it is undeliverable
                if alone:
                    due.after_id = page.versions[0].reservation_id
                try:
                    taken = await _push_page(ctx, recipient, server, page.versions, gzip=gzip)
                    due.pushed += taken
                except PushFailed as problem:
                    failed.append(problem)
            if len(failed) * size >= _AT_ONCE or monotonic() > until:
                return next(iter(failed), None)
            cursor = page.next
        due.after_id = ""
    return next(iter(failed), None)


async def _push_page(
    ctx: Context,
    recipient: Recipient,
    server: AlpineBitsClient,
    page: Sequence[RenderedVersion],
    *,
    gzip: bool,
) -> int:
    """Send one message; returns how many requests were accepted or rejected. They are recorded as
    sent once the connection is established: a server that cannot be reached has got nothing. What
    does not wait any more by then is not sent.

    Raises: PushFailed, RequestFailed.
    """
    async with server.http.connect(server.login.url) as connection:
        page = await record_sent_if_waiting(ctx, recipient, page)
        if not page:
            return 0
        document = message.push_requests(one.xml for one in page)
        answer = await connection.call(*server.request(PUSH, document, gzip=gzip))
    sent = [(str(one.unique_id_type), one.reservation_id) for one in page]
    report = read_answer(answer, sent)
    await _record(ctx, recipient, report)
    taken = len(report.accepted) + len(report.rejected)
    if missing := len(sent) - taken:
        raise PushFailed(f"the answer does not name {missing} of {len(sent)} that were sent")
    return taken


def read_answer(answer: HttpResponse, sent: Sequence[tuple[str, str]]) -> Acknowledgement:
    """What the hotel accepted and rejected of what was sent. Raises: PushFailed.

    The answer is not validated, but read as far as it is understood: otherwise the same requests
    would be pushed again and again to a server that has them.
    """
    reply = read_reply(answer, "OTA_HotelResNotifRS")
    if reply.root is None:
        what = "no AlpineBits" if reply.status == 200 else "no OTA message"
        raise PushFailed(f"HTTP {reply.status}, {what}")
    if reply.outcome == "error":
        codes = ", ".join(f"{one.type}/{one.code}" for one in reply.remarks if one.kind == "error")
        raise PushFailed(f"answered with an error ({codes[:100]})")
    report = REPORT.read(reply.root)
    ids = {unique_id for _, unique_id in sent}
    return Acknowledgement(
        accepted=tuple(dict.fromkeys(one for one in report.accepted if one in sent)),
        rejected={name: text for name, text in report.rejected.items() if name in ids},
    )


async def _record(ctx: Context, recipient: Recipient, report: Acknowledgement) -> None:
    """Record an answer; while the store is unavailable, retry for _RECORD_S, so that the same
    requests are not pushed again.

    Raises: StoreUnavailable.
    """
    give_up = monotonic() + _RECORD_S
    while True:
        try:
            await acknowledge(ctx, recipient, report)
            return
        except StoreUnavailable as error:
            if monotonic() > give_up:
                raise
            await asyncio.sleep(min(max(error.retry_after_s, 0.1), 2.0))


async def _settle(
    tx: Tx, account_id: int, hotel_id: int, *, pushed: int = 0, stop: bool = False
) -> None:
    """End a successful push. Versions made meanwhile published no push.due, so look for them."""
    who = {"account_id": account_id, "hotel_id": hotel_id}
    pushed_at = tx.now_us if pushed else None
    state = {"failures": 0, "last_error": None, "pushed_at": pushed_at}
    await tx.execute("push_settle", **who, due_at=None, **state)
    if not stop and await tx.fetch_one("push_waits", **who) is not None:
        await tx.execute("push_settle", **who, due_at=tx.now_us, **state)
        await publish(tx, account_id, hotel_id, tx.now_us)


async def _fail(ctx: EventContext, due: _Due, problem: str, longest_s: int) -> None:
    """Record a failure, and push again after a pause."""
    failures = due.failures + 1
    pause_s = min(_PAUSE_S * 2 ** min(due.failures, 10), longest_s) * uniform(1 - _JITTER, 1)

    async def unit(tx: Tx) -> None:
        at = tx.now_us + round(pause_s * 1_000_000)
        await tx.execute(
            "push_settle",
            account_id=due.account_id,
            hotel_id=due.hotel.id,
            due_at=at,
            failures=failures,
            last_error=problem,
            pushed_at=None,
        )
        await publish(tx, due.account_id, due.hotel.id, at, after_id=due.after_id)

    await ctx.run(unit)
    name, code = due.target["name"], due.hotel.code
    ctx.log.warning(
        "account %s: push of hotel %s failed (%d in a row), again in %.0f s: %s",
        *(name, code, failures, pause_s, problem),
    )
    if failures >= _ALERT_AFTER:
        ctx.alert(
            f"push:{name}:{code}",
            f"guest requests of hotel {due.hotel} cannot be pushed to account {name}: {problem}; "
            f"the hub tries again; see: alpinehub account push list",
            ids=[code],
        )


async def sweep(ctx: Context) -> None:
    """Publish missing push.due events: after a grant, a resend, or the loss of an event."""
    await ctx.run(lambda tx: wake(tx, lost_at=tx.now_us - _LOST_US))
