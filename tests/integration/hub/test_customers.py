"""Who is one person, and whose hashes are there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.hub.guests import customer_of, settle, write
from tests.integration.hub.lenient import FORM, open_lenient, post_form
from tests.integration.hub.material import BOOKING, Hub, forget_directory, open_hub
from tests.raw import raw

from alpinehub.customers import duplicates, hashing
from alpinehub.customers.export import export
from alpinehub.customers.hashing import hashes
from alpinehub.customers.search import find
from alpinehub.customers.traces import Traces
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.inbox.actions import accept
from alpinehub.sources import add_source
from cordata import Conflict

pytestmark = pytest.mark.usefixtures("each_store")
only_postgres = pytest.mark.parametrize("each_store", ["postgres"], indirect=True)


async def customers(hub: Hub) -> list[dict[str, Any]]:
    return await hub.rows("SELECT * FROM customer ORDER BY id")


async def hashed(hub: Hub) -> dict[str, dict[str, str]]:
    """The hashes that an export tells of the only customer, by platform."""
    found = await find(hub.ctx.store, hotel="DEMO", name="e")
    [document] = (await export(hub.ctx.store, found, Traces()))["customers"]
    return {one.pop("platform"): one for one in document["hashes"]}


async def test_customer_is_known_by_what_he_said_last(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(
            hub,
            email="Eva@Example.com",
            first_name="Eva",
            last_name="Muster",
            city="Wien",
            postal_code="1010",
            state="W",
            phone="+4311111",
        )
        await write(hub, email="eva@example.COM", last_name="Maier", city="Bozen", country="IT")
        [eva] = await customers(hub)
        told = {name: eva[name] for name in ("email", "phone", "first_name", "last_name", "city")}
        assert told == {
            "email": "eva@example.com",
            "phone": "+4311111",
            "first_name": None,
            "last_name": "Maier",
            "city": "Bozen",
        }
        assert (eva["country"], eva["postal_code"], eva["state"]) == ("IT", None, None)


async def test_number_is_one_however_it_is_written(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        ids = [
            await write(hub, phone="0471123456", last_name="Rossi"),
            await write(hub, phone="+390471123456", city="Bozen"),
            await write(hub, phone="+390471123456", email="rossi@example.com"),
        ]
        other = await write(hub, phone="+390471123457")
        await settle(hub)
        rossi, second = await customers(hub)
        assert [await customer_of(hub, id_) for id_ in ids] == [rossi["id"]] * 3
        assert await customer_of(hub, other) == second["id"]
        assert (rossi["email"], rossi["last_name"], rossi["city"]) == (
            "rossi@example.com",
            "Rossi",
            "Bozen",
        )
        [found] = await find(hub.ctx.store, phone="+390471123456")
        assert found["id"] == rossi["id"] and found["phone_e164"] == "+390471123456"


async def test_duplicate_that_was_not_seen_is_found_when_time_has_passed(tmp_path: Path) -> None:
    """A unit that had read before another's commit does not know that its customer is due."""
    async with open_hub(tmp_path) as hub:
        await write(hub, phone="0471123456", last_name="Rossi")
        assert await duplicates.merge_duplicates(hub.ctx.store) == 0
        unseen = (
            "INSERT INTO customer (hotel_id, email, phone, created_at, phone_due)"
            " SELECT hotel_id, 'rossi@example.com', '+390471123456', created_at, 0 FROM customer"
        )
        await hub.execute(unseen)
        assert len(await customers(hub)) == 2
        await settle(hub)
        [rossi] = await customers(hub)
        assert (rossi["email"], rossi["last_name"]) == ("rossi@example.com", "Rossi")


async def test_new_customer_is_not_due_when_no_other_may_be_the_same(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, phone="0471123456", email="rossi@example.com")
        await write(hub, phone="+390471123456", email="bianchi@example.com")
        assert [one["phone_due"] for one in await customers(hub)] == [0, 0]


