"""One `push.due`: bring what waits for an account of one hotel, and record what he took.

A dead, slow or failing server costs its own hotel a growing pause, and nobody else anything: the
event that comes after the pause is written in the same unit as the failure, so it survives whatever
happens. What was brought is acknowledged by the answer, exactly as a poll is by NotifReport. Only
where no answer came, or this process died before it had recorded it, the same comes once more;
its UniqueID is the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from alpinehub.alpinebits.actions.acknowledge import acknowledge
from alpinehub.alpinebits.call import Client as Reader
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.guest_requests import Sent, mark_unsent, reservations
from alpinehub.alpinebits.rules.acknowledgement import REPORT, Acknowledgement
from alpinehub.directory import directory_of
from alpinehub.pms.http import Answer, Unreachable
from alpinehub.pms.reply import read_reply
from alpinehub.push.schedule import publish, wake
from alpinehub.push.target import CLIENT_ID, Target, open_target, read_target
from cordata import Context, CordataError, Event, EventContext, Row, StoreUnavailable, Tx, fields

if TYPE_CHECKING:
    from alpinehub.alpinebits.protocol import Protocol
    from alpinehub.models import Hotel
    from alpinehub.pms.client import Client

PUSH = "OTA_HotelResNotif:GuestRequests"
#: Guest requests in one message.
_AT_ONCE = 20
#: After this time no further message is begun; what waits has an event of its own.
_BUSY_S = 30.0
#: For so long an answer is tried to be recorded while the store is away.
_KEEP_S = 30.0
#: Of the handler: a message of 30 s begun at the last moment, and the recording of its answer.
TIMEOUT_S = 2 * _BUSY_S + _KEEP_S + 30.0
#: The first pause, which each failure doubles up to the longest: of a server that cannot be
#: reached, and of one that answers, so that other guest requests may be welcome.
_PAUSE_S, _LONGEST_S, _LONGEST_ANSWERED_S = 5, 900, 120
#: After so many failures in a row each goes alone.
_ALONE_AFTER = 2
#: The operator is told from this failure in a row on: 35 s after the first.
_TOLD_AFTER = 4
#: A push.due that is so late is lost: its handler was given up, or the broker forgot it.
_LOST_US = 600 * 1_000_000

#: Nothing of the request has left this machine then: the other side was not given it.
_NOT_SENT = frozenset({"connect", "name", "forbidden"})

_UNIQUE_ID = re.compile(rb'<UniqueID Type="(1[45])" ID="(\w+)"/>')


class PushFailed(Exception):
    """Nothing, or not all was taken. The text is for people: of what was answered only codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """What a push.due is about."""

    account_id: int
    hotel: Hotel
    target: Row
    failures: int
    #: Where each goes alone: behind this one.
    after_id: str


@dataclass(slots=True)
class _Round:
    """How far a push came."""

    brought: int = 0
    #: Where the next one begins, should this one fail.
    after_id: str = ""


async def bring(event: Event, ctx: EventContext) -> None:
    """Handle a push.due. Raises: StoreUnavailable."""
    account_id, hotel_id = int(event.payload["account_id"]), int(event.payload["hotel_id"])
    due = await _read_due(ctx, account_id, hotel_id, str(event.payload.get("after_id", "")))
    if due is None:
        return
    problem, longest_s, done = "", _LONGEST_S, _Round(after_id=due.after_id)
    try:
        target = open_target(ctx, due.target)
    except CordataError:
        problem = "its password cannot be opened: restore the master key, or set it again"
    else:
        try:
            await _bring(ctx, due, target, done)
        except Unreachable as error:
            problem = str(error)
        except PushFailed as error:
            problem, longest_s = str(error), _LONGEST_ANSWERED_S
    if problem:
        await _fail(ctx, due, problem, longest_s, done.after_id)
        return
    count = done.brought
    await ctx.run(lambda tx: _settle(tx, account_id, hotel_id, brought=count))
    if count:
        extra = fields(hotel=due.hotel.code, count=count)
        ctx.log.info("account %s: %d guest requests pushed", due.target["name"], count, extra=extra)


