"""OTA_NotifReport:GuestRequests: hotel software says what it took, and what it cannot take."""

from __future__ import annotations

from alpinehub.alpinebits.acknowledging import REPORT, acknowledge
from alpinehub.alpinebits.call import Answer, Call, read, respond
from alpinehub.alpinebits.outcome import Finding, Outcome

_UNKNOWN = "no guest request with this ID was sent to this account"


async def acknowledge_requests(call: Call) -> Answer:
    """Success; from 2022-10 on with a Warning for each ID that was never sent to this account."""
    told = await read(call, REPORT)
    unknown = await acknowledge(call.ctx, call.client, told)
    notes = (Finding(kind="advisory", text=_UNKNOWN, record=record) for record in unknown)
    return respond(call, "OTA_NotifReportRS", Outcome(tuple(notes)))