async def test_number_of_several_is_nobodys(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for email in ("a@example.com", "b@example.com"):
            await write(hub, phone="+390471123456", email=email)
        alone = await write(hub, phone="+390471123456")
        written = await write(hub, phone="0471 123456".replace(" ", ""))
        third = await write(hub, phone="+390471123456", email="c@example.com")
        await settle(hub)
        assert await customer_of(hub, alone) == await customer_of(hub, written)
        emails = {row["id"]: row["email"] for row in await customers(hub)}
        assert emails[await customer_of(hub, alone)] is None
        assert emails[await customer_of(hub, third)] == "c@example.com"
        assert len(emails) == 4


async def test_each_hotel_knows_its_own_customers_by_its_own_region(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await add_hotel(hub.ctx.store, NewHotel(code="WIEN", name="Wien", region="AT"))
        await add_source(hub.ctx, "WIEN", "generic", "website", "other-secret")
        forget_directory(hub.ctx)
        for hotel in ("DEMO", "WIEN"):
            await write(hub, hotel=hotel, phone="06641234567", email="eva@example.com")
        await settle(hub)
        [demo] = await find(hub.ctx.store, phone="+3906641234567")
        [wien] = await find(hub.ctx.store, phone="+436641234567")
        assert (demo["hotel"], wien["hotel"]) == ("DEMO", "WIEN")


PERSON: dict[str, Any] = {
    "email": "eva@example.com",
    "phone": "3331234567",
    "first_name": "Eva",
    "last_name": "Muster",
    "city": "Bozen",
    "postal_code": "39100",
    "country": "IT",
    "gender": "female",
}
#: A cancellation that names nothing but its number.
CANCELLED: dict[str, Any] = {"status": "cancelled", "adults": 0, "arrival": None, "departure": None}


async def test_hashes_are_told_only_when_the_customer_agreed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, **PERSON)
        assert await hashed(hub) == {}
        await write(hub, **PERSON, consent=True)
        found = await hashed(hub)
        assert sorted(found) == ["google", "meta"]
        told = dict.fromkeys(hashing.RULES["meta"]) | PERSON | {"phone": "+393331234567"}
        for platform, said in found.items():
            made = hashes(told, platform)
            assert said == {name: one.hex() for name, one in made.items()}
        await write(hub, **PERSON)  # not asked again: the last answer counts
        assert sorted(await hashed(hub)) == ["google", "meta"]
        await write(hub, **PERSON, consent=False)
        assert await hashed(hub) == {}


@pytest.mark.parametrize("again", [{}, {"city": "Wien"}])
async def test_no_that_was_said_again_is_no_yes_when_two_are_merged(
    tmp_path: Path, again: dict[str, Any]
) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, phone="0471123456", consent=False)
        hub.harness.advance(days=1)
        await write(hub, phone="+390471123456", email="eva@example.com", consent=True)
        hub.harness.advance(days=1)
        await write(hub, phone="0471123456", consent=False, **again)
        await settle(hub)
        [eva] = await customers(hub)
        assert (eva["email"], eva["consent"]) == ("eva@example.com", 0)


