"""A message of one version as another carries it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.mutants import mutants
from tests.integration.alpinebits.specimen import specimen
from tests.integration.alpinebits.test_grammar import MESSAGES, SAMPLES

from alpinehub.alpinebits.grammar import check, schema
from alpinehub.alpinebits.grammar.project import Unfit, project
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol

SPACE = "http://www.opentravel.org/OTA/2003/05"
_LOCATION = "{http://www.w3.org/2001/XMLSchema-instance}schemaLocation"


def plain(element: etree._Element) -> bytes:
    """Without what does not matter."""
    parser = etree.XMLParser(remove_blank_text=True, remove_comments=True)
    root = etree.fromstring(etree.tostring(element), parser)
    for one in root.iter():
        one.attrib.pop(_LOCATION, "")
        if one.text and not one.text.strip():
            one.text = None
        if one.tail and not one.tail.strip():
            one.tail = None
    etree.cleanup_namespaces(root)
    return etree.tostring(root, method="c14n")


def holds(element: etree._Element, valid_in: Sequence[Protocol]) -> None:
    """Of a message: it is itself in the versions in which it is valid, valid in all others that can
    carry it, and there again itself.
    """
    for protocol in PROTOCOLS.values():
        try:
            fitted, dropped = project(element, protocol)
        except Unfit as error:
            assert str(error) and protocol not in valid_in
            continue
        if protocol in valid_in:
            assert (plain(fitted), dropped) == (plain(element), 0)
        assert material.problems(etree.tostring(fitted), protocol.name) == []
        assert dropped >= 0
        added = len([*fitted.iter()]) > len([*element.iter()])
        if dropped == 0 and not added:
            assert all(check(fitted, own) is None for own in valid_in)
        again, dropped = project(fitted, protocol)
        assert (plain(again), dropped) == (plain(fitted), 0)


@pytest.mark.parametrize("path", SAMPLES, ids=material.name_of)
def test_sample_is_carried_by_the_versions_that_can(path: Path) -> None:
    element = etree.fromstring(path.read_bytes(), etree.XMLParser(remove_comments=True))
    holds(element, [own for own in PROTOCOLS.values() if check(element, own) is None])


@pytest.mark.parametrize(("name", "version"), MESSAGES)
def test_message_with_everything_in_it_is_carried_by_the_versions_that_can(
    name: str, version: str
) -> None:
    protocol = PROTOCOLS[version]
    root = schema.element(name, protocol)
    assert root is not None
    for choose in range(3):
        whole = specimen(root, choose)
        holds(whole, [protocol])
        for mutant in mutants(etree.tostring(whole), 10, seed=choose):
            if check(mutant, protocol) is None:
                holds(mutant, [protocol])


def content(inside: str, attributes: str = "") -> etree._Element:
    return etree.fromstring(
        f'<OTA_HotelDescriptiveInfoRS xmlns="{SPACE}" Version="3.000"><Success/>'
        f'<HotelDescriptiveContents><HotelDescriptiveContent HotelCode="1" {attributes}>{inside}'
        "</HotelDescriptiveContent></HotelDescriptiveContents></OTA_HotelDescriptiveInfoRS>"
    )


def carried(element: etree._Element, version: str) -> tuple[str, int]:
    """What is inside of the content then, and how much is missing."""
    fitted, dropped = project(element, PROTOCOLS[version])
    inside = "".join(etree.tostring(child).decode() for child in fitted[-1][0])
    return inside.replace(f' xmlns="{SPACE}"', ""), dropped


def test_room_without_a_type_room_gets_an_empty_one_where_it_must_have_one() -> None:
    rooms = '<FacilityInfo><GuestRooms><GuestRoom Code="DZ"{}</GuestRooms></FacilityInfo>'
    old = content(rooms.format("/>"))
    assert carried(old, "2022-10") == (rooms.format("/>"), 0)
    assert carried(old, "2024-10") == (rooms.format("><TypeRoom/></GuestRoom>"), 0)


def test_answer_without_warnings_gets_an_empty_one_where_it_must_have_one() -> None:
    text = '<OTA_PingRS xmlns="{}" Version="8.000"><Success/>{}<EchoData>x</EchoData></OTA_PingRS>'
    element = etree.fromstring(text.format(SPACE, ""))
    holds(element, [PROTOCOLS[version] for version in ("2020-10", "2022-10", "2024-10")])
    fitted, dropped = project(element, PROTOCOLS["2018-10"])
    assert dropped == 0
    # Valid there, but not where it comes from: there a Warning has a Type.
    warned = text.format(SPACE, "<Warnings><Warning/></Warnings>")
    assert plain(fitted) == plain(etree.fromstring(warned))


def test_times_of_arrival_are_left_out_where_they_are_no_more() -> None:
    policy = "<Policies><Policy><PolicyInfo{}/></Policy></Policies>"
    times = policy.format(' CheckInTime="14:00:00" MinGuestAge="18" CheckOutTime="10:00:00"')
    assert carried(content(times), "2022-10")[1] == 0
    assert carried(content(times), "2024-10") == (policy.format(' MinGuestAge="18"'), 2)


def test_nearest_optional_element_goes_when_a_value_that_must_be_there_does_not_fit() -> None:
    services = "<HotelInfo><Services>{}</Services></HotelInfo>"
    new = services.format('<Service Code="5.ABC"/><Service Code="7"/>')
    assert carried(content(new), "2024-10") == (new, 0)
    assert carried(content(new), "2020-10") == (services.format('<Service Code="7"/>'), 2)


def test_what_a_version_takes_whole_is_carried_whole() -> None:
    info = '<HotelInfo HotelStatusCode="1"><Position Altitude="1200"/></HotelInfo>'
    assert carried(content(info), "2017-10") == (info, 0)
    older = content('<HotelInfo own="1"><Position Altitude="1"/><Own>x</Own></HotelInfo>')
    assert carried(older, "2018-10")[1] == 0
    kept = '<HotelInfo><Position Altitude="1"/></HotelInfo>'
    assert carried(older, "2020-10") == (kept, 2)


def test_order_of_what_may_come_in_any_is_kept() -> None:
    described = (
        '<Description Name="codelist"><ListItem>a</ListItem><URL>https://b</URL>'
        "<ListItem>c</ListItem></Description>"
    )
    plans = etree.fromstring(
        f'<OTA_HotelRatePlanRS xmlns="{SPACE}" Version="3.000"><Success/><RatePlans HotelCode="1">'
        f'<RatePlan RatePlanCode="{"c" * 65}" CurrencyCode="CHF">{described}</RatePlan></RatePlans>'
        "</OTA_HotelRatePlanRS>"
    )
    for version, dropped in (("2017-10", 1), ("2020-10", 0), ("2022-10", 0), ("2024-10", 1)):
        fitted, missing = project(plans, PROTOCOLS[version])
        assert missing == dropped
        assert (
            etree.tostring(fitted[1][0][0]).decode().replace(f' xmlns="{SPACE}"', "") == described
        )


def test_message_is_unfit_when_the_version_has_none_or_lacks_what_must_be_there() -> None:
    ping = etree.fromstring(
        f'<OTA_PingRQ xmlns="{SPACE}" Version="1"><EchoData>x</EchoData></OTA_PingRQ>'
    )
    with pytest.raises(Unfit, match="AlpineBits 2017-10 has no OTA_PingRQ"):
        project(ping, PROTOCOLS["2017-10"])
    named = content("")
    del named[1][0].attrib["HotelCode"]
    assert project(named, PROTOCOLS["2022-10"])[1] == 0
    with pytest.raises(Unfit, match="must have in AlpineBits 2024-10"):
        project(named, PROTOCOLS["2024-10"])
