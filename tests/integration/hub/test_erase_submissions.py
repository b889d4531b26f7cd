"""A person who is only in submissions of the inbox is found, exported and erased."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import syslog
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.command import Run
from tests.integration.hub.guests import leave, write
from tests.integration.hub.lenient import (
    FORM,
    NOW,
    PATH_SECRET,
    open_lenient,
    post_form,
    post_wix,
    wix,
)
from tests.integration.hub.material import Hub, open_hub
from tests.integration.hub.test_erase import dump

from alpinehub.cli.customer import customer
from alpinehub.customers import erasure
from alpinehub.customers.erasure import Reason, erase
from alpinehub.customers.search import PersonQuery, find
from alpinehub.customers.traces import find_traces
from alpinehub.hotels import NewHotel, Unusable, add_hotel
from alpinehub.inbox import actions, processing
from alpinehub.intake import run_until_stored
from alpinehub.sources import add_source
from alpinehub.webhooks.fields import FieldMapping, decode

pytestmark = pytest.mark.usefixtures("each_store")

EMAIL, PHONE = "zwetschke@planted.example", "+39 333 1212123"
#: Words of the person only.
PLANTED = (EMAIL.encode(), b"zwetschke", b"planted.example", b"1212123", b"121+2123", b"knoedel")
#: Without a stay: it waits for review.
NO_STAY: dict[str, Any] = {"arrival": "", "departure": ""}
HERE = ("--hotel", "DEMO")


async def plant(hub: Hub) -> None:
    """Submissions 1 to 4 of the person: in review, rejected, and with the number only; and 5, 6 of
    other persons.
    """
    mine = {"email": EMAIL.title(), "name": "Zwetschke Knoedel"}
    await post_form(hub, FORM | NO_STAY | mine | {"message": "Knoedel, please"})
    await post_wix(hub, body=json.dumps({"data": f"{EMAIL} Zwetschke"}).encode())
    await actions.reject(hub.ctx.store, 2, "no form")
    await post_form(hub, FORM | NO_STAY | {"email": "", "phone": PHONE, "name": "Knoedel"})
    body = b'{"data": {"x": "333+121+2123 Knoedel", "contact": "wife@example.com"}}'
    await post_wix(hub, body=body)
    await post_form(hub, FORM | NO_STAY | {"email": f"x{EMAIL}", "name": "Other"})
    await post_wix(hub, body=b'{"data": {"x": "333 1212124, 333 12121231, 1212123"}}')
    states = await hub.rows("SELECT state FROM inbox ORDER BY id")
    assert [row["state"] for row in states] == [*("review", "rejected"), *["review"] * 4]
    assert await hub.one("SELECT count(*) FROM customer") == 0


async def left(hub: Hub) -> list[int]:
    """The submissions that have their text."""
    rows = await hub.rows("SELECT id FROM inbox WHERE length(body) > 0 ORDER BY id")
    return [row["id"] for row in rows]


def ids_of(submissions: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(one["id"], one["found_by"]) for one in submissions]


async def test_person_in_submissions_only_is_found_exported_and_erased(
    tmp_path: Path, run: Run
) -> None:
    async with open_lenient(tmp_path) as hub:
        await plant(hub)
        by_address, by_number = [(1, "address"), (2, "address")], [(3, "number"), (4, "number")]
        for who, text, found in (
            (("--email", EMAIL.upper()), EMAIL, by_address),
            (("--phone", PHONE), "333 1212123", by_number),
        ):
            for command in (("find", text), ("show", *who)):
                printed = (await run("customer", *command, "--json")).json
                assert printed["customers"] == [] and ids_of(printed["submissions"]) == found
            shown = await run("customer", "show", *who)
            assert "FOUND BY" in shown.out and "no customer" in shown.err
            exported = (await run("customer", "export", *who, *HERE)).json
            texts = exported["elsewhere"]["inbox"]
            assert [(one["id"], one["hotel"]) for one in texts] == [
                (id_, "DEMO") for id_, _ in found
            ]
            assert all("Knoedel" in str(one["body"]) or EMAIL in str(one["body"]) for one in texts)

            dry = ("erase", *who, *HERE, "--dry-run")
            tried = (await run("customer", *dry, "--json")).json
            assert (tried["hotels"], tried["submissions"]) == (["DEMO"], 2)
            assert ids_of(tried["submission_list"]) == found
            listed = (await run("customer", *dry)).out
            assert "also 2 submissions" in listed and "nothing was erased" in listed
            assert all(re.search(rf"^ *{id_} .*{by}", listed, re.MULTILINE) for id_, by in found)
            asked = await run("customer", "erase", *who, *HERE, code=1, given="n\n")
            assert "also 2 submissions" in asked.err
            before = await left(hub)
            done = await run("customer", "erase", *who, *HERE, "--yes", "--json")
            assert (done.json["customers"], done.json["submissions"]) == (0, 2)
            assert set(before) - set(await left(hub)) == {id_ for id_, _ in found}
            for words in (("show", *who), ("export", *who, *HERE), ("erase", *who, *HERE)):
                gone = await run("customer", *words, code=1)
                assert "no such customer, and no submission" in gone.err and "hint:" in gone.err
        assert await left(hub) == [5, 6]
        await hub.ctx.store.checkpoint()
        stored = dump(tmp_path)
        for others in (b"xzwetschke%40planted.example", b"12121231", b", 1212123"):
            assert others in stored
            stored = stored.replace(others, b"")
        assert not [word for word in PLANTED if word in stored]


async def test_submission_is_found_by_a_name(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path) as hub:
        await plant(hub)
        await write(hub, last_name="Knoedel", email="a@example.com", body=b'{"x": "Knoedel"}')
        for name, count, ids in (
            ("zwetschke  KNOEDEL", 0, [1]),
            ("Knoedel", 1, [1, 3, 4]),
            ("noedel", 1, []),
        ):
            found = (await run("customer", "find", name, "--json")).json
            assert len(found["customers"]) == count
            assert ids_of(found["submissions"]) == [(id_, "name") for id_ in ids]
        nothing = await run("customer", "find", "nobody", "--json")
        assert "nothing found" in nothing.err


async def test_submissions_of_another_hotel_stay(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path) as hub:
        await add_hotel(hub.ctx.store, NewHotel(code="ROSE", name="Rosé"))
        await add_source(hub.ctx, "ROSE", "generic", "web", "rose-secret-0123456789")
        for hotel in ("DEMO", "ROSE"):
            await leave(hub, "review", f"<{EMAIL}>".encode(), hotel)
        who = ("customer", "erase", "--email", EMAIL)
        tried = (await run(*who, "--all-hotels", "--dry-run", "--json")).json
        assert (tried["hotels"], tried["submissions"]) == (["DEMO", "ROSE"], 5)
        await run(*who, "--hotel", "ROSE", "--yes")
        assert await left(hub) == [1, 2, 3, 4]  # one for each source
        await run(*who, "--hotel", "ROSE", "--yes", code=1)


@pytest.mark.parametrize("email", ["", "planted.example", "@", "eva muster@example.com"])
async def test_part_of_an_address_erases_nothing(tmp_path: Path, run: Run, email: str) -> None:
    async with open_lenient(tmp_path) as hub:
        await plant(hub)
        done = await run("customer", "erase", "--email", email, *HERE, "--yes", code=1)
        assert "must be a whole one" in done.err
        assert len(await left(hub)) == 6


async def test_customer_and_their_submissions_are_counted_apart(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_form(
            hub, FORM | {"email": EMAIL, "arrival": "2031-02-01", "departure": "2031-02-02"}
        )
        await post_form(hub, FORM | NO_STAY | {"email": EMAIL})
        who = ("--email", EMAIL, *HERE)
        tried = (await run("customer", "erase", *who, "--dry-run", "--json")).json
        assert (tried["customers"], tried["requests"], tried["submissions"]) == (1, 1, 1)
        exported = (await run("customer", "export", *who)).json
        assert [one["id"] for one in exported["elsewhere"]["inbox"]] == [2]
        [request] = exported["customers"][0]["requests"]
        assert [one["id"] for one in request["inbox"]] == [1]
        await run("customer", "erase", *who, "--yes", "--force")
        assert await left(hub) == []


def with_default_stay(before: FieldMapping) -> FieldMapping:
    return decode(b'{"defaults": {"arrival": "2031-02-01", "departure": "2031-02-08"}}')


def with_another_stay(before: FieldMapping) -> FieldMapping:
    return decode(b'{"defaults": {"arrival": "2032-02-01", "departure": "2032-02-08"}}')


async def test_submission_that_is_mapped_while_it_is_erased_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator corrects the mapping after the submission was found, before it is erased."""
    async with open_lenient(tmp_path) as hub:
        await post_form(hub, FORM | NO_STAY | {"email": EMAIL, "name": "Zwetschke Knoedel"})
        await actions.change_mapping(hub.ctx.store, "DEMO", "form", with_default_stay)
        due = [1]

        async def map_then(*given: Any, **how: Any) -> Any:
            found = await find_traces(*given, **how)
            if due:
                [one] = [one async for one in actions.reprocess(hub.ctx, [due.pop()])]
                assert one.state == "mapped"
            return found

        monkeypatch.setattr(erasure, "find_traces", map_then)
        query = PersonQuery(email=EMAIL)
        with pytest.raises(Unusable, match="wait for hotel software: 1"):
            await erase(hub.ctx.store, [], Reason(by="test"), query)
        assert await left(hub) == [1]  # nothing is half erased
        due.append(1)
        monkeypatch.undo()
        erased = await erase(hub.ctx.store, [], Reason(by="test", force=True), query)
        assert (erased.customers, erased.requests) == (1, 1)
        await hub.ctx.store.checkpoint()
        stored = dump(tmp_path)
        assert not [word for word in PLANTED if word in stored]


