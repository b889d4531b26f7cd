from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.integration.alpinebits import material

from alpinehub.alpinebits.message import (
    Acknowledgement,
    ReadRequest,
    read_acknowledgement,
    read_ping,
    read_read_request,
)
from alpinehub.alpinebits.refusal import Refusal
from alpinehub.alpinebits.version import VERSIONS

NAMES = list(VERSIONS)
SAMPLES = (
    ("2020-10", "GuestRequests-OTA_ReadRQ-ack.xml"),
    ("2020-10", "GuestRequests-OTA_ReadRQ.xml"),
    ("2020-10", "Handshake-OTA_PingRQ.xml"),
    ("2024-10", "GuestRequests-Acknowledgments-OTA_NotifReportRQ-warning.xml"),
    ("2024-10", "GuestRequests-Acknowledgments-OTA_NotifReportRQ.xml"),
    ("2024-10", "GuestRequests-OTA_ReadRQ-selection-criteria.xml"),
    ("2024-10", "GuestRequests-OTA_ReadRQ.xml"),
    ("2024-10", "Handshake-OTA_PingRQ.xml"),
    ("2017-10", "GuestRequests-OTA_ReadRQ-invalid.xml"),
)
VALUES = (
    *("", "x", " ", "14", "15", "0", "00", " 3 ", "+3", "-1", "9" * 5000),
    *("a" * length for length in (16, 17, 32, 33, 64, 65, 128, 129)),
    *("2022-02-30T00:00:00Z", "2024-02-29T24:00:00", " 2022-01-01T00:00:00+14:00 "),
    *("2022-01-01T00:00:00+14:01", "-0044-01-01T00:00:00", "12022-01-01T00:00:00.5Z"),
    *("2022-01-01", "2022-1-1T00:00:00", "2022-01-01T24:00:01", "2100-02-29T00:00:00Z"),
    *("ALPINEBITS_SEND_HANDSHAKE", "ALPINEBITS_SEND_INVENTORY"),
)
ATTRIBUTES = (
    *("HotelCode", "HotelName", "Start", "Version", "TimeStamp", "Type", "ID", "Code"),
    *("RecordID", "Status", "foo", "{http://www.w3.org/XML/1998/namespace}lang"),
    "{http://www.w3.org/2001/XMLSchema-instance}schemaLocation",
)


def accepts(document: bytes, version: str) -> bool:
    """Whether the reader of the document's kind takes it."""
    readers: dict[str, Callable[[], object]] = {
        "OTA_PingRQ": lambda: read_ping(document),
        "OTA_ReadRQ": lambda: read_read_request(document, VERSIONS[version]),
        "OTA_NotifReportRQ": lambda: read_acknowledgement(document, VERSIONS[version]),
    }
    try:
        readers[etree.QName(etree.fromstring(document)).localname]()
    except Refusal as refusal:
        assert refusal.status == 400
        return False
    return True


def mutate(root: etree._Element, rnd: random.Random) -> None:
    """One small change, right or wrong."""
    elements = list(root.iter())
    element = rnd.choice(elements)
    parent = element.getparent()
    change = rnd.randrange(8)
    if change == 0 and parent is not None:
        parent.remove(element)
    elif change == 1:
        element.set(rnd.choice([str(a) for a in element.attrib] or ["foo"]), rnd.choice(VALUES))
    elif change == 2:
        element.set(rnd.choice(ATTRIBUTES), rnd.choice(VALUES))
    elif change == 3 and element.attrib:
        del element.attrib[rnd.choice([str(a) for a in element.attrib])]
    elif change == 4:
        element.insert(rnd.randrange(len(element) + 1), copy.deepcopy(rnd.choice(elements)))
    elif change == 5 and parent is not None:
        element.addnext(copy.deepcopy(element))
    elif change == 6:
        element.text = rnd.choice([None, "", " ", "x", "\n"])
    elif parent is not None:
        element.tag = rnd.choice(["{http://www.opentravel.org/OTA/2003/05}Foo", "Success"])


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize(("folder", "name"), SAMPLES)
def test_request_is_taken_exactly_when_the_schema_takes_it(
    folder: str, name: str, version: str
) -> None:
    document = material.message(folder, name)
    assert accepts(document, version) == (material.problems(document, version) == [])


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), sample=st.sampled_from(SAMPLES))
def test_request_is_taken_exactly_when_the_schema_takes_it_when_it_is_changed(
    seed: int, sample: tuple[str, str]
) -> None:
    rnd = random.Random(seed)
    parser = etree.XMLParser(remove_comments=True)
    root = etree.fromstring(material.message(*sample), parser)
    for _ in range(rnd.choice((1, 1, 2))):
        mutate(root, rnd)
    document = etree.tostring(root)
    for version in NAMES:
        assert accepts(document, version) == (material.problems(document, version) == [])


def read_rq(inner: str) -> bytes:
    return (
        '<OTA_ReadRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.001"><ReadRequests>'
        f"{inner}</ReadRequests></OTA_ReadRQ>"
    ).encode()


def test_read_request_says_hotel_and_start() -> None:
    document = read_rq(
        '<HotelReadRequest HotelCode="1" HotelName="&quot;Zur Post&quot;">'
        '<SelectionCriteria Start="2022-03-21T15:00:00+01:00"/></HotelReadRequest>'
    )
    assert read_read_request(document, VERSIONS["2024-10"]) == ReadRequest(
        hotel_code="1", hotel_name='"Zur Post"', start="2022-03-21T15:00:00+01:00"
    )


def test_read_request_needs_a_code_when_the_version_is_2024() -> None:
    document = read_rq('<HotelReadRequest HotelName="Zur Post"/>')
    assert read_read_request(document, VERSIONS["2022-10"]).hotel_code is None
    with pytest.raises(Refusal, match="HotelReadRequest/@HotelCode is missing"):
        read_read_request(document, VERSIONS["2024-10"])


def report(warnings: str, *unique_ids: tuple[int, str]) -> bytes:
    ids = "".join(
        f'<HotelReservation><UniqueID Type="{kind}" ID="{unique}"/></HotelReservation>'
        for kind, unique in unique_ids
    )
    details = (
        f"<NotifDetails><HotelNotifReport><HotelReservations>{ids}</HotelReservations>"
        "</HotelNotifReport></NotifDetails>"
        if ids
        else ""
    )
    held = f"<Warnings>{warnings}</Warnings>" if warnings else ""
    return (
        '<OTA_NotifReportRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.000">'
        f"<Success/>{held}{details}</OTA_NotifReportRQ>"
    ).encode()


def test_acknowledgement_tells_accepted_from_refused() -> None:
    document = report(
        '<Warning Type="3" Code="450" RecordID="bad">Room  type\n unknown</Warning>'
        '<Warning Type="3" Code="450" RecordID="taken">but taken all the same</Warning>'
        '<Warning Type="11" Code="450" RecordID="advice">only advice</Warning>'
        '<Warning Type="3" Code="99" RecordID="other">another code</Warning>'
        '<Warning Type=" 03 " Code="0450" RecordID="odd"/>',
        (14, "taken"),
        (15, "gone"),
    )
    assert read_acknowledgement(document, VERSIONS["2024-10"]) == Acknowledgement(
        accepted=(("14", "taken"), ("15", "gone")),
        refused={"bad": "Room type unknown", "odd": ""},
    )


def test_acknowledgement_may_hold_nothing() -> None:
    assert read_acknowledgement(report(""), VERSIONS["2020-10"]) == Acknowledgement(
        accepted=(), refused={}
    )
