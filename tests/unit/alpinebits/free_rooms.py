"""Parts of messages about free rooms, in both forms."""

from __future__ import annotations

COMPLETE = '<UniqueID Type="16" ID="1" Instance="CompleteSet"/>'
DZ, ROOM, CLOSED = 'InvTypeCode="DZ"', 'InvTypeCode="DZ" InvCode="101"', 'AllInvCode="true"'
LIMIT = 'BookingLimit="{}" BookingLimitMessageType="SetLimit"'


def status(limits: str, attributes: str = 'InvTypeCode="DZ"') -> str:
    return (
        f'<AvailStatusMessage {limits}><StatusApplicationControl Start="2027-01-01"'
        f' End="2027-01-10" {attributes}/></AvailStatusMessage>'
    )


def count(kind: int, number: object) -> str:
    return f'<InvCount CountType="{kind}" Count="{number}"/>'
