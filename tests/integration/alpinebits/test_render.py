from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.examples import examples
from tests.integration.alpinebits import material

from alpinehub.alpinebits.guest import (
    StoredVersion,
    Undeliverable,
    render,
    response,
    split_name,
    validate,
)
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Hotel
from alpinehub.reservations import MEAL_PLAN_CODES, ReservationData, ResStatus

HOTEL = Hotel(
    id=1,
    code="DEMO",
    name='Hotel "Zur Post" & Söhne',
    time_zone="Europe/Rome",
    language="it",
    region="IT",
)
CREATED_AT = 1_767_360_387_938_000  # 2026-01-02T13:26:27.938Z
SPACE = "{http://www.opentravel.org/OTA/2003/05}"

REQUEST = ReservationData(
    status="request",
    arrival=date(2026, 2, 1),
    departure=date(2026, 2, 8),
    adults=2,
    children=(5, 8, 5),
    first_name="Eva",
    last_name="Rossi",
    email="eva@example.com",
    phone="+393331234567",
    language="de",
    message="Mit <Hund> & Katze\nDanke",
)
RESERVATION = ReservationData(
    status="reservation",
    arrival=date(2026, 2, 1),
    departure=date(2026, 2, 8),
    adults=1,
    first_name="Eva",
    last_name="Rossi",
    email="eva@example.com",
    newsletter=False,
    total=Decimal("1299.50"),
    currency="EUR",
    room_type="DZ",
    rate_plan="BAR-2026",
)


def record(
    data: ReservationData = REQUEST,
    res_status: ResStatus = "Requested",
    *,
    external_id: str = "",
    changed_at: int = CREATED_AT,
) -> StoredVersion:
    return StoredVersion(
        id="6b34fe24ac2ff8106b34fe24ac2ff810",
        res_status=res_status,
        data=data,
        external_id=external_id,
        source="website",
        created_at=CREATED_AT,
        changed_at=changed_at,
    )


def changed(data: ReservationData, **fields: Any) -> ReservationData:
    return msgspec.structs.replace(data, **fields)


def rendered(made: StoredVersion, version: str = "2024-10") -> etree._Element:
    """The HotelReservation of a list that is valid in this version."""
    document = response([render(made, HOTEL, PROTOCOLS[version])])
    assert material.problems(document, version) == []
    return etree.fromstring(document)[1][0]


def find(element: etree._Element, path: str) -> etree._Element:
    found = element.find("/".join(SPACE + name for name in path.split("/")))
    assert found is not None
    return found


def attributes(element: etree._Element) -> dict[str, str]:
    return {str(name): str(value) for name, value in element.attrib.items()}


@pytest.mark.parametrize("version", PROTOCOLS)
def test_list_is_valid_when_it_is_empty(version: str) -> None:
    assert response([]).endswith(
        b"<Success/><ReservationsList></ReservationsList></OTA_ResRetrieveRS>"
    )
    assert material.problems(response([]), version) == []


@pytest.mark.parametrize("version", PROTOCOLS)
def test_request_tells_stay_guests_and_comment(version: str) -> None:
    root = rendered(record(), version)
    assert root.get("ResStatus") == "Requested"
    assert root.get("CreateDateTime") == "2026-01-02T13:26:27+00:00"
    assert attributes(find(root, "UniqueID")) == {
        "Type": "14",
        "ID": "6b34fe24ac2ff8106b34fe24ac2ff810",
    }
    stay = find(root, "RoomStays/RoomStay")
    assert [attributes(count) for count in find(stay, "GuestCounts")] == [
        {"Count": "2"},
        {"Count": "1", "Age": "8"},
        {"Count": "2", "Age": "5"},
    ]
    assert attributes(find(stay, "TimeSpan")) == {"Start": "2026-02-01", "End": "2026-02-08"}
    customer = find(root, "ResGuests/ResGuest/Profiles/ProfileInfo/Profile/Customer")
    assert attributes(customer) == {"Language": "de"}
    assert find(customer, "Telephone").get("PhoneNumber") == "+393331234567"
    comment = find(root, "ResGlobalInfo/Comments/Comment")
    assert comment.get("Name") == "customer comment"
    assert comment[0].text == "Mit <Hund> & Katze\nDanke"
    assert attributes(find(root, "ResGlobalInfo/BasicPropertyInfo")) == {
        "HotelCode": "DEMO",
        "HotelName": 'Hotel "Zur Post" & Söhne',
    }