async def _read_due(
    ctx: EventContext, account_id: int, hotel_id: int, after_id: str
) -> _Due | None:
    """None: it is not due any more, or nothing is to be brought there any more."""

    async def unit(tx: Tx) -> tuple[Row | None, Row | None, int]:
        state = await tx.fetch_one("push_state", account_id=account_id, hotel_id=hotel_id)
        return state, await read_target(tx, account_id), tx.now_us

    state, target, now_us = await ctx.store.read(unit)
    if state is None or state["due_at"] is None or state["due_at"] > now_us:
        return None
    accounts = (await directory_of(ctx).current()).accounts.values()
    hotels = next((account.hotels for account in accounts if account.id == account_id), ())
    hotel = next((hotel for hotel in hotels if hotel.id == hotel_id), None)
    if target is None or hotel is None:
        await ctx.run(lambda tx: _settle(tx, account_id, hotel_id, stop=True))
        return None
    failures = state["failures"]
    return _Due(
        account_id=account_id, hotel=hotel, target=target, failures=failures, after_id=after_id
    )


async def _bring(ctx: Context, due: _Due, target: Target, done: _Round) -> None:
    """What was taken, or refused by the hotel, is in `done`. Raises: PushFailed, Unreachable.

    Where a message was answered with an error again and again, each guest request goes alone: one
    that the other side cannot read does not keep the others. However many it cannot read: the next
    push begins where this one ended, and what waits before that comes after the last one.
    """
    client = target.client(private=ctx.settings["alpinehub"].push_private)
    reader = Reader(account_id=due.account_id, protocol=target.protocol, client_id=CLIENT_ID)
    alone = due.failures >= _ALONE_AFTER
    size, until = (1 if alone else _AT_ONCE), monotonic() + _BUSY_S
    failed: list[PushFailed] = []
    for after_id in dict.fromkeys((due.after_id if alone else "", "")):
        sent: list[Sent] = []
        pages = reservations(ctx, reader, due.hotel, size=size, after_id=after_id, sent=sent)
        async with aclosing(pages):
            async for page in pages:
                if page:  # else all of it is held
                    if alone and (found := _UNIQUE_ID.search(page[0])):
                        done.after_id = found[2].decode()
                    try:
                        done.brought += await _bring_page(
                            ctx, reader, client, page, packed=target.packed
                        )
                    except PushFailed as problem:
                        failed.append(problem)
                    except Unreachable as problem:
                        if problem.kind in _NOT_SENT:
                            await ctx.store.run(partial(mark_unsent, client=reader, sent=sent))
                        raise
                if len(failed) * size >= _AT_ONCE or monotonic() > until:
                    break
            else:
                done.after_id = ""
                continue
        break
    if failed:
        raise failed[0]


async def _bring_page(
    ctx: Context, reader: Reader, client: Client, page: Sequence[bytes], *, packed: bool
) -> int:
    """Raises: PushFailed, Unreachable."""
    found = [_UNIQUE_ID.search(xml) for xml in page]
    sent = [(one[1].decode(), one[2].decode()) for one in found if one is not None]
    answer = await client.call(PUSH, _document(page), packed=packed)
    told = read_answer(answer, reader.protocol, sent)
    await _record(ctx, reader, told)
    taken = len(told.accepted) + len(told.rejected)
    if missing := len(sent) - taken:
        raise PushFailed(f"the answer does not name {missing} of {len(sent)} that were sent")
    return taken


def _document(page: Sequence[bytes]) -> bytes:
    start = f'<?xml version="1.0" encoding="UTF-8"?>\n<OTA_HotelResNotifRQ xmlns="{NAMESPACE}"'
    return b"".join(
        (
            f'{start} Version="1.000"><HotelReservations>'.encode(),
            *page,
            b"</HotelReservations></OTA_HotelResNotifRQ>",
        )
    )


