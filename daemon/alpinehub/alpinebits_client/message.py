"""The documents that a client sends: hotel software, and the hub when it pushes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from alpinehub.alpinebits.document import NAMESPACE, clean, escape_attribute, escape_text
from alpinehub.alpinebits.protocol import Protocol

#: The first protocol version whose free rooms are counts, and not limits.
_COUNTED = 2020
_COMPLETE = '<UniqueID Type="16" ID="1" Instance="CompleteSet"/>'
_BOOKABLE, _OUT_OF_ORDER, _OUT_OF_MARKET = 2, 6, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class HotelName:
    """Which hotel is meant: by its code, its name, or both."""

    code: str = ""
    name: str = ""

    def __str__(self) -> str:
        names = {"HotelCode": self.code, "HotelName": self.name}
        return _attributes({name: value for name, value in names.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """How many rooms of a kind are free from one day to another, both included.

    Without a room type it is a season in which the hotel is closed.
    """

    start: str
    end: str
    room_type: str = ""
    room: str = ""
    free: int = 0
    out_of_order: int = 0
    out_of_market: int = 0


def ping(echo: str) -> bytes:
    """OTA_PingRQ."""
    return _document("OTA_PingRQ", "8.000", f"<EchoData>{escape_text(clean(echo))}</EchoData>")


def read_requests(hotel: HotelName, since: str = "") -> bytes:
    """OTA_ReadRQ: what is not acknowledged, or everything since a moment (xs:dateTime)."""
    criteria = f'<SelectionCriteria Start="{escape_attribute(clean(since))}"/>' if since else ""
    wanted = f"<HotelReadRequest{hotel}>{criteria}</HotelReadRequest>"
    return _document("OTA_ReadRQ", "1.001", f"<ReadRequests>{wanted}</ReadRequests>")


def notif_report(accepted: Iterable[tuple[str, str]], rejected: Mapping[str, str]) -> bytes:
    """OTA_NotifReportRQ: (UniqueID type, ID) of what is accepted; ID -> why it is rejected."""
    warnings = "".join(
        f"<Warning{_attributes({'Type': '3', 'Code': '450', 'RecordID': unique_id})}>"
        f"{escape_text(clean(why))}</Warning>"
        for unique_id, why in rejected.items()
    )
    known = "".join(
        f"<HotelReservation><UniqueID{_attributes({'Type': kind, 'ID': unique_id})}/>"
        "</HotelReservation>"
        for kind, unique_id in accepted
    )
    inside = "<Success/>"
    if warnings:
        inside += f"<Warnings>{warnings}</Warnings>"
    if known:
        inside += (
            "<NotifDetails><HotelNotifReport><HotelReservations>"
            f"{known}</HotelReservations></HotelNotifReport></NotifDetails>"
        )
    return _document("OTA_NotifReportRQ", "1.000", inside)


def push_requests(reservations: Iterable[bytes]) -> bytes:
    """OTA_HotelResNotifRQ, of rendered HotelReservations."""
    inside = b"".join(reservations).decode()
    wrapped = f"<HotelReservations>{inside}</HotelReservations>"
    return _document("OTA_HotelResNotifRQ", "1.000", wrapped)


def free_rooms(
    protocol: Protocol, hotel: HotelName, periods: Iterable[Period], *, complete: bool
) -> tuple[str, bytes]:
    """The action and its document. A complete set of no periods takes everything back."""
    marked = _COMPLETE if complete else ""
    if protocol.year < _COUNTED:
        entries = "".join(map(_limit, periods)) or "<AvailStatusMessage/>"
        inside = f"{marked}<AvailStatusMessages{hotel}>{entries}</AvailStatusMessages>"
        root, version = "OTA_HotelAvailNotifRQ", "1.002"
    else:
        entries = "".join(map(_count, periods)) or "<Inventory/>"
        inside = f"{marked}<Inventories{hotel}>{entries}</Inventories>"
        root, version = "OTA_HotelInvCountNotifRQ", "4"
    return f"{root.removesuffix('RQ')}:FreeRooms", _document(root, version, inside)


def _limit(period: Period) -> str:
    limit = {"BookingLimit": str(period.free), "BookingLimitMessageType": "SetLimit"}
    return f"<AvailStatusMessage{_attributes(limit)}>{_control(period)}</AvailStatusMessage>"


def _count(period: Period) -> str:
    counts = (
        (_BOOKABLE, period.free),
        (_OUT_OF_ORDER, period.out_of_order),
        (_OUT_OF_MARKET, period.out_of_market),
    )
    counted = "".join(
        f'<InvCount CountType="{kind}" Count="{count}"/>' for kind, count in counts if count
    )
    inside = f"<InvCounts>{counted}</InvCounts>" if counted else ""
    return f"<Inventory>{_control(period)}{inside}</Inventory>"


def _control(period: Period) -> str:
    control = {"Start": period.start, "End": period.end}
    if period.room_type:
        control["InvTypeCode"] = period.room_type
    if period.room:
        control["InvCode"] = period.room
    if not (period.room_type or period.room):
        control["AllInvCode"] = "true"
    return f"<StatusApplicationControl{_attributes(control)}/>"


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escape_attribute(clean(value))}"' for name, value in values.items())


def _document(root: str, version: str, inside: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{root} xmlns="{NAMESPACE}" Version="{version}">{inside}</{root}>'
    ).encode()