@pytest.mark.parametrize("version", PROTOCOLS)
@pytest.mark.parametrize("res_status", ["Reserved", "Modify"])
def test_reservation_tells_room_rate_meals_and_total(version: str, res_status: ResStatus) -> None:
    stay = find(rendered(record(RESERVATION, res_status), version), "RoomStays/RoomStay")
    assert find(stay, "RoomTypes/RoomType").get("RoomTypeCode") == "DZ"
    assert find(stay, "RatePlans/RatePlan").get("RatePlanCode") == "BAR-2026"
    assert find(stay, "RatePlans/RatePlan/MealsIncluded").get("MealPlanCodes") == "14"
    assert attributes(find(stay, "Total")) == {"AmountAfterTax": "1299.50", "CurrencyCode": "EUR"}


def test_meals_have_their_codes() -> None:
    for meal_plan, code in MEAL_PLAN_CODES.items():
        root = rendered(record(changed(RESERVATION, meal_plan=meal_plan), "Reserved"))
        meals = find(root, "RoomStays/RoomStay/RatePlans/RatePlan/MealsIncluded")
        assert meals.get("MealPlanCodes") == str(code)


@pytest.mark.parametrize("version", PROTOCOLS)
def test_cancellation_is_type_15_and_needs_nothing_else(version: str) -> None:
    bare = rendered(record(ReservationData(status="cancelled"), "Cancelled"), version)
    assert find(bare, "UniqueID").get("Type") == "15"
    assert [child.tag.removeprefix(SPACE) for child in bare] == ["UniqueID", "ResGlobalInfo"]
    for half in ({"departure": None}, {"arrival": None}, {"adults": 0}):
        data = changed(RESERVATION, status="cancelled", **half)
        assert rendered(record(data, "Cancelled"), version).find(f"{SPACE}RoomStays") is None
    full = rendered(record(changed(RESERVATION, status="cancelled"), "Cancelled"), version)
    assert [child.tag.removeprefix(SPACE) for child in full] == [
        "UniqueID",
        "RoomStays",
        "ResGuests",
        "ResGlobalInfo",
    ]


def test_attributes_of_2022_are_left_out_when_the_version_is_older() -> None:
    made = record(changed_at=CREATED_AT + 5_000_000)
    old, new = rendered(made, "2020-10"), rendered(made, "2022-10")
    assert {str(name) for name in new.attrib} - {str(name) for name in old.attrib} == {
        "LastModifyDateTime",
        "RoomStayReservation",
    }
    assert new.get("LastModifyDateTime") == "2026-01-02T13:26:32+00:00"
    assert new.get("RoomStayReservation") == "true"


def test_campaign_is_cut_to_what_the_schema_holds() -> None:
    data = changed(REQUEST, gclid="g" * 200, utm={"source": "s" * 80, "medium": "m" * 80})
    ids = find(rendered(record(data, external_id="e" * 100)), "ResGlobalInfo/HotelReservationIDs")
    assert [attributes(one) for one in ids] == [
        {"ResID_Type": "14", "ResID_Value": "e" * 64, "ResID_Source": "website"},
        {
            "ResID_Type": "13",
            "ResID_Value": "g" * 64,
            "ResID_Source": "s" * 64,
            "ResID_SourceContext": "m" * 64,
        },
    ]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("Eva", "Rossi", ("Eva", "Rossi")),
        ("", "Eva Maria Rossi", ("Eva Maria", "Rossi")),
        ("Eva Maria Rossi", " ", ("Eva Maria", "Rossi")),
        ("Eva", "", ("-", "Eva")),
        ("", "Rossi", ("-", "Rossi")),
        (" ", "", ("-", "eva@example.com")),
        ("a" * 70, "b" * 70, ("a" * 64, "b" * 64)),
    ],
)
def test_name_is_split(first: str, last: str, expected: tuple[str, str]) -> None:
    assert split_name(first, last, "eva@example.com") == expected
    assert split_name("", "", "") == ("-", "-")


