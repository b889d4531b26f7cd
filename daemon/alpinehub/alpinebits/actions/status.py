"""OTA_HotelResNotif:GuestRequests_StatusUpdate: hotel software says what became of requests."""

from __future__ import annotations

from alpinehub.alpinebits.call import Answer, Call, read, respond
from alpinehub.alpinebits.markup import attribute
from alpinehub.alpinebits.outcome import Finding, Outcome, failed
from alpinehub.alpinebits.rules.inbound import UNABLE
from alpinehub.alpinebits.status import STATUSES, note_statuses

_RESPONSE = "OTA_HotelResNotifRS"
_UNKNOWN = "no guest request of this account's hotels has this ID"


async def update_statuses(call: Call) -> Answer:
    """Success with all IDs, and a remark on each that is not known: there is nothing to do about
    it, and hotel software that repeats what fails would repeat it for ever.
    """
    told = (await read(call, STATUSES)).told
    hotels = {one.id: one for one in call.account.hotels if one.offers("status_update")}
    known = await note_statuses(call.ctx, call.client, hotels, told)
    if not told:
        return respond(call, _RESPONSE, failed(UNABLE, "there is no HotelReservation"))
    unknown = dict.fromkeys(one.id for one in told if one.id not in known)
    notes = (
        Finding(kind="advisory", code=UNABLE, text=_UNKNOWN, record=record) for record in unknown
    )
    taken = dict.fromkeys((one.kind, one.id) for one in told)
    inside = "".join(
        f'<HotelReservation><UniqueID Type="{kind}" ID="{attribute(name)}"/></HotelReservation>'
        for kind, name in taken
    )
    inside = f"<HotelReservations>{inside}</HotelReservations>"
    return respond(call, _RESPONSE, Outcome(tuple(notes)), inside)