def read_answer(
    answer: Answer, protocol: Protocol, sent: Sequence[tuple[str, str]]
) -> Acknowledgement:
    """What the hotel took and refused of what was sent. Raises: PushFailed.

    An answer that breaks the schema is read as far as it says what it means: otherwise the same
    would be brought again and again to somebody who has it.
    """
    reply = read_reply(answer, "OTA_HotelResNotifRS", protocol)
    if reply.root is None:
        what = "no AlpineBits" if reply.status == 200 else "no OTA message"
        raise PushFailed(f"HTTP {reply.status}, {what}")
    if reply.outcome == "error":
        codes = ", ".join(f"{one.type}/{one.code}" for one in reply.remarks if one.kind == "error")
        raise PushFailed(f"answered with an error ({codes[:100]})")
    told = REPORT.read(reply.root)
    ids = {unique_id for _, unique_id in sent}
    return Acknowledgement(
        accepted=tuple(dict.fromkeys(one for one in told.accepted if one in sent)),
        rejected={name: text for name, text in told.rejected.items() if name in ids},
    )


async def _record(ctx: Context, reader: Reader, told: Acknowledgement) -> None:
    """Whoever was answered does not send the same again because the store was away for moments.

    Raises: StoreUnavailable.
    """
    give_up = monotonic() + _KEEP_S
    while True:
        try:
            await acknowledge(ctx, reader, told)
            return
        except StoreUnavailable as error:
            if monotonic() > give_up:
                raise
            await asyncio.sleep(min(max(error.retry_after_s, 0.1), 2.0))


async def _settle(
    tx: Tx, account_id: int, hotel_id: int, *, brought: int = 0, stop: bool = False
) -> None:
    """It went well. What was made meanwhile found this push on its way: it is looked for here."""
    who = {"account_id": account_id, "hotel_id": hotel_id}
    pushed_at = tx.now_us if brought else None
    told = {"failures": 0, "last_error": None, "pushed_at": pushed_at}
    await tx.execute("push_settle", **who, due_at=None, **told)
    if not stop and await tx.fetch_one("push_waits", **who) is not None:
        await tx.execute("push_settle", **who, due_at=tx.now_us, **told)
        await publish(tx, account_id, hotel_id, tx.now_us)


async def _fail(ctx: EventContext, due: _Due, problem: str, longest_s: int, after_id: str) -> None:
    """Try again after a pause."""
    failures = due.failures + 1
    pause_s = min(_PAUSE_S * 2 ** min(due.failures, 10), longest_s)

    async def unit(tx: Tx) -> None:
        at = tx.now_us + pause_s * 1_000_000
        await tx.execute(
            "push_settle",
            account_id=due.account_id,
            hotel_id=due.hotel.id,
            due_at=at,
            failures=failures,
            last_error=problem,
            pushed_at=None,
        )
        await publish(tx, due.account_id, due.hotel.id, at, after_id=after_id)

    await ctx.run(unit)
    name, code = due.target["name"], due.hotel.code
    ctx.log.warning(
        "account %s: guest requests of hotel %s were not brought (%d in a row), again in %d s: %s",
        *(name, code, failures, pause_s, problem),
    )
    if failures >= _TOLD_AFTER:
        ctx.alert(
            f"push:{name}:{code}",
            f"guest requests of hotel {due.hotel} cannot be brought to account {name}: {problem}; "
            f"it is tried again; see: alpinehub account push list",
            ids=[code],
        )


async def sweep(ctx: Context) -> None:
    """Begin what waits and has no push.due: after a grant, a resending, a lost event."""
    if await ctx.store.read(lambda tx: tx.fetch_all("push_hotels")):
        await ctx.store.run(lambda tx: wake(tx, lost_at=tx.now_us - _LOST_US))