async def test_consent_comes_with_a_webhook(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post({**BOOKING, "consent": True})
        assert [one["consent"] for one in await customers(hub)] == [1]
        await hub.post({**BOOKING, "consent": False})
        assert [one["consent"] for one in await customers(hub)] == [0]


async def test_cancellation_tells_nothing_of_the_customer_but_what_it_says(tmp_path: Path) -> None:
    """Its other fields are those of an older version: the customer has said other things since."""
    async with open_hub(tmp_path) as hub:
        first = await write(hub, number="n-1", **PERSON, consent=True)
        await write(hub, email="eva@example.com", phone="0471998877", consent=False)
        assert await write(hub, number="n-1", **CANCELLED) == first
        [eva] = await customers(hub)
        assert (eva["phone"], eva["consent"]) == ("0471998877", 0)
        data = await hub.one("SELECT data FROM reservation_version ORDER BY id DESC LIMIT 1")
        assert PERSON["phone"] in data and await customer_of(hub, first) == eva["id"]
        await write(hub, number="n-1", **CANCELLED, email="eva@example.com", city="Wien")
        assert [one["city"] for one in await customers(hub)] == ["Wien"]


async def test_cancellation_with_an_address_belongs_to_the_guest_known_by_the_number(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        first = await write(hub, number="n-1", **(PERSON | {"email": ""}), consent=True)
        await write(hub, number="n-1", **CANCELLED, email="eva@example.com")
        [eva] = await customers(hub)
        assert (eva["email"], eva["phone"]) == ("eva@example.com", PERSON["phone"])
        assert (eva["last_name"], eva["consent"]) == ("Muster", 1)
        assert await customer_of(hub, first) == eva["id"]
        await write(hub, number="n-1", **CANCELLED, phone="0471998877")
        assert [one["phone"] for one in await customers(hub)] == ["0471998877"]


async def test_cancellation_with_another_address_makes_a_customer_with_name_and_no_consent(
    tmp_path: Path,
) -> None:
    """Consent is what a guest said of one address: it is not carried over to another."""
    async with open_hub(tmp_path) as hub:
        first = await write(hub, number="n-1", **PERSON, consent=True)
        await write(hub, number="n-1", **CANCELLED, email="eva2@example.com")
        old, new = await customers(hub)
        assert (old["email"], old["consent"]) == ("eva@example.com", 1)
        assert (new["email"], new["phone"]) == ("eva2@example.com", PERSON["phone"])
        assert (new["last_name"], new["consent"]) == ("Muster", None)
        assert await customer_of(hub, first) == new["id"]


async def test_consent_of_a_form_that_waited_does_not_undo_a_later_no(tmp_path: Path) -> None:
    past = {"arrival": "2020-02-01", "departure": "2020-02-08", "marketing": "yes"}
    async with open_lenient(tmp_path) as hub:
        await post_form(hub, FORM | past)
        hub.harness.advance(days=1)
        await post_form(hub, FORM | {"marketing": "no"})
        await hub.handle_events()
        hub.harness.advance(days=1)
        await accept(hub.ctx, 1, by="test")
        assert await hub.one("SELECT count(*) FROM reservation") == 2
        assert [one["consent"] for one in await customers(hub)] == [0]
        await post_form(hub, FORM | {"marketing": "yes", "adults": "3"})
        await hub.handle_events()
        assert [one["consent"] for one in await customers(hub)] == [1]


async def test_two_workers_and_the_primary_agree_who_is_who_when_all_work_at_once(
    tmp_path: Path,
) -> None:
    """Requests come for customers while they are made one: none is lost, none is left behind."""
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        spellings = ("0471123456", "+390471123456", "00390471123456")
        ids: list[str] = []

        async def send(number: int) -> None:
            told: dict[str, Any] = {"phone": spellings[number % 3]}
            if number % 5 == 4:
                told["email"] = "eva@example.com"
            ids.append(await write((hub, other)[number % 2], **told))

        async def lead(done: asyncio.Event) -> None:
            while not done.is_set():
                hub.harness.advance(seconds=duplicates.SETTLED_S)
                await duplicates.merge_duplicates(hub.ctx.store)
                await asyncio.sleep(0)

        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(lead(done))
            for first in range(0, 60, 12):
                async with asyncio.TaskGroup() as batch:
                    for number in range(first, first + 12):
                        batch.create_task(send(number))
            done.set()
        await settle(hub)
        [eva] = await customers(hub)
        assert len(ids) == 60 and eva["email"] == "eva@example.com"
        assert {await customer_of(hub, id_) for id_ in ids} == {eva["id"]}


@only_postgres
@pytest.mark.parametrize("first", ["request", "merge"])
async def test_request_that_is_being_stored_goes_to_the_customer_who_stays(
    tmp_path: Path, first: str
) -> None:
    """Whichever of the two commits first, the other finds out."""
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        await write(hub, phone="+390471123456", email="eva@example.com")
        await settle(hub)
        gone = await customer_of(hub, await write(hub, phone="0471123456"))
        async with asyncio.TaskGroup() as group:
            try:
                async with other.ctx.store.transaction() as tx:
                    if first == "merge":
                        await settle(hub)
                    await raw(
                        tx,
                        "INSERT INTO reservation (id, hotel_id, source_id, customer_id, version,"
                        f" status, created_at, changed_at) VALUES ('x', 1, 1, {gone}, 1,"
                        " 'request', 1, 1)",
                    )
                    if first == "request":
                        hub.harness.advance(seconds=duplicates.SETTLED_S)
                        group.create_task(duplicates.merge_duplicates(hub.ctx.store))
                        await asyncio.sleep(0.2)
            except Conflict:
                assert first == "merge"
            else:
                assert first == "request"
        await settle(hub)
        [eva] = await customers(hub)
        lost = f"SELECT count(*) FROM reservation WHERE customer_id <> {eva['id']}"
        assert await hub.one(lost) == 0


#: An address or none; a number that may be shared, in one of its spellings, or none. Who has an
#: address has one number: of the last one that he gave the others tell nothing.
NUMBERS = (("0471123456", "+390471123456"), ("3331234567", "+393331234567"))
who = st.tuples(st.sampled_from([None, "a", "b", "c"]), st.sampled_from([None, 0, 1]))


@settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
@given(
    numbers_of=st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([None, 0, 1]))),
    people=st.lists(who, min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_order_of_arrival_does_not_tell_who_is_one(
    each_store: str, tmp_path: Path, numbers_of: dict[str, int | None], people: Any, order: Any
) -> None:
    said = [
        (email, number if email is None else numbers_of[email] if number is not None else None)
        for email, number in people
    ]

    async def run() -> None:
        async with open_hub(tmp_path, seed=not (tmp_path / "seeded").exists()) as hub:
            (tmp_path / "seeded").touch()
            await forget_all(hub)
            for _ in range(2):
                order.shuffle(said)
                found = [await arrive(hub, order, *one) for one in said]
                await settle(hub)
                now = [await customer_of(hub, id_) for id_ in found]
                check_partition(said, now)
                await forget_all(hub)

    asyncio.run(run())


async def arrive(hub: Hub, order: Any, email: str | None, number: int | None) -> str:
    if order.random() < 0.3:
        await settle(hub)
    told: dict[str, Any] = {"last_name": "X"}
    if email is not None:
        told["email"] = order.choice([email, email.upper()]) + "@example.com"
    if number is not None:
        told["phone"] = order.choice(NUMBERS[number])
    return await write(hub, **told)


def check_partition(said: Sequence[tuple[str | None, int | None]], found: Sequence[int]) -> None:
    """What is promised of (address, number) and the customers that they were taken for."""
    of_email: dict[str, set[int]] = {}
    of_number: dict[int, set[int]] = {}
    for (email, number), customer in zip(said, found, strict=True):
        if email is not None:
            of_email.setdefault(email, set()).add(customer)
            if number is not None:
                of_number.setdefault(number, set()).add(customer)
    assert all(len(ids) == 1 for ids in of_email.values()), "an address is one customer"
    assert len(set().union(*of_email.values())) == len(of_email), "and two are two"
    known = set().union(*of_email.values())
    nameless: dict[int, set[int]] = {}
    for (email, number), customer in zip(said, found, strict=True):
        if email is None and number is None:
            assert found.count(customer) == 1, "who says nothing is new each time"
        elif email is None and number is not None:
            if len(of_number.get(number, ())) == 1:
                assert {customer} == of_number[number], "the number of one is his"
            elif customer in known:
                assert customer in of_number[number], "the number of several: one of them"
            else:
                nameless.setdefault(number, set()).add(customer)
    assert all(len(ids) == 1 for ids in nameless.values()), "a number alone is one customer"


async def forget_all(hub: Hub) -> None:
    versions = ("reservation_event", "reservation_version")
    for table in ("delivery", "inbox", *versions, "reservation", "customer"):
        await hub.execute(f"DELETE FROM {table}")
