"""What a record may hold beside the plain stay, in each version."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.examples import examples
from tests.integration.alpinebits.test_render import (
    CREATED_AT,
    RECORDS,
    REQUEST,
    SPACE,
    STATUSES,
    TEXT,
    attributes,
    changed,
    check_found,
    find,
    record,
    rendered,
)

from alpinehub.alpinebits.guest import Undeliverable
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.reservations import ReservationData

CUSTOMER = "ResGuests/ResGuest/Profiles/ProfileInfo/Profile/Customer"
each_version = pytest.mark.parametrize("version", PROTOCOLS)
LEAD = ReservationData(status="request", email="e@example.com", message="Price?", adults=2)


def comments(root: etree._Element) -> dict[str, str]:
    """By name."""
    found = root.iterfind(f"{SPACE}ResGlobalInfo/{SPACE}Comments/{SPACE}Comment")
    return {str(one.get("Name")): one[0].text or "" for one in found}


@each_version
def test_guest_is_told_with_titles_gender_birthday_and_address(version: str) -> None:
    data = changed(
        REQUEST,
        prefix="Frau",
        title="Dott.ssa <x>",
        gender="female",
        birth_date=date(1980, 1, 31),
        address="Musterstraße 1 & 2",
        city="Bozen",
        postal_code="39100",
        country="IT",
    )
    customer = find(rendered(record(data), version), CUSTOMER)
    assert attributes(customer) == {"Gender": "Female", "BirthDate": "1980-01-31", "Language": "de"}
    name = [(part.tag.removeprefix(SPACE), part.text) for part in customer[0]]
    assert name == [
        ("NamePrefix", "Frau"),
        ("GivenName", "Eva"),
        ("Surname", "Rossi"),
        ("NameTitle", "Dott.ssa <x>"),
    ]
    address = find(customer, "Address")
    assert [address[place].text for place in range(3)] == ["Musterstraße 1 & 2", "Bozen", "39100"]
    assert attributes(address[3]) == {"Code": "IT"}


@each_version
def test_what_is_not_known_of_the_guest_is_left_out(version: str) -> None:
    customer = find(rendered(record(), version), CUSTOMER)
    assert attributes(customer) == {"Language": "de"}
    assert customer.find(f"{SPACE}Address") is None
    assert [part.tag.removeprefix(SPACE) for part in customer[0]] == ["GivenName", "Surname"]


@each_version
def test_longest_address_of_a_record_is_sent_whole(version: str) -> None:
    data = changed(REQUEST, address="a" * 255, city="c" * 64, postal_code="p" * 16)
    address = find(rendered(record(data), version), f"{CUSTOMER}/Address")
    assert [len(part.text or "") for part in address] == [255, 64, 16]


@each_version
def test_pets_are_told_in_the_words_of_the_version(version: str) -> None:
    root = rendered(record(changed(REQUEST, pets=True, message="")), version)
    told = root.find(f"{SPACE}ResGlobalInfo/{SPACE}SpecialRequests/{SPACE}SpecialRequest")
    if version < "2020-10":
        assert told is None
        assert comments(root) == {"customer comment": "Animali: sì"}
        return
    assert told is not None and comments(root) == {}
    code = {"RequestCode": "PETS", "CodeContext": "ALPINEBITS"}
    assert attributes(told) == ({"Name": "PETS"} if version == "2020-10" else code)
    for pets in (False, None):
        root = rendered(record(changed(REQUEST, pets=pets)), version)
        assert root.find(f"{SPACE}ResGlobalInfo/{SPACE}SpecialRequests") is None


@each_version
def test_answers_are_a_comment_beside_the_guests_own(version: str) -> None:
    data = changed(REQUEST, extra="Etage: 2\nBalkon: ja", state="BZ")
    told = comments(rendered(record(data), version))
    extra = "Etage: 2\nBalkon: ja\nProvincia: BZ"
    if version == "2024-10":
        assert told["customer comment"] == REQUEST.message
        assert told["additional info"] == extra
    else:
        assert told["customer comment"] == f"{REQUEST.message}\n\n{extra}"
        assert "additional info" not in told


@each_version
def test_lead_without_a_stay_is_told_from_2022_on(version: str) -> None:
    if version < "2022-10":
        with pytest.raises(Undeliverable) as caught:
            rendered(record(LEAD), version)
        assert caught.value.code == "no_stay"
        return
    root = rendered(record(changed(LEAD, children=(3,))), version)
    assert root.get("RoomStayReservation") == "false"
    assert root.find(f"{SPACE}RoomStays") is None
    assert "Adulti: 2\nEtà dei bambini: 3" in "".join(comments(root).values())
    asked = "".join(
        comments(rendered(record(changed(LEAD, adults=0, children=(3,))), version)).values()
    )
    assert "Adulti" not in asked and "Età dei bambini: 3" in asked


@each_version
def test_name_that_nobody_sees_is_none(version: str) -> None:
    data = changed(REQUEST, first_name="\u200b\u202e", last_name="\u2060")
    name = find(rendered(record(data), version), f"{CUSTOMER}/PersonName")
    assert [part.text for part in name] == ["-", "eva@example.com"]


FULL = st.builds(
    changed,
    RECORDS,
    prefix=TEXT,
    title=TEXT,
    gender=st.sampled_from(["", "female", "male"]),
    birth_date=st.none() | st.dates(),
    address=TEXT,
    city=TEXT,
    postal_code=TEXT,
    country=st.sampled_from(["", "IT", "it", "ITA", "Ö"]),
    state=TEXT,
    pets=st.none() | st.booleans(),
    extra=TEXT,
)


@settings(max_examples=examples(200), deadline=None)
@given(data=FULL, external_id=TEXT)
def test_anything_a_record_holds_is_valid_or_not_sent_in_every_version(
    data: ReservationData, external_id: str
) -> None:
    for res_status in STATUSES[data.status]:
        made = record(data, res_status, external_id=external_id, changed_at=CREATED_AT + 1)
        check_found(made)
