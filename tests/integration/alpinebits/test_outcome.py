"""Every response in every outcome and version, against the schemas."""

from __future__ import annotations

import pytest
from lxml import etree
from tests.integration.alpinebits import material

from alpinehub.alpinebits.outcome import Finding, Outcome, answer, error
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol
from alpinehub.alpinebits.transport_error import TransportError

#: Root -> first year, and what must follow Success.
ROOTS = {
    "OTA_ResRetrieveRS": (2017, "<ReservationsList/>"),
    "OTA_NotifReportRS": (2017, ""),
    "OTA_HotelResNotifRS": (
        2018,
        '<HotelReservations><HotelReservation><UniqueID Type="14" ID="1"/></HotelReservation>'
        "</HotelReservations>",
    ),
    "OTA_HotelAvailNotifRS": (2017, ""),
    "OTA_HotelInvCountNotifRS": (2020, ""),
    "OTA_HotelDescriptiveContentNotifRS": (2017, ""),
    "OTA_HotelDescriptiveInfoRS": (
        2017,
        "<HotelDescriptiveContents><HotelDescriptiveContent HotelCode='1'/>"
        "</HotelDescriptiveContents>",
    ),
    "OTA_HotelRatePlanNotifRS": (2017, ""),
    "OTA_HotelRatePlanRS": (2017, "<RatePlans HotelCode='1'><RatePlan/></RatePlans>"),
    "OTA_HotelPostEventNotifRS": (2020, ""),
}
#: HotelAvailNotif was replaced by HotelInvCountNotif.
LAST = {"OTA_HotelAvailNotifRS": 2018}
CASES = [
    (root, protocol)
    for root, (since, _) in ROOTS.items()
    for protocol in PROTOCOLS.values()
    if since <= protocol.year <= LAST.get(root, 2024)
]
MARKUP = "bad <hotel> & ]]>"
SEND = "ALPINEBITS_SEND_FREEROOMS"
NS = "{http://www.opentravel.org/OTA/2003/05}"
each_case = pytest.mark.parametrize(
    ("root", "protocol"), CASES, ids=[f"{root}-{protocol.name}" for root, protocol in CASES]
)


def said(root: str, protocol: Protocol, *notes: Finding) -> etree._Element:
    """The response, valid in its version."""
    document = answer(root, protocol, Outcome(notes), ROOTS.get(root, (0, ""))[1])
    assert material.problems(document, protocol.name) == []
    return etree.fromstring(document)


def attributes(element: etree._Element) -> dict[str, str]:
    return {str(name): str(value) for name, value in element.attrib.items()}


@each_case
def test_success_is_an_empty_element(root: str, protocol: Protocol) -> None:
    element = said(root, protocol)
    assert element.tag == NS + root
    assert element[0].tag == f"{NS}Success" and len(element[0]) == 0 and not element[0].text
    assert element.find(f"{NS}Warnings") is None


@each_case
def test_notes_are_warnings_where_the_response_has_some(root: str, protocol: Protocol) -> None:
    element = said(
        root,
        protocol,
        Finding(kind="advisory", code=450, text=MARKUP, status=SEND, record="r" * 40),
        Finding(
            kind="warning", code=450, text="later", status="ALPINEBITS_SEND_NOTHING", record="2"
        ),
    )
    assert element[0].tag == f"{NS}Success"
    warnings = element.findall(f"{NS}Warnings/{NS}Warning")
    schema_has = (root not in ("OTA_NotifReportRS", "OTA_HotelDescriptiveInfoRS")) and (
        root != "OTA_HotelRatePlanRS"
    )
    if protocol.year >= 2022 or (
        schema_has and (root != "OTA_ResRetrieveRS" or protocol.year > 2017)
    ):
        first, second = warnings
        assert (first.get("Type"), second.get("Type")) == ("11", "3")
        assert first.get("RecordID") == "r" * 40
        assert first.get("Status") == (SEND if protocol.year >= 2018 else None)
        assert second.get("Status") is None
        assert first.text == MARKUP
    else:
        assert warnings == []


@each_case
def test_error_holds_nothing_else(root: str, protocol: Protocol) -> None:
    verdict = Outcome(
        (
            Finding(kind="advisory", text="and also"),
            Finding(kind="error", code=404, text=MARKUP),
            Finding(kind="error", code=450, text="send them", status=SEND),
        )
    )
    if root == "OTA_HotelResNotifRS" and protocol.year < 2022:
        with pytest.raises(TransportError, match="bad <hotel>") as caught:
            answer(root, protocol, verdict)
        assert caught.value.status == 400
        return
    element = said(root, protocol, *verdict.findings)
    assert [child.tag for child in element] == [f"{NS}Errors"]
    first, second = element[0]
    assert attributes(first) == {"Type": "13", "Code": "404"}
    known = {"Type": "11", "Code": "450", "Status": SEND}
    assert attributes(second) == (known if protocol.year >= 2018 else {"Type": "13", "Code": "450"})


@pytest.mark.parametrize("name", ["2020-10", "2022-10", "2024-10"])
def test_handshake_can_be_refused(name: str) -> None:
    element = said(
        "OTA_PingRS", PROTOCOLS[name], Finding(kind="error", code=320, text="no", status=SEND)
    )
    assert attributes(element[0][0]) == {"Type": "13", "Code": "320"}


def test_handshake_may_be_asked_for_from_2024_on() -> None:
    note = Finding(kind="advisory", text="shake", status="ALPINEBITS_SEND_HANDSHAKE")
    for protocol in PROTOCOLS.values():
        element = said("OTA_HotelRatePlanNotifRS", protocol, note)
        status = element[1][0].get("Status")
        assert status == (note.status if protocol.year == 2024 else None)


def test_outcome_is_the_worst_of_what_is_said() -> None:
    advice, rule = Finding(kind="advisory", text="a"), Finding(kind="warning", text="w")
    assert Outcome().kind == "success"
    assert Outcome((advice,)).kind == "advisory"
    assert Outcome((advice, rule)).kind == "warning"
    assert Outcome((rule, error(392, "no"), advice)).kind == "error"
