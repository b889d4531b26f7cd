"""Checks of guest requests: read, acknowledge, reject."""

from __future__ import annotations

from collections.abc import Iterator

from alpinehub.alpinebits.action import ACKNOWLEDGE, READ
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.guest import Received, read
from alpinehub.alpinebits_client.message import HotelName
from alpinehub.alpinebits_client.reply import Reply
from alpinehub.check.peer import NO_HOTEL, Peer
from alpinehub.check.suite import PASSED, Check, CheckFailed, Result, failed, skipped, warning
from alpinehub.check.transport import refused

#: A Start before all guest requests, and one after all.
_LONG_AGO, _FAR_AHEAD = "1990-01-01T00:00:00+00:00", "2990-01-01T00:00:00+00:00"
_NO_ID = "ffffffffffffffffffffffffffffff01"
_INVALID_HOTEL = "392"
_SHOWN = 3


def _require_success(reply: Reply) -> None:
    """Raises: CheckFailed for an answer that is no valid success."""
    if reply.outcome not in ("success", "advisory"):
        remarks = "; ".join(f"{one.kind} {one.code}" for one in reply.remarks[:_SHOWN])
        raise CheckFailed(reply.text or f"the outcome is {reply.outcome} ({remarks})")
    if reply.invalid:
        raise CheckFailed(f"it breaks the schema: {reply.invalid}")


def _received(reply: Reply) -> list[Received]:
    return [read(one) for one in reply.all("HotelReservation")]


def _ids(reply: Reply) -> set[tuple[str, str]]:
    return {(one.type, one.id) for one in _received(reply)}


async def listing(peer: Peer) -> Result:
    """The list is a valid success, empty or not."""
    _require_success(await peer.requests())
    return PASSED


async def content(peer: Peer) -> Result:
    """The rules for guest requests that are not in the schema."""
    received = _received(await peer.requests(_LONG_AGO))
    if not received:
        return skipped("the hotel has no guest requests")
    wrong = [f"{one.id[:40]}: {what}" for one in received for what in _mistakes(one)]
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return failed("; ".join(wrong[:_SHOWN]) + more) if wrong else PASSED


def _mistakes(one: Received) -> Iterator[str]:
    data = one.data
    if (one.type == "15") != (one.res_status == "Cancelled"):
        yield f"UniqueID Type {one.type} with ResStatus {one.res_status}"
    if len(one.id) > 32:
        yield "an ID of more than 32 characters"
    if one.res_status in ("Reserved", "Modify"):
        values = (
            data.room_type,
            data.total is not None,
            data.arrival,
            data.departure,
            data.meal_plan,
        )
        names = ("RoomTypeCode", "Total", "Start", "End", "MealsIncluded")
        missing = [name for name, value in zip(names, values, strict=True) if not value]
        if missing:
            yield f"a reservation without {', '.join(missing)}"
    if one.res_status == "Requested" and data.arrival and not data.adults and not data.children:
        yield "a request without GuestCounts"


async def unknown_hotel(peer: Peer) -> Result:
    """A hotel that does not exist: 200, Error 13/392."""
    reply = await peer.requests(hotel=NO_HOTEL)
    if reply.outcome != "error":
        return failed(reply.text or f"the outcome is {reply.outcome}, not error")
    if reply.invalid:
        return failed(f"it breaks the schema: {reply.invalid}")
    codes = [one.code for one in reply.remarks if one.kind == "error"]
    if _INVALID_HOTEL in codes:
        return PASSED
    return warning(f"the error's code is {', '.join(codes) or 'missing'}, not {_INVALID_HOTEL}")


async def foreign_hotel(peer: Peer) -> Result:
    """A hotel of another account is answered as an unknown hotel."""
    if not peer.foreign_hotel:
        return skipped("runs only with --foreign-hotel")
    names = (peer.foreign_hotel, NO_HOTEL)
    bodies = []
    for name in names:
        document = message.read_requests(HotelName(code=name))
        answer = await peer.call(READ, document)
        bodies.append((answer.status, answer.body.replace(name.encode(), b"")))
    if bodies[0] == bodies[1]:
        return PASSED
    return failed("the answers for a hotel of another account and for an unknown hotel differ")


async def two_hotels(peer: Peer) -> Result:
    """A request for two hotels."""
    one = b'<HotelReadRequest HotelCode="X"></HotelReadRequest>'
    document = message.read_requests(HotelName(code="X")).replace(one, one + one)
    return refused(await peer.call(READ, document), 400)


async def no_hotel(peer: Peer) -> Result:
    """A request without HotelCode, which the schema requires from 2024-10 on."""
    return refused(await peer.call(READ, message.read_requests(HotelName())), 400)