async def test_submission_that_becomes_the_request_of_another_while_it_is_erased_loses_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lenient(tmp_path) as hub:
        other = {"email": "other@example.com", "message": f"for {EMAIL}"}
        await post_form(hub, FORM | NO_STAY | other)
        await actions.change_mapping(hub.ctx.store, "DEMO", "form", with_default_stay)

        async def map_then(*given: Any, **how: Any) -> Any:
            found = await find_traces(*given, **how)
            assert [one.done async for one in actions.reprocess(hub.ctx, [1])] == [True]
            return found

        monkeypatch.setattr(erasure, "find_traces", map_then)
        erased = await erase(hub.ctx.store, [], Reason(by="test"), PersonQuery(email=EMAIL))
        assert (erased.customers, erased.requests, erased.submissions) == (0, 0, 1)
        assert await left(hub) == []


@pytest.mark.parametrize("state", ["review", "mapped"])
async def test_submission_that_is_erased_while_it_is_reprocessed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The text was read when it is erased; the unit that would store it finds that."""
    async with open_lenient(tmp_path) as hub:
        if state == "mapped":
            await actions.change_mapping(hub.ctx.store, "DEMO", "form", with_default_stay)
        await post_form(hub, FORM | NO_STAY | {"email": EMAIL, "name": "Zwetschke Knoedel"})
        assert await hub.one("SELECT state FROM inbox") == state
        await actions.change_mapping(hub.ctx.store, "DEMO", "form", with_another_stay)

        async def erase_first(*given: Any, **how: Any) -> Any:
            people = await find(hub.ctx.store, email=EMAIL)
            why = Reason(by="test", force=True)
            await erase(hub.ctx.store, people, why, PersonQuery(email=EMAIL))
            return await run_until_stored(*given, **how)

        monkeypatch.setattr(processing, "run_until_stored", erase_first)
        [one] = [one async for one in actions.reprocess(hub.ctx, [1], force=True)]
        assert not one.done and one.problems == ("text_deleted",)
        await hub.ctx.store.checkpoint()
        stored = dump(tmp_path)
        assert not [word for word in PLANTED if word in stored]


def submission(id_: str, *, stay: bool) -> dict[str, Any]:
    days = {} if stay else {"field__date_picker_a7c8": None, "field__date_picker_7e65": None}
    shown: dict[str, Any] = {} if stay else {"submissions": []}
    return wix(submissionId=id_, field__email_5139=EMAIL, **days, **shown)


async def test_submissions_that_come_meanwhile_are_whole_or_erased(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False, now=NOW) as other:
        query = PersonQuery(email=EMAIL)
        for round_ in range(4):
            assert (await post_wix(hub, submission(f"before {round_}", stay=False))).status == 200
            known = await hub.one("SELECT max(id) FROM inbox")

            async def send(round_: int) -> None:
                for number in range(6):
                    payload = submission(f"{round_} {number}", stay=number % 2 == 0)
                    assert (await post_wix(other, payload)).status == 200

            async with asyncio.TaskGroup() as group:
                group.create_task(send(round_))
                await asyncio.sleep(0.002 * round_)
                customers = await find(hub.ctx.store, email=EMAIL)
                try:
                    await erase(hub.ctx.store, customers, Reason(by="test", force=True), query)
                except Unusable:  # the person keeps sending requests
                    pass
            assert all(id_ > known for id_ in await left(hub))
            half = "SELECT count(*) FROM inbox WHERE length(body) = 0 AND state = 'review'"
            assert await hub.one(half) == 0
        customers = await find(hub.ctx.store, email=EMAIL)
        await erase(hub.ctx.store, customers, Reason(by="test", force=True), query)
        await hub.ctx.store.checkpoint()
        assert not [word for word in PLANTED if word in dump(tmp_path)]


async def test_log_and_journal_have_no_personal_data(
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    journal: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, line: journal.append(line))
    monkeypatch.setenv("CORDATA_CONFIG", str(tmp_path / "cordata.toml"))
    caplog.set_level(logging.DEBUG)
    async with open_lenient(tmp_path) as hub:
        await plant(hub)
        for who in (("--email", EMAIL), ("--phone", PHONE)):
            words = ["erase", *who, *HERE, "--reason", "letter", "--yes"]
            await asyncio.to_thread(customer.main, words, standalone_mode=False)
        assert await left(hub) == [5, 6]
    said = "\n".join([*journal, caplog.text, *capsys.readouterr()])
    assert "2 submissions: 1 2" in said and "2 submissions: 3 4" in said
    assert not [word for word in PLANTED if word.decode() in said.lower()]
    assert PATH_SECRET not in said
