"""All of a person can be shown, and nothing of him is left when he is erased."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Sequence
from datetime import date
from hashlib import sha256
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from tests.integration.engine.stores import url_of
from tests.integration.hub.guests import customer_of, leave, settle, write
from tests.integration.hub.lenient import WIX, open_lenient, post_form, post_wix
from tests.integration.hub.material import Hub, open_hub
from tests.raw import raw
from tests.servers.postgres import find_programs

from alpinehub.accounts import add_account
from alpinehub.alpinebits.actions.acknowledge import acknowledge
from alpinehub.alpinebits.call import Recipient
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.rules.acknowledgement import Acknowledgement
from alpinehub.customers import erasure
from alpinehub.customers.erasure import Erased, Reason, anonymous, erase
from alpinehub.customers.export import export
from alpinehub.customers.matcher import PersonMatcher, group_matcher
from alpinehub.customers.search import PersonQuery, find
from alpinehub.customers.traces import MAILS, find_traces
from alpinehub.history import HistoryEntry, add
from alpinehub.hotels import Unusable
from alpinehub.reservations import ReservationData, decode
from cordata import Tx

pytestmark = pytest.mark.usefixtures("each_store")

EMAIL, PHONE = "zwetschke.knoedel@planted.example", "0471998877"
#: Words that are nowhere but in what the person said.
PERSON: dict[str, Any] = {
    "email": EMAIL.title(),
    "phone": PHONE,
    "first_name": "Zwetschke",
    "last_name": "Knoedel",
    "message": "Plantedmessage",
    "extra": "Plantedextra",
    "city": "Plantedcity",
    "address": "Plantedstreet",
    "postal_code": "PL4NT",
    "state": "Plantedstate",
    "prefix": "Plantedprefix",
    "title": "Plantedtitle",
    "utm": {"campaign": "Plantedcampaign"},
    "gclid": "Plantedgclid",
    "fbclid": "Plantedfbclid",
    "birth_date": date(1971, 3, 9),
    "gender": "female",
    "consent": True,
}
PLANTED = (
    *(EMAIL, PHONE, "393331122334", "zwetschke", "knoedel", "planted", "pl4nt"),
    "1971-03-09",
)
#: The end of the number, which is stored by itself, too. Ids (32 hexadecimal digits) and times (16
#: digits) have these six by chance now and then, so they are left out.
TAIL = b"998877"
_ID_OR_TIME = re.compile(rb"[0-9a-f]{16,}")
WHY = Reason(by="test", force=True)


async def plant(hub: Hub) -> list[str]:
    """A person in every place of the store where one can be; his requests."""
    body = json.dumps({"email": EMAIL, "message": "Plantedmessage"}).encode()
    first = await write(hub, number=f"order of {EMAIL}", body=body, **PERSON)
    second = await write(hub, number="n-2", body=body, **PERSON)
    await write(hub, number="n-2", body=body, **PERSON | {"message": "Plantedmessage again"})
    await write(hub, phone="+39 0471 99 88 77".replace(" ", ""), last_name="Knoedel", body=body)
    # He mistyped his address, and corrected it: the request is another's now, who stays.
    await write(hub, number="n-3", body=body, **PERSON)
    await write(hub, number="n-3", email="other@example.com", last_name="Other", body=b"other")
    await hub.handle_events()

    async def unit(tx: Tx) -> None:
        await raw(tx, "UPDATE delivery SET sent_at = 1, client_id = 'pms'")
        await add(
            tx,
            HistoryEntry(
                reservation_id=first,
                version=1,
                event="rejected",
                detail={"protocol": "2024-10", "client_id": "pms", "text": "Knoedel again"},
            ),
        )
        await tx.send_mail(
            to=["hotel@example.com"],
            subject="Zwetschke Knoedel writes",
            text=f"Answer {EMAIL} or +390471998877",
            html=f"<a href='mailto:{EMAIL}'>Zwetschke Knoedel</a>",
        )

    await hub.ctx.store.run(unit)
    for body in (
        b'{"data": {"field:email_1": "zwetschke.knoedel\\u0040planted.example"}}',
        b"name=Knoedel&email=ZWETSCHKE.knoedel%40planted.example",
        b"name=Zwetschke&phone=0471+998+877&adults=2",
        b'{"phone": "+39 0471 / 99 88 77", "name": "Zwetschke"}',
    ):
        await leave(hub, "review", body)
    refusal = Acknowledgement(accepted=(), rejected={second: "Frau Knoedel is known here"})
    recipient = Recipient(account_id=1, protocol=PROTOCOLS["2024-10"], client_id="pms")
    await acknowledge(hub.ctx, recipient, refusal)
    await settle(hub)
    return [first, second]


async def erase_him(hub: Hub, why: Reason = WHY) -> Erased:
    found = await find(hub.ctx.store, email=EMAIL)
    return await erase(hub.ctx.store, found, why)


def dump(tmp_path: Path) -> bytes:
    """All that is stored, lower case: the files, or what pg_dump says."""
    url = url_of(tmp_path)
    if url == "sqlite:":
        return b"".join(path.read_bytes() for path in tmp_path.glob("cordata.db*")).lower()
    done = subprocess.run(
        [find_programs() / "pg_dump", "--data-only", "--dbname", url],
        capture_output=True,
        check=True,
    )
    # Bytes are written as hexadecimal digits.
    text = done.stdout.decode()
    bodies = [bytes.fromhex(word[3:]) for word in text.split() if word.startswith("\\\\x")]
    return b"\n".join([text.encode(), *bodies]).lower()


def found_in(stored: bytes, words: Sequence[str] = PLANTED) -> set[str]:
    hashed = sha256(EMAIL.encode())
    told = {word for word in words if word.encode() in stored}
    if TAIL in _ID_OR_TIME.sub(b" ", stored):
        told.add(TAIL.decode())
    if hashed.digest().lower() in stored or hashed.hexdigest().encode() in stored:
        told.add("hash")
    return told


async def test_nothing_of_a_person_is_left_in_the_store(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for number in range(300):  # so that pages are full and split
            await write(hub, email=f"{number}@example.com", last_name="Other", body=b"x" * 900)
        await plant(hub)
        for number in range(300, 600):
            await write(hub, email=f"{number}@example.com", last_name="Other", body=b"x" * 900)
        await hub.ctx.store.checkpoint()
        before = dump(tmp_path)
        assert found_in(before) >= {EMAIL, "planted", "knoedel", "998877"}
        erased = await erase_him(hub)
        assert erased == Erased(customers=1, requests=3, submissions=5, versions=1, mails=1)
        await hub.ctx.store.checkpoint()
        assert found_in(dump(tmp_path)) == set()
        columns = "headers, error, state, outcome"
        left = await hub.rows(f"SELECT DISTINCT {columns} FROM inbox WHERE request_id = 'r'")
        assert [tuple(row.values()) for row in left] == [("{}", None, "rejected", "erased")]
        assert await hub.one("SELECT count(*) FROM reservation") == 604
        assert await hub.one("SELECT count(*) FROM customer") == 601


async def test_what_is_nobodys_stays_when_a_person_is_erased(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first, second = await plant(hub)
        await erase_him(hub)
        rows = await hub.rows(f"SELECT * FROM reservation_version WHERE reservation_id = '{first}'")
        data = decode(rows[0]["data"])
        assert (data.arrival, data.adults) == (date(2027, 2, 1), 2)
        events = await hub.rows(
            f"SELECT event, detail FROM reservation_history WHERE reservation_id = '{first}'"
            " ORDER BY id"
        )
        assert {row["event"] for row in events} == {"received", "rejected", "erased"}
        assert json.loads(events[-2]["detail"]) == {"protocol": "2024-10", "client_id": "pms"}
        assert json.loads(events[-1]["detail"]) == {"by": "test"}
        refused = f"SELECT rejected_text FROM delivery WHERE reservation_id = '{second}'"
        assert "" in [row["rejected_text"] for row in await hub.rows(refused)]
        [other] = await hub.rows("SELECT * FROM customer")
        assert other["email"] == "other@example.com"
        newest = "SELECT data FROM reservation_version WHERE version = 2"
        assert any("other@example.com" in row["data"] for row in await hub.rows(newest))
        assert await hub.one("SELECT count(*) FROM delivery WHERE waiting = 1") == 1
        states = await hub.rows("SELECT DISTINCT state FROM inbox ORDER BY state")
        assert [row["state"] for row in states] == ["mapped", "rejected"]


async def test_person_is_new_when_he_comes_again(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await plant(hub)
        await erase_him(hub)
        await write(hub, number="n-2", **PERSON)
        await write(hub, **PERSON)
        await settle(hub)
        [again] = await find(hub.ctx.store, email=EMAIL)
        assert again["requests"] == 2


async def test_person_is_not_erased_while_his_request_waits(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await add_account(hub.ctx.store, "other", "secret", ["DEMO"])
        await write(hub, email=EMAIL)
        assert await hub.one("SELECT count(*) FROM delivery WHERE waiting = 1") == 2
        with pytest.raises(Unusable, match="wait for hotel software: 1"):
            await erase_him(hub, Reason(by="test"))
        [known] = await find(hub.ctx.store, email=EMAIL)
        assert known["requests"] == 1
        await erase_him(hub)
        assert await hub.one("SELECT count(*) FROM delivery WHERE waiting = 1") == 0


async def test_request_that_comes_before_the_locks_is_not_emptied_while_it_waits(
    tmp_path: Path,
) -> None:
    """He writes after it was asked what waits, and before his requests are held."""
    async with open_hub(tmp_path) as hub:
        await write(hub, email=EMAIL, message="Plantedmessage")
        [known] = await find(hub.ctx.store, email=EMAIL)
        why, nobody = Reason(by="test"), group_matcher([])
        with pytest.raises(Unusable, match="wait for hotel software: 1"):
            await hub.ctx.store.run(
                lambda tx: erasure._erase_requests(tx, f"[{known['id']}]", nobody, why)
            )
        assert "Plantedmessage" in await hub.one("SELECT data FROM reservation_version")


async def test_erasing_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "STEP", 2)
    async with open_hub(tmp_path) as hub:
        for number in range(5):
            await write(hub, email=EMAIL, message=f"Plantedmessage {number}")
        found = await find(hub.ctx.store, email=EMAIL)
        nobody = group_matcher([])
        done = await hub.ctx.store.run(
            lambda tx: erasure._erase_requests(tx, f"[{found[0]['id']}]", nobody, WHY)
        )
        assert done == 2
        assert (await erase_him(hub)).requests == 3
        await hub.ctx.store.checkpoint()
        assert found_in(dump(tmp_path)) == set()


async def test_all_that_was_erased_is_told_when_a_request_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as hub:
        await plant(hub)
        late = [EMAIL]

        async def one_more(*given: Any) -> Any:
            if late:
                await write(hub, email=late.pop())
            return await erase_rows(*given)

        erase_rows = erasure.erase_rows
        monkeypatch.setattr(erasure, "erase_rows", one_more)
        erased = await erase_him(hub)
        assert erased == Erased(customers=1, requests=4, submissions=5, versions=1, mails=1)


async def test_requests_that_come_meanwhile_are_not_left_without_a_customer(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        for round_ in range(5):
            await write(hub, email=EMAIL, message="first")

            async def send() -> None:
                for number in range(4):
                    await write(other, email=EMAIL, message=f"meanwhile {number}")

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                await asyncio.sleep(0.002 * round_)
                try:
                    await erase_him(hub)
                except Unusable:
                    pass
            lost = (
                "SELECT count(*) FROM reservation r JOIN reservation_version v"
                " ON v.reservation_id = r.id WHERE v.data LIKE '%planted%' AND NOT EXISTS"
                " (SELECT 1 FROM customer c WHERE c.id = r.customer_id AND c.email IS NOT NULL)"
            )
            assert await hub.one(lost) == 0


async def test_id_that_was_made_of_what_he_wrote_goes_and_the_senders_own_stays(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await post_form(hub)
        await hub.handle_events()

        async def known() -> list[str | None]:
            rows = await hub.rows("SELECT external_id FROM reservation ORDER BY source_id")
            return [row["external_id"] for row in rows]

        own, made = await known()
        assert own == WIX["data"]["submissionId"] and made is not None and len(made) == 24
        await erase(hub.ctx.store, await find(hub.ctx.store, email="eva@example.com"), WHY)
        assert await known() == [own, None]


async def test_operator_is_told_when_a_customer_became_one_with_another_meanwhile(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, phone="+390471998877", email=EMAIL)
        request = await write(hub, phone="0471998877", last_name="Knoedel")
        found = await find(hub.ctx.store, id=await customer_of(hub, request))
        await settle(hub)
        assert await hub.one("SELECT count(*) FROM customer") == 1
        with pytest.raises(Unusable, match="merged into another"):
            await erase(hub.ctx.store, found, WHY)
        [one] = await find(hub.ctx.store, phone=PHONE)
        assert (await erase(hub.ctx.store, [one], WHY)).customers == 1


@pytest.mark.parametrize("more", [0, 200], ids=["few", "many"])
async def test_each_of_several_persons_is_hidden_in_a_mail(tmp_path: Path, more: int) -> None:
    people = [
        PersonMatcher(1, "eva@example.com", frozenset({"390471998877"}), "eva muster"),
        PersonMatcher(1, "", frozenset(), "o wu"),
        PersonMatcher(1, "evald@example.com", frozenset(), ""),
        *(PersonMatcher(1, f"guest{n}@example.com", frozenset(), "") for n in range(more)),
    ]
    text = "EVALD@example.com, Eva Muster (+390471998877, Eva@Example.com) and O Wu, not Eva."

    async def mail(tx: Tx) -> None:
        await tx.send_mail(to=["hotel@example.com"], subject="News of O Wu", text=text)
        await tx.send_mail(to=["hotel@example.com"], subject="News", text="Eva, O, Wu")

    async with open_hub(tmp_path) as hub:
        await hub.ctx.store.run(mail)
        [(_, *hidden)] = (await find_traces(hub.ctx.store, people)).mails
        assert hidden == ["News of …", "…, … (…, …) and …, not Eva.", None]


async def test_loop_serves_others_while_many_are_looked_for_in_many_mails(tmp_path: Path) -> None:
    count = 6 * MAILS

    async def mail(tx: Tx) -> None:
        for number in range(count):
            his = EMAIL if number in (0, count - 1) else "nobody"
            text = "From the hotel, of no one. " * 800 + his
            await tx.send_mail(to=["hotel@example.com"], subject="News", text=text)

    def mark(number: int) -> PersonMatcher:
        numbers = frozenset({f"39047100{number:04}", f"047100{number:04}"})
        return PersonMatcher(1, f"{number}@planted.example", numbers, f"given {number} family")

    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = thread_time()
            await asyncio.sleep(0.01)
            gaps.append(thread_time() - before)

    async with open_hub(tmp_path) as hub:
        await hub.ctx.store.run(mail)
        marks = [*map(mark, range(49)), PersonMatcher(1, EMAIL, frozenset(), "")]
        ticking = asyncio.create_task(tick())
        found = await find_traces(hub.ctx.store, marks)
        ticking.cancel()
        ids = [row["id"] for row in await hub.rows("SELECT id FROM mail ORDER BY id")]
        assert [mail[0] for mail in found.mails] == [ids[0], ids[-1]]
        assert all(mail[2].endswith("…") for mail in found.mails)
        assert max(gaps) < 1.0  # seconds of this thread alone, however busy the machine is


async def test_export_tells_all_that_is_stored_of_a_person(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await plant(hub)
        found = await erasure.find_all(hub.ctx.store, PersonQuery(phone="0471 998877"))
        whole = await export(hub.ctx.store, *found)
        text = json.dumps(whole, ensure_ascii=False).lower()
        [document] = whole["customers"]
        assert found_in(text.encode()) >= {EMAIL, "planted", "knoedel", "hash", "1971-03-09"}
        assert len(document["requests"]) == 3
        assert {one["platform"] for one in document["hashes"]} == {"google", "meta"}
        [first] = [one for one in document["requests"] if EMAIL in (one["external_id"] or "")]
        assert first["versions"][0]["data"]["last_name"] == "Knoedel"
        assert first["deliveries"][0]["account"] == "demo" and first["inbox"][0]["body"]["email"]
        assert [one["event"] for one in first["history"]] == ["received", "rejected"]
        elsewhere = whole["elsewhere"]
        assert len(elsewhere["inbox"]) == 5 and len(elsewhere["versions"]) == 1
        # Every word of him that is in the store is in the document.
        said = json.dumps([PERSON[n] for n in ("message", "extra", "city", "address", "gclid")])
        assert all(word.lower() in text for word in json.loads(said))


async def test_others_are_not_taken_for_a_person_who_shares_a_number(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        body = json.dumps({"email": "wife@example.com", "phone": PHONE}).encode()
        await write(hub, email=EMAIL, phone=PHONE)
        await write(hub, email="wife@example.com", phone=PHONE, body=body)
        await settle(hub)
        erased = await erase_him(hub)
        assert (erased.requests, erased.submissions) == (1, 0)
        [wife] = await find(hub.ctx.store, phone=PHONE)
        assert wife["email"] == "wife@example.com"


@pytest.mark.parametrize(
    "body",
    [
        b'{"email": "eva+list@example.com", "message": "100 % sure"}',
        b'{"message": "My address is\\neva+list@example.com, 100% sure"}',
        b'{"message": "\\teva+list@example.com", "wrong": ',
        b'{"message": "\\u000beva+list@example.com"}',
        b'{"page": "https://example.com/?email=eva%2Blist%40example.com"}',
        b'\xef\xbb\xbf{"number": ' + b"9" * 5000 + b', "email": "eva\\u002blist@example.com"}',
        b"email=eva%2Blist%40example.com&message=100+%25",
        b'--x\r\nContent-Disposition: form-data; name="email"\r\n\r\neva+list@example.com\r\n'
        b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n100 %\r\n--x--\r\n',
    ],
)
async def test_address_is_found_however_a_submission_is_written(
    tmp_path: Path, body: bytes
) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, email="eva+list@example.com")
        await leave(hub, "review", body)
        found = await find(hub.ctx.store, email="eva+list@example.com")
        assert (await erase(hub.ctx.store, found, WHY)).submissions == 1
        assert bytes(await hub.one("SELECT body FROM inbox WHERE request_id = 'r'")) == b""


@pytest.mark.parametrize(
    "body",
    [
        b'{"message": "DOMAIN\\\\nora@example.com"}',
        b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\nDOMAIN\\nora@example.com\r\n',
    ],
)
async def test_letter_after_a_backslash_that_was_written_belongs_to_the_address(
    tmp_path: Path, body: bytes
) -> None:
    async with open_hub(tmp_path) as hub:
        for email in ("ora@example.com", "nora@example.com"):
            await write(hub, email=email)
        await leave(hub, "review", body)
        erased = [
            (await erase(hub.ctx.store, await find(hub.ctx.store, email=email), WHY)).submissions
            for email in ("ora@example.com", "nora@example.com")
        ]
        assert erased == [0, 1]


@pytest.mark.parametrize("phone", ["0660 1234567", "0660 7654321"])
async def test_number_is_found_when_another_is_in_the_next_line(tmp_path: Path, phone: str) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, email="", phone=phone)
        await leave(hub, "review", b'{"phone": "0660 1234567\\n0660 7654321"}')
        found = await find(hub.ctx.store, phone=phone)
        assert (await erase(hub.ctx.store, found, WHY)).submissions == 1


async def test_plus_in_json_belongs_to_the_address(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, email="eva@example.com")
        for message in ("100 % sure", ""):
            await write(hub, number="n-1", email="otto+eva@example.com", message=message)
        await leave(hub, "review", b'{"email": "otto+eva@example.com", "message": "100 % sure"}')
        erased = await erase(hub.ctx.store, await find(hub.ctx.store, email="eva@example.com"), WHY)
        assert (erased.submissions, erased.versions) == (0, 0)


async def test_address_is_found_in_the_second_line_of_an_old_version(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, email="eva@example.com")
        await write(hub, number="n-1", email="otto@example.com", message="With\neva@example.com")
        await write(hub, number="n-1", email="otto@example.com", message="")
        found = await find(hub.ctx.store, email="eva@example.com")
        assert (await erase(hub.ctx.store, found, WHY)).versions == 1
        data = decode(await hub.one("SELECT data FROM reservation_version WHERE id = 2"))
        assert (data.email, data.message) == ("", "")


async def test_others_are_not_taken_for_a_person_whose_address_is_within_theirs(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        for other in ("x" + EMAIL, "x." + EMAIL, EMAIL + "er", EMAIL + ".org"):
            await write(hub, email=other, body=json.dumps({"email": other}).encode())
        await write(hub, email=EMAIL, body=json.dumps({"email": EMAIL}).encode())
        erased = await erase_him(hub)
        assert (erased.requests, erased.submissions, erased.versions) == (1, 0, 0)
        assert await hub.one("SELECT count(*) FROM inbox WHERE length(body) > 0") == 4


async def test_one_known_by_number_alone_takes_no_request_of_those_who_share_it(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        body = json.dumps({"phone": PHONE}).encode()
        for email in ("a@example.com", "b@example.com"):
            await write(hub, email=email, phone=PHONE, body=body)
        await settle(hub)
        await write(hub, phone=PHONE, body=body)
        await settle(hub)
        [nameless] = [one for one in await find(hub.ctx.store, phone=PHONE) if not one["email"]]
        erased = await erase(hub.ctx.store, [nameless], WHY)
        assert (erased.requests, erased.submissions) == (1, 0)
        assert await hub.one("SELECT count(*) FROM inbox WHERE length(body) > 0") == 2


def test_every_field_of_a_record_was_decided_on() -> None:
    """A new field goes, unless it is said to stay."""
    everything = ReservationData(status="request", adults=2, **PERSON)
    assert anonymous(everything) == ReservationData(status="request", adults=2)


async def test_customers_are_found_by_what_is_known_of_them(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, **PERSON)
        await write(hub, last_name="100%_Sure", phone="+39333111222")
        await settle(hub)
        store = hub.ctx.store
        one, two = [row["id"] for row in await hub.rows("SELECT id FROM customer ORDER BY id")]

        async def ids(**by: Any) -> list[int]:
            return [row["id"] for row in await find(store, **by)]

        assert await ids(email=" " + EMAIL.upper()) == [one]
        assert await ids(phone="+39 0471 99-88-77") == await ids(phone="0471/998877") == [one]
        assert await ids(name="noed") == [one] and await ids(name="%_") == [two]
        assert await ids(id=two) == [two] and await ids(id=two + 1) == []
        assert await ids(id=two, hotel="DEMO") == [two]
        with pytest.raises(Unusable, match="no hotel"):
            await find(store, id=1, hotel="NONE")