#: What XML can carry; right-to-left and combining characters, too.
CHARACTERS = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff")
TEXT = st.text(CHARACTERS, max_size=100).map(str.strip)
RECORDS = st.builds(
    ReservationData,
    status=st.sampled_from(["request", "reservation", "cancelled"]),
    arrival=st.none() | st.dates(),
    departure=st.none() | st.dates(),
    adults=st.integers(0, 100),
    children=st.lists(st.integers(0, 17), max_size=6).map(tuple),
    first_name=TEXT,
    last_name=TEXT,
    email=st.emails() | TEXT,
    phone=st.from_regex(r"\+?[0-9]{4,20}", fullmatch=True) | TEXT,
    language=st.sampled_from(["", "de", "xx", "DE", "deu"]),
    message=TEXT,
    total=st.none() | st.decimals(allow_nan=True, min_value=-10, max_value=10**9, places=2),
    currency=st.sampled_from(["", "EUR", "€€€", "<&>"]),
    room_type=st.text(CHARACTERS, max_size=9),
    rate_plan=st.text(CHARACTERS, max_size=70),
    meal_plan=st.none() | st.sampled_from(list(MEAL_PLAN_CODES)),
    newsletter=st.none() | st.booleans(),
    utm=st.dictionaries(st.sampled_from(["source", "medium", "campaign"]), TEXT),
    gclid=TEXT,
)
PROMISED = st.builds(
    changed,
    RECORDS,
    arrival=st.dates(max_value=date(9999, 1, 1)),
    adults=st.integers(1, 20),
    email=st.emails(),
    phone=st.just("") | st.from_regex(r"\+?[0-9]{4,15}", fullmatch=True),
    language=st.sampled_from(["", "de", "xx"]),
    first_name=st.just("<Eva>"),
    room_type=st.just("DZ & Co"),
    rate_plan=st.just('"B"'),
    total=st.decimals(0, 10**9, places=2),
    currency=st.just("CHF"),
).map(lambda data: changed(data, departure=(data.arrival or date.min) + timedelta(days=7)))
STATUSES: dict[str, list[ResStatus]] = {
    "request": ["Requested"],
    "reservation": ["Reserved", "Modify"],
    "cancelled": ["Cancelled"],
}


def check_found(made: StoredVersion) -> None:
    """In each version it is valid, or is found not to be before it is sent."""
    for version, protocol in PROTOCOLS.items():
        try:
            xml = render(made, HOTEL, protocol)
        except Undeliverable as reason:
            assert reason.code == "no_stay"
            continue
        assert is_valid(xml, version) is not bool(material.problems(response([xml]), version))


def is_valid(xml: bytes, version: str) -> bool:
    try:
        validate(xml, PROTOCOLS[version])
    except Undeliverable as reason:
        assert reason.code == "schema"
        return False
    return True


def test_text_that_xml_cannot_carry_is_found_before_it_is_sent() -> None:
    for text in ("a\x00b", "a\x1bb", "a\ufffeb"):
        made = render(record(changed(REQUEST, message=text)), HOTEL, PROTOCOLS["2024-10"])
        with pytest.raises(Undeliverable, match="cannot be parsed"):
            validate(made, PROTOCOLS["2024-10"])


@settings(max_examples=examples(100), deadline=None)
@given(data=PROMISED, external_id=TEXT)
def test_record_that_keeps_its_promise_is_never_undeliverable(
    data: ReservationData, external_id: str
) -> None:
    for version in PROTOCOLS:
        for res_status in STATUSES[data.status]:
            rendered(record(data, res_status, external_id=external_id), version)
