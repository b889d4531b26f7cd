"""ResGlobalInfo: what is included, what the guest wrote, pets, ids and campaign, the hotel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpinehub.alpinebits.guest.person import language
from alpinehub.alpinebits.guest.record import Record
from alpinehub.alpinebits.guest.remark import remarks
from alpinehub.alpinebits.markup import attribute, clean, text
from alpinehub.alpinebits.protocol import ADDITIONAL, CUSTOMER, SERVICES, Protocol
from alpinehub.reservations import ReservationData

if TYPE_CHECKING:
    from alpinehub.models import Hotel

_MAX_RES_ID_CHARS = 64
_MAX_HOTEL_NAME_CHARS = 128
#: OTA unique id types: what a HotelReservationID tells.
_RESERVATION, _INTERNET_BROKER = 14, 13


#: How pets are told, by `Protocol.pets`.
_PETS = {"name": 'Name="PETS"', "code": 'RequestCode="PETS" CodeContext="ALPINEBITS"', "": ""}


def global_info(record: Record, hotel: Hotel, protocol: Protocol) -> str:
    """ResGlobalInfo."""
    name = clean(hotel.name)[:_MAX_HOTEL_NAME_CHARS]
    named = f' HotelName="{attribute(name)}"' if name else ""
    return (
        f"<ResGlobalInfo>{_comments(record.data, hotel, protocol)}{_pets(record.data, protocol)}"
        f"{_ids(record)}"
        f'<BasicPropertyInfo HotelCode="{attribute(clean(hotel.code))}"{named}/></ResGlobalInfo>'
    )


def _comments(data: ReservationData, hotel: Hotel, protocol: Protocol) -> str:
    """One of each name; what has no place of its own in a version is with the guest's words."""
    message, remark = clean(data.message).strip(), remarks(data, hotel, protocol)
    if ADDITIONAL not in protocol.comments:
        message, remark = "\n\n".join(filter(None, (message, remark))), ""
    told = {
        SERVICES: _services(data, hotel),
        CUSTOMER: message and f"<Text>{text(message)}</Text>",
        ADDITIONAL: remark and f"<Text>{text(remark)}</Text>",
    }
    comments = "".join(
        f'<Comment Name="{name}">{said}</Comment>' for name, said in told.items() if said
    )
    return comments and f"<Comments>{comments}</Comments>"


def _services(data: ReservationData, hotel: Hotel) -> str:
    """A list where its language is known, else lines."""
    lines = [line for service in data.services if (line := clean(service).strip())]
    said = language(data, hotel)
    if not (lines and said):
        return f"<Text>{text(chr(10).join(lines))}</Text>" if lines else ""
    return "".join(
        f'<ListItem ListItem="{number}" Language="{said}">{text(line)}</ListItem>'
        for number, line in enumerate(lines, 1)
    )


def _pets(data: ReservationData, protocol: Protocol) -> str:
    if not (data.pets and protocol.pets):
        return ""
    return f"<SpecialRequests><SpecialRequest {_PETS[protocol.pets]}/></SpecialRequests>"


def _ids(record: Record) -> str:
    """The source's own id, and what is known of the campaign that brought the guest."""
    data = record.data
    click = data.gclid or data.fbclid
    utm = data.utm
    ids = _id(_RESERVATION, record.external_id, record.source, "")
    if click or utm:
        value = click or utm.get("campaign", "")
        ids += _id(_INTERNET_BROKER, value, utm.get("source", ""), utm.get("medium", ""))
    return f"<HotelReservationIDs>{ids}</HotelReservationIDs>" if ids else ""


def _id(kind: int, value: str, source: str, context: str) -> str:
    """A HotelReservationID; its three texts are cut where the schema ends them."""
    names = ("ResID_Value", "ResID_Source", "ResID_SourceContext")
    told = {
        name: clean(said)[:_MAX_RES_ID_CHARS]
        for name, said in zip(names, (value, source, context), strict=True)
    }
    if not (told["ResID_Value"] or (kind == _INTERNET_BROKER and any(told.values()))):
        return ""
    attributes = "".join(f' {name}="{attribute(said)}"' for name, said in told.items() if said)
    return f'<HotelReservationID ResID_Type="{kind}"{attributes}/>'
