"""The requests about guest requests: their structure in each version, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alpinehub.alpinebits.document import NAMESPACE, parse
from alpinehub.alpinebits.refusal import Refusal
from alpinehub.alpinebits.structure import (
    Attribute,
    Check,
    Child,
    Element,
    anything,
    date_time,
    find_problem,
    one_of,
    positive_integer,
    text_of,
)
from alpinehub.alpinebits.version import VERSIONS, Version

if TYPE_CHECKING:
    from lxml.etree import _Element

_ROOT_ATTRIBUTES = {"Version": Attribute(anything, required=True), "TimeStamp": Attribute(anything)}
_SEND_2020 = (
    "ALPINEBITS_SEND_FREEROOMS",
    "ALPINEBITS_SEND_RATEPLANS",
    "ALPINEBITS_SEND_INVENTORY",
)
_SEND_2024 = ("ALPINEBITS_SEND_HANDSHAKE", *_SEND_2020)


def _read_request(hotel_code: Attribute, hotel_name: Check) -> Element:
    criteria = Element("SelectionCriteria", {"Start": Attribute(date_time, required=True)})
    hotel = Element(
        "HotelReadRequest",
        {"HotelCode": hotel_code, "HotelName": Attribute(hotel_name)},
        (Child(criteria, least=0),),
    )
    return Element(
        "OTA_ReadRQ", _ROOT_ATTRIBUTES, (Child(Element("ReadRequests", {}, (Child(hotel),))),)
    )


def _notif_report(record_id: Check, unique_id: Check, status: Check) -> Element:
    warning = Element(
        "Warning",
        {
            "Type": Attribute(positive_integer, required=True),
            "Code": Attribute(positive_integer, required=True),
            "RecordID": Attribute(record_id, required=True),
            "Status": Attribute(status),
        },
        text=anything,
    )
    unique = Element(
        "UniqueID",
        {
            "Type": Attribute(one_of("14", "15"), required=True),
            "ID": Attribute(unique_id, required=True),
        },
    )
    reservation = Element("HotelReservation", {}, (Child(unique),))
    reservations = Element("HotelReservations", {}, (Child(reservation, most=None),))
    report = Element("HotelNotifReport", {}, (Child(reservations),))
    return Element(
        "OTA_NotifReportRQ",
        _ROOT_ATTRIBUTES,
        (
            Child(Element("Success", open=True)),
            Child(Element("Warnings", {}, (Child(warning, most=None),)), least=0),
            Child(Element("NotifDetails", {}, (Child(report),)), least=0),
        ),
    )


_PING = Element("OTA_PingRQ", _ROOT_ATTRIBUTES, (Child(Element("EchoData", text=text_of(1))),))
_READ = {
    "2020-10": _read_request(Attribute(text_of(1)), text_of(1)),
    "2022-10": _read_request(Attribute(text_of(1, 16)), text_of(1)),
    "2024-10": _read_request(Attribute(text_of(1, 16), required=True), text_of(1, 128)),
}
_ACKNOWLEDGE = {
    "2020-10": _notif_report(text_of(1), text_of(1), one_of(*_SEND_2020)),
    "2022-10": _notif_report(text_of(1), text_of(1), one_of(*_SEND_2020)),
    "2024-10": _notif_report(text_of(1, 64), text_of(1, 32), one_of(*_SEND_2024)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """OTA_ReadRQ: which hotel's guest requests are wanted."""

    hotel_code: str | None
    hotel_name: str | None
    #: xs:dateTime as written; None: all that are not acknowledged.
    start: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """OTA_NotifReportRQ: what the hotel took, and what it could not take."""

    #: (UniqueID type, ID) of what was processed.
    accepted: tuple[tuple[str, str], ...]
    #: ID -> the hotel's words on why it could not process the request.
    refused: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of reading in another process."""

    #: None: refused, with `status` and `text`.
    acknowledgement: Acknowledgement | None = None
    status: int = 0
    text: str = ""


def read_large(payload: dict[str, Any], session: object) -> Outcome:
    """The command `read_acknowledgement`, in a child of the pool."""
    try:
        version = VERSIONS[payload["version"]]
        return Outcome(acknowledgement=read_acknowledgement(payload["document"], version))
    except Refusal as problem:
        return Outcome(status=problem.status, text=problem.text)


def read_ping(data: bytes) -> str:
    """The EchoData of an OTA_PingRQ, as received. Raises: Refusal."""
    root = _checked(data, _PING)
    return root[0].text or ""


def read_read_request(data: bytes, version: Version) -> ReadRequest:
    """What an OTA_ReadRQ asks for. Raises: Refusal."""
    root = _checked(data, _READ[version.name])
    hotel = root[0][0]
    criteria = hotel[0] if len(hotel) else None
    return ReadRequest(
        hotel_code=_get(hotel, "HotelCode"),
        hotel_name=_get(hotel, "HotelName"),
        start=_get(criteria, "Start") if criteria is not None else None,
    )


#: Type "business rule", code "unable to process": the one form in which a request is refused.
_UNABLE_TO_PROCESS = ("3", "450")
_MAX_REFUSAL_CHARS = 2000


def read_acknowledgement(data: bytes, version: Version) -> Acknowledgement:
    """What an OTA_NotifReportRQ reports. Raises: Refusal.

    A refusal is a Warning of Type 3 and Code 450 whose ID is not among the accepted; other
    warnings are remarks on what was accepted and change nothing.
    """
    root = _checked(data, _ACKNOWLEDGE[version.name])
    accepted = tuple(
        (_get(unique, "Type") or "", _get(unique, "ID") or "") for unique in _all(root, "UniqueID")
    )
    taken = {unique_id for _, unique_id in accepted}
    refused: dict[str, str] = {}
    for warning in _all(root, "Warning"):
        kind, code = ((_get(warning, name) or "").strip().lstrip("0") for name in ("Type", "Code"))
        record_id = _get(warning, "RecordID") or ""
        if (kind, code) == _UNABLE_TO_PROCESS and record_id not in taken:
            text = " ".join((warning.text or "").split())
            refused.setdefault(record_id, text[:_MAX_REFUSAL_CHARS])
    return Acknowledgement(accepted=accepted, refused=refused)


def _checked(data: bytes, expected: Element) -> _Element:
    root = parse(data)
    problem = find_problem(root, expected)
    if problem is not None:
        raise Refusal(400, f"the request does not conform to the schema: {problem}")
    return root


def _get(element: _Element, name: str) -> str | None:
    value = element.get(name)
    return None if value is None else str(value)


def _all(root: _Element, name: str) -> Iterator[_Element]:
    return root.iter(f"{{{NAMESPACE}}}{name}")