async def invalid_start(peer: Peer) -> Result:
    """A Start that is not a valid time."""
    document = message.read_requests(HotelName(code=peer.hotel or "X"), "2026-02-30T25:00:00")
    return refused(await peer.call(READ, document), 400)


async def again(peer: Peer) -> Result:
    """Requests that are not acknowledged are delivered again."""
    first = _ids(await peer.requests())
    if not first:
        return skipped("no guest request waits")
    lost = first - _ids(await peer.requests())
    return failed(f"{len(lost)} of {len(first)} are gone after they were read") if lost else PASSED


async def all_since(peer: Peer) -> Result:
    """With SelectionCriteria all requests created since then are delivered."""
    everything = await peer.requests(_LONG_AGO)
    _require_success(everything)
    waiting = _ids(await peer.requests())
    if lost := waiting - _ids(everything):
        return failed(f"{len(lost)} that wait are not in the list of all requests")
    return PASSED


async def none_since(peer: Peer) -> Result:
    """With a Start in the future nothing is delivered."""
    reply = await peer.requests(_FAR_AHEAD)
    _require_success(reply)
    return failed("Start is ignored") if _received(reply) else PASSED


async def unknown_id(peer: Peer) -> Result:
    """Acknowledging a guest request that does not exist is a success."""
    return await _acknowledge(peer, [("14", _NO_ID)], {})


async def unknown_refusal(peer: Peer) -> Result:
    """Rejecting a guest request that does not exist is also a success."""
    return await _acknowledge(peer, [], {_NO_ID: "no such room"})


async def empty_acknowledgement(peer: Peer) -> Result:
    """An empty acknowledgement is a success."""
    return await _acknowledge(peer, [], {})


async def _acknowledge(
    peer: Peer, taken: list[tuple[str, str]], refusals: dict[str, str]
) -> Result:
    answer = await peer.call(ACKNOWLEDGE, message.notif_report(taken, refusals))
    _require_success(peer.read(answer, "OTA_NotifReportRS"))
    return PASSED


async def acknowledged(peer: Peer) -> Result:
    """Acknowledged requests, even if twice, are delivered again only with SelectionCriteria."""
    return await _take_one(peer, refuse=False)


async def refusal(peer: Peer) -> Result:
    """Rejected requests, even if twice, are delivered again only with SelectionCriteria."""
    return await _take_one(peer, refuse=True)


async def _take_one(peer: Peer, *, refuse: bool) -> Result:
    waiting = sorted(_ids(await peer.requests()))
    if not waiting:
        return skipped("no guest request waits")
    one = waiting[0]
    taken, refusals = ([], {one[1]: "a test of this server"}) if refuse else ([one], {})
    for _ in range(2):
        await _acknowledge(peer, taken, refusals)
    if one in _ids(await peer.requests()):
        return failed("it was delivered again")
    return (
        PASSED
        if one in _ids(await peer.requests(_LONG_AGO))
        else failed("SelectionCriteria no longer finds it")
    )


CHECKS = (
    # First: if a server drops requests that were read, none are left for the other checks.
    Check("guest.again", "not acknowledged: delivered again", again, True, of_hotel=True),
    Check("guest.list", "the list is valid", listing, True, of_hotel=True),
    Check("guest.content", "each guest request is complete", content, True, of_hotel=True),
    Check("guest.unknown-hotel", "an unknown hotel: Error 392", unknown_hotel, True),
    Check("guest.foreign-hotel", "another account's hotel: the same", foreign_hotel, True),
    Check("guest.two-hotels", "two hotels at once: 400", two_hotels, True),
    Check("guest.no-hotel", "no HotelCode: 400", no_hotel, True, since=2024),
    Check("guest.bad-moment", "an invalid Start: 400", invalid_start, True),
    Check("guest.since", "SelectionCriteria: all since Start", all_since, True, of_hotel=True),
    Check(
        "guest.since-later",
        "SelectionCriteria: none before Start",
        none_since,
        True,
        of_hotel=True,
    ),
    Check("guest.unknown-id", "acknowledging an unknown ID: Success", unknown_id, True),
    Check("guest.unknown-refusal", "rejecting an unknown ID: Success", unknown_refusal, True),
    Check("guest.nothing", "an empty acknowledgement: Success", empty_acknowledgement, True),
    Check(
        "guest.ack",
        "acknowledged: not delivered again",
        acknowledged,
        True,
        of_hotel=True,
        writes=True,
    ),
    Check(
        "guest.refuse", "rejected: not delivered again", refusal, True, of_hotel=True, writes=True
    ),
)
