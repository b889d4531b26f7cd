"""`alpinehub inbox` and what it calls: the review list, the mapping, and everything once more."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.command import Run
from tests.integration.hub.lenient import (
    FORM,
    GOOGLE,
    WIX,
    data,
    open_lenient,
    post_form,
    post_google,
    post_wix,
    wix,
)
from tests.raw import raw

from alpinehub.hotels import NewHotel, Unusable, add_hotel
from alpinehub.inbox import actions, listing, processing
from alpinehub.inbox.actions import change_mapping, reprocess
from alpinehub.inbox.listing import InboxFilter, list_inbox, require_row
from alpinehub.inbox.processing import settle
from alpinehub.intake import run_until_stored
from alpinehub.report.job import read_report
from alpinehub.sources import set_options
from alpinehub.webhooks.fields import FieldMapping, decode
from cordata.core.alert import scrub

on_each_store = pytest.mark.usefixtures("each_store")


@on_each_store
async def test_submission_leaves_review_when_its_mapping_is_corrected(
    tmp_path: Path, run: Run
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub, wix(submissions=[]))
        await post_wix(hub, body=b"{eva@example.com")
        await hub.handle_events()
        listed = (await run("inbox", "list")).out
        assert "ambiguous:arrival" in listed and "not_json" in listed
        assert "eva" not in listed.lower() and "muster" not in listed.lower()
        first = await run("inbox", "list", "--limit", "1")
        assert "not_json" in first.out and first.err == "there is more: --after 2\n"
        last = await run("inbox", "list", "--limit", "1", "--after", "2")
        assert "ambiguous" in last.out and last.err == ""
        shown = (await run("inbox", "show", "1")).out
        assert re.search(r"^first_name_abae +- +Eva +first_name$", shown, re.MULTILINE)
        assert "would now be  review (ambiguous:arrival, ambiguous:departure)" in shown

        assert "`alpinehub inbox show ID`" in (await run("inbox", "map", "DEMO", "wix")).out
        fields = ("--field", "arrival=field:date_picker_a7c8")
        tried = await run("inbox", "map", "DEMO", "wix", *fields, "--try", "1", "--json")
        assert tried.json["becomes"] == "mapped" and tried.json["arrival"] == "2027-02-01"
        tried = await run("inbox", "map", "DEMO", "wix", *fields, "--try", "1")
        assert tried.out.endswith("\n1 would be mapped: 2027-02-01 to 2027-02-08\n")
        tried = await run("inbox", "map", "DEMO", "wix", "--try", "2")
        assert tried.out.endswith("\n2 would be review: not_json\n")
        assert await hub.one("SELECT mapping FROM source WHERE name = 'wix'") is None
        both = (*fields, "--field", "departure=field:date_picker_7e65")
        mapped = (await run("inbox", "map", "DEMO", "wix", *both, "--json")).json
        assert (mapped["in_review"], mapped["can_be_mapped"]) == (2, 1)
        assert mapped["mapping"]["revision"] == 1
        dry = await run("inbox", "reprocess", "--source", "wix", "--dry-run", code=1)
        assert "1 of 2 mapped" in dry.out
        assert await hub.one("SELECT count(*) FROM reservation") == 0
        done = (await run("inbox", "reprocess", "--all", "--json", code=1)).json
        assert [(one["id"], one["state"]) for one in done] == [(1, "mapped"), (2, "review")]
        assert done[1]["problems"] == ["not_json"]
        assert (await data(hub))["departure"] == "2027-02-08"
        assert await hub.one("SELECT detail FROM reservation_history WHERE event = 'mapped'") == (
            '{"mapping":1}'
        )
        await run("inbox", "reject", "2", "--reason", "no form")
        assert (await run("inbox", "list", "--json")).json["items"] == []
        everything = (await run("inbox", "list", "--state", "all", "--json")).json["items"]
        assert [row["state"] for row in everything] == ["rejected", "mapped"]
        await hub.handle_events()


@on_each_store
async def test_rejection_is_taken_back_by_reprocess(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        stay = {"arrival": "2031-02-01", "departure": "2031-02-08"}
        await post_form(hub, FORM | stay | {"adults": "two or three"})
        await post_google(hub, {**GOOGLE, "is_test": True})
        await run("inbox", "reject", "1", "--reason", "advertising")
        assert (
            "rejected already" in (await run("inbox", "reject", "1", "--reason", "x", code=1)).err
        )
        dry = await run("inbox", "reprocess", "1", "--dry-run", code=1)
        assert "1: review (" in dry.out and "0 of 1 mapped" in dry.out
        assert (await run("inbox", "list", "--json")).json["items"] == []
        assert (await run("inbox", "reprocess", "--all")).out == "0 of 0 mapped\n"
        again = await run("inbox", "reprocess", "1", "2", "--json", code=1)
        states = [(one["state"], one["done"], one["problems"]) for one in again.json]
        assert states == [
            ("review", False, ["unreadable:adults"]),
            ("rejected", False, ["test"]),
        ]
        [waiting] = (await run("inbox", "list", "--json")).json["items"]
        assert waiting["error"] == "unreadable:adults"
        await run("inbox", "reject", "1", "--reason", "advertising")
        await run("inbox", "map", "DEMO", "form", "--value", "adults:two or three=3")
        assert "1: mapped\n1 of 1 mapped" in (await run("inbox", "reprocess", "1")).out
        assert (await data(hub))["adults"] == 3
        assert (
            "is mapped already" in (await run("inbox", "reject", "1", "--reason", "x", code=1)).err
        )
        figures = await hub.rows("SELECT kind FROM hour_change")
        assert [row["kind"] for row in figures] == ["test"]  # counted once


@on_each_store
@pytest.mark.parametrize("state", ["review", "rejected"])
async def test_text_of_a_rejected_submission_is_erased_on_request(
    tmp_path: Path, run: Run, state: str
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_form(hub, FORM | {"arrival": ""})
        if state == "rejected":
            await run("inbox", "reject", "1", "--reason", "spam")
        done = await run("inbox", "reject", "1", "--reason", "letter", "--erase")
        assert done.out == "submission 1 rejected, its text is deleted\n"
        [row] = await hub.rows(
            "SELECT state, outcome, error, headers, body, external_id FROM inbox"
        )
        assert (row["state"], row["outcome"], row["headers"]) == ("rejected", "erased", "{}")
        assert row["error"] == "letter"  # not the reason of before, which may name the person
        assert bytes(row["body"]) == b"" and row["external_id"] is None
        shown = await run("inbox", "show", "1")
        assert "text" in shown.out and "deleted" in shown.out and "would now be" not in shown.out
        assert (await run("inbox", "show", "1", "--json")).json["now"] is None
        tried = await run("inbox", "map", "DEMO", "form", "--try", "1", code=1)
        assert "the text of submission 1 was deleted" in tried.err
        for words in (("1",), ("1", "--force"), ("1", "--dry-run")):
            again = await run("inbox", "reprocess", *words, code=1)
            assert "1: rejected (text_deleted)" in again.out
        assert await hub.one("SELECT count(*) FROM reservation") == 0


@pytest.mark.parametrize("how", ["reject", "customer"])
async def test_operator_is_warned_when_a_reader_keeps_erased_text_in_the_log(
    tmp_path: Path, run: Run, how: str
) -> None:
    words = {
        "reject": ("inbox", "reject", "1", "--reason", "letter", "--erase"),
        "customer": ("customer", "erase", "--email", "eva@example.com", "--all-hotels", "--yes"),
    }[how]
    async with open_lenient(tmp_path) as hub:
        await post_form(hub, FORM | {"arrival": "", "email": "eva@example.com"})
        with closing(sqlite3.connect(tmp_path / "cordata.db")) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM inbox").fetchone()
            done = await run(*words)
            assert "erased text may stay in its write-ahead log" in done.err
        await post_form(hub, FORM | {"arrival": "", "email": "eva@example.com"})
        again = await run(*(word.replace("1", "2") for word in words))
        assert again.err == ""


@on_each_store
@pytest.mark.parametrize("when", ["before", "while"])
async def test_submission_that_is_rejected_meanwhile_stays_rejected(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """`reprocess --all` takes no rejection back: another operator rejects before it comes to the
    submission, or while it interprets it.
    """
    async with open_lenient(tmp_path, now=None) as hub:
        await post_form(hub, FORM | {"adults": "two or three"})
        await run("inbox", "map", "DEMO", "form", "--value", "adults:two or three=3")

        async def reject_first(*given: Any, **how: Any) -> None:
            await actions.reject(hub.ctx.store, 1, "advertising")
            await run_until_stored(*given, **how)

        ids = await actions.in_review(hub.ctx.store, None, None)
        if when == "before":
            await actions.reject(hub.ctx.store, 1, "advertising")
        else:
            monkeypatch.setattr(processing, "run_until_stored", reject_first)
        [one] = [one async for one in reprocess(hub.ctx, ids, rejected=False)]
        assert (one.state, one.done) == ("rejected", True)
        [row] = await hub.rows("SELECT state, error FROM inbox")
        assert (row["state"], row["error"]) == ("rejected", "advertising")
        assert await hub.one("SELECT count(*) FROM reservation") == 0


@on_each_store
async def test_mapped_submission_without_its_text_stays_as_it_is(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await hub.execute("UPDATE inbox SET body = ?", b"")
        assert "1 of 1 mapped" in (await run("inbox", "reprocess", "1")).out
        for more in ((), ("--dry-run",)):
            again = await run("inbox", "reprocess", "1", "--force", *more, code=1)
            assert "1: mapped (text_deleted)" in again.out
        assert (
            "is mapped already"
            in (await run("inbox", "reject", "1", "--reason", "x", "--erase", code=1)).err
        )
        assert await hub.one("SELECT version FROM reservation") == 1


@on_each_store
async def test_mapped_submission_is_a_change_when_it_is_forced(tmp_path: Path) -> None:
    def as_suite(before: FieldMapping) -> FieldMapping:
        return decode(b'{"values": {"room_type": {"*": "SUITE"}}, "defaults": {"adults": "2"}}')

    async with open_lenient(tmp_path) as hub:

        async def again(number: int, **how: Any) -> str:
            [one] = [one async for one in reprocess(hub.ctx, [number], **how)]
            return one.state

        await post_wix(hub, wix(field__room_11aa="Suite mit Balkon"))
        await hub.handle_events()
        assert (await data(hub))["extra"] == "room: Suite mit Balkon"
        await change_mapping(hub.ctx.store, "DEMO", "wix", as_suite)
        assert await again(1) == "mapped"
        assert await hub.one("SELECT version FROM reservation") == 1
        assert await again(1, force=True) == "mapped"
        record = await data(hub)
        assert record["room_type"] == "SUITE" and "extra" not in record
        assert await hub.one("SELECT version FROM reservation") == 2
        # What the guest said later stays.
        await post_wix(hub, wix(field__room_11aa="Suite", field__number_7cf5="4"))
        await hub.handle_events()
        assert await again(1, force=True) == "mapped"
        assert (await data(hub))["adults"] == 4
        assert await hub.one("SELECT count(*) FROM reservation") == 1


@on_each_store
async def test_submissions_are_counted_when_they_are_settled_and_not_when_they_are_forced(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub:
        for number in (1, 1, 2):
            await post_wix(hub, wix(submissionId=f"s-{number}"))
        await post_google(hub, {**GOOGLE, "is_test": True})
        await hub.handle_events()
        again = [one.state async for one in reprocess(hub.ctx, [1, 2, 3, 4], force=True)]
        assert again == ["mapped", "mapped", "mapped", "rejected"]
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "duplicate", "new", "test"]
        figures = await read_report(hub.ctx, "DEMO", "2027-01-02")
        assert (figures.received, figures.duplicates, figures.tests) == (2, 1, 1)


@on_each_store
async def test_submission_that_waited_in_review_does_not_undo_what_came_later(
    tmp_path: Path,
) -> None:
    def by_key(before: FieldMapping) -> FieldMapping:
        return decode(
            b'{"fields": {"arrival": ["field:date_picker_a7c8"], '
            b'"departure": ["field:date_picker_7e65"]}}'
        )

    async with open_lenient(tmp_path) as hub:
        await post_wix(hub, wix(submissions=[]))
        await post_wix(hub, wix(field__number_7cf5="4"))
        await hub.handle_events()
        rows = await hub.rows("SELECT state FROM inbox ORDER BY id")
        assert [row["state"] for row in rows] == ["review", "mapped"]
        await change_mapping(hub.ctx.store, "DEMO", "wix", by_key)
        [one] = [one async for one in reprocess(hub.ctx, [1, 1])]  # given twice, it is told once
        assert one.state == "mapped"
        assert (await data(hub))["adults"] == 4
        assert await hub.one("SELECT version FROM reservation") == 1
        rows = await hub.rows("SELECT outcome, reservation_id FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["duplicate", "new"]
        assert rows[0]["reservation_id"] == rows[1]["reservation_id"]
        # What comes after both is a change as ever.
        await post_wix(hub, wix(field__number_7cf5="3"))
        await hub.handle_events()
        assert (await data(hub))["adults"] == 3
        assert await hub.one("SELECT version FROM reservation") == 2


@on_each_store
async def test_operator_accepts_a_stay_that_is_past_or_very_long_and_nothing_else(
    tmp_path: Path, run: Run
) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        for arrival, departure in (
            ("2020-02-01", "2020-02-08"),  # past
            ("2031-02-01", "2033-02-08"),  # too long
            ("2031-02-08", "2031-02-01"),  # the wrong way round
        ):
            stay = {"arrival": arrival, "departure": departure, "adults": "2"}
            await post_form(hub, {**stay, "last_name": "Muster", "email": "e@x.example"})
        await hub.handle_events()
        for number in ("1", "2"):
            done = await run("inbox", "accept", number, "--json")
            assert done.json["state"] == "mapped"
        failed = (await run("inbox", "accept", "3", code=1)).err
        assert "cannot be accepted as it is: invalid:departure\n" in failed
        assert "`alpinehub inbox map DEMO form --field TARGET=PLACE --try 3`" in failed
        await post_wix(hub, body=b"{")
        failed = (await run("inbox", "accept", "4", code=1)).err
        assert "cannot be accepted as it is: not_json\n" in failed
        assert "`alpinehub inbox reject 4 --reason TEXT`" in failed and "inbox map" not in failed
        assert "is mapped" in (await run("inbox", "accept", "1", code=1)).err
        assert await hub.one("SELECT count(*) FROM reservation") == 2
        details = await hub.rows("SELECT detail FROM reservation_history WHERE event = 'mapped'")
        assert all("accepted_by" in row["detail"] for row in details)


@on_each_store
async def test_accept_fails_when_the_submission_became_spam_or_was_rejected_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lenient(tmp_path) as hub:
        past = {"arrival": "2020-02-01", "departure": "2020-02-08"}
        await post_form(hub, FORM | past)
        await hub.handle_events()
        await set_options(hub.ctx.store, "DEMO", "form", {"honeypot": "message"})
        with pytest.raises(Unusable, match="cannot be accepted as it is: spam"):
            await actions.accept(hub.ctx, 1, by="test")
        assert await hub.one("SELECT state FROM inbox") == "review"
        await set_options(hub.ctx.store, "DEMO", "form", {"honeypot": ""})

        async def reject_first(ctx: Any, inbox_id: int, **how: Any) -> None:
            await actions.reject(ctx.store, inbox_id, "by another operator")
            await settle(ctx, inbox_id, **how)

        monkeypatch.setattr(actions, "settle", reject_first)
        with pytest.raises(Unusable, match="changed at the same time: the submission is rejected"):
            await actions.accept(hub.ctx, 1, by="test")
        assert await hub.one("SELECT count(*) FROM reservation") == 0


@on_each_store
async def test_accept_says_so_when_a_later_submission_changed_the_request(
    tmp_path: Path, run: Run
) -> None:
    async with open_lenient(tmp_path, now=None) as hub:
        for year in (2020, 2031):
            stay = {"Anreisedatum": f"01.02.{year}", "Abreisedatum": f"08.02.{year}"}
            fields = [{"label": label, "value": day} for label, day in stay.items()]
            await post_wix(hub, wix(submissions=fields))
            await hub.handle_events()
        assert "accepted; it is not sent" in (await run("inbox", "accept", "1")).out
        assert await hub.one("SELECT version FROM reservation") == 1


@on_each_store
async def test_reject_leaves_alone_what_was_settled_a_moment_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(tx: Any, inbox_id: int) -> Any:
        return {**await require_row(tx, inbox_id), "state": "review"}

    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await hub.handle_events()
        monkeypatch.setattr(actions, "require_row", before)
        with pytest.raises(Unusable, match="settled at the same time"):
            await actions.reject(hub.ctx.store, 1, "no form")
        assert await hub.rows("SELECT state, error FROM inbox") == [
            {"state": "mapped", "error": None}
        ]


@on_each_store
async def test_undeliverable_request_is_in_the_list_beside_the_submissions(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_google(hub)
        await post_wix(hub, body=b"[]")
        await hub.handle_events()

        async def hold(tx: Any) -> None:
            await raw(
                tx,
                "UPDATE delivery SET undeliverable_code = 'no_stay',"
                " undeliverable_text = 'no dates', undeliverable_at = 5",
            )

        await hub.ctx.run(hold)
        rows = await list_inbox(hub.ctx.store, InboxFilter())
        assert [(row["state"], row["error"]) for row in rows] == [
            ("review", "not_an_object"),
            ("undeliverable", "no_stay for demo: no dates"),
        ]
        [held] = await list_inbox(
            hub.ctx.store, InboxFilter(state="undeliverable", hotel="DEMO", source="ads")
        )
        assert held["id"] == await hub.one("SELECT id FROM reservation")
        await add_hotel(hub.ctx.store, NewHotel(code="OTHER", name="Other"))
        assert (
            await list_inbox(hub.ctx.store, InboxFilter(state="undeliverable", hotel="OTHER")) == []
        )
        for since, count in ((5, 1), (6, 0)):
            wanted = InboxFilter(state="undeliverable", since=since)
            assert len(await list_inbox(hub.ctx.store, wanted)) == count


@on_each_store
@pytest.mark.parametrize("window", [2, 5000])
async def test_list_comes_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(listing, "_WINDOW", window)

    async with open_lenient(tmp_path) as hub:
        for number in range(5):
            await post_wix(hub, wix(submissionId=f"s-{number}"))
        await post_form(hub)
        await hub.handle_events()
        for state in ("all", "mapped"):
            ids: list[object] = []
            while page := await list_inbox(
                hub.ctx.store,
                InboxFilter(state=state, limit=2, after=int(str(ids[-1])) if ids else 0),
            ):
                ids += [row["id"] for row in page]
            assert ids == [6, 5, 4, 3, 2, 1]
        assert len(await list_inbox(hub.ctx.store, InboxFilter(state="all", source="form"))) == 1
        assert await list_inbox(hub.ctx.store, InboxFilter(state="all", since=2**60)) == []


@on_each_store
async def test_alert_about_a_changed_form_names_known_fields_and_only_counts_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        for number in range(2):
            await post_wix(hub, wix(submissionId=f"s-{number}"))
        await hub.handle_events()
        assert "has changed" not in caplog.text
        changed = {
            "field:email_5139": None,
            "field:email_beef": "eva@example.com",
            "field:a@b.it": "x",
            "field:Call_Eva_Rossi": "x",
            "field:www.planted.example/pay": "x",
            "field:\u202ee-mail": "x",
        }
        payload = wix(submissionId="s-3")
        payload["data"] = {k: v for k, v in {**payload["data"], **changed}.items() if v is not None}
        await post_wix(hub, payload)
        await hub.handle_events()
        [told] = [r.getMessage() for r in caplog.records if "has changed" in r.getMessage()]
        assert "new: email_beef (email), 4 others; gone: email_5139 (email). " in told
        assert "a@b.it" not in told and "planted" not in told and "\u202e" not in told
        assert "eva" not in told.lower()
        assert "`alpinehub source show DEMO wix` lists the fields" in told
        assert "`alpinehub inbox map DEMO wix --field TARGET=PLACE --try ID`" in told
        assert (await data(hub))["email"] == "eva@example.com"
        assert await hub.one("SELECT count(*) FROM form") == 2
        await post_wix(hub, {**payload, "data": {**payload["data"], "submissionId": "s-4"}})
        await hub.handle_events()
        assert await hub.one("SELECT count(*) FROM form") == 2
        assert len([r for r in caplog.records if "has changed" in r.getMessage()]) == 1


async def test_alert_about_a_changed_form_names_ten_fields_at_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_form(hub)
        changed = {name: value for name, value in FORM.items() if name != "adults"}
        await post_form(hub, {**changed, **{f"message_{number:02}": "1" for number in range(12)}})
        names = ", ".join(f"message_{number:02} (message)" for number in range(10))
        assert f"changed: new: {names}, 2 others; gone: adults (adults). " in caplog.text


async def test_alert_about_a_changed_form_names_a_field_that_the_mapping_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        mapping = FieldMapping(fields={"arrival": ("field:first_day",)}, defaults={"adults": "2"})
        await change_mapping(hub.ctx.store, "DEMO", "form", lambda _: mapping)
        await post_form(hub, {**FORM, "first_day": "1", "planted": "1"})
        await post_form(hub)
        assert "has changed: gone: first_day (arrival), 1 other. " in caplog.text


async def test_names_stay_in_the_commands_of_an_alert_that_is_mailed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        await hub.execute("UPDATE source SET name = ? WHERE name = 'wix'", "Gäste (neu)")
        await post_wix(hub, body=b"{")
        command = "`alpinehub inbox list --hotel DEMO --source Gäste\\ \\(neu\\)`"
        assert command in scrub(caplog.text)


async def test_mapping_that_cannot_be_read_is_shown_to_be_the_sources(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        await hub.ctx.run(lambda tx: raw(tx, "UPDATE source SET mapping = '{\"of_tomorrow\": 1}'"))
        with pytest.raises(Unusable, match="unknown field `of_tomorrow`") as told:
            await change_mapping(hub.ctx.store, "DEMO", "wix", lambda _: FieldMapping())
        assert told.value.hint is not None and "NULL" in told.value.hint


@on_each_store
async def test_field_of_a_mapping_that_is_gone_is_found_by_its_prefix(tmp_path: Path) -> None:
    def by_key(before: FieldMapping) -> FieldMapping:
        return decode(
            json.dumps(
                {
                    "fields": {
                        "arrival": ["field:date_picker_a7c8"],
                        "departure": ["field:date_picker_7e65"],
                    },
                    "defaults": {"adults": "2"},
                }
            )
        )

    async with open_lenient(tmp_path) as hub:
        await change_mapping(hub.ctx.store, "DEMO", "wix", by_key)
        one_gone = {"field__date_picker_7e65": None, "field__date_picker_0001": "2027-02-09"}
        await post_wix(hub, wix(submissionId="s-1", submissions=[], **one_gone))
        both_gone = {
            **one_gone,
            "field__date_picker_a7c8": None,
            "field__date_picker_0002": "2027-02-01",
        }
        await post_wix(hub, wix(submissionId="s-2", submissions=[], **both_gone))
        await hub.handle_events()
        rows = await hub.rows("SELECT state, error FROM inbox ORDER BY id")
        assert rows[0]["state"] == "mapped"
        assert rows[1] == {
            "state": "review",
            "error": "ambiguous:arrival; ambiguous:departure",
        }
        assert (await data(hub))["departure"] == "2027-02-09"
        assert "remapped" in await hub.one(
            "SELECT detail FROM reservation_history WHERE event = 'mapped'"
        )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("map", "DEMO", "wix", "--field", "arival=field:x"), 1, "did you mean arrival?"),
        (("map", "DEMO", "wix", "--field", "arrival=x"), 1, "'x' is not a place"),
        (("map", "DEMO", "wix", "--field", "arrival"), 2, "must be TARGET=PLACE"),
        (("map", "DEMO", "wix", "--value", "room_type=x"), 2, "must be TARGET:TEXT=MEANING"),
        (("map", "DEMO", "website"), 1, "has no mapping"),
        (("map", "DEMO", "wixx"), 1, "did you mean wix?"),
        (("map", "DEMO", "wix", "--file", "-"), 2, "--file:"),
        (("show", "99"), 1, "no submission 99"),
        (("reject", "99", "--reason", "x"), 1, "no submission 99"),
        (("reprocess", "99"), 1, "no submission 99"),
        (("reprocess",), 2, "give IDs of submissions"),
        (("reprocess", "1", "--all"), 2, "give IDs of submissions"),
        (("list", "--since", "x"), 2, "is not a time"),
        (("list", "--state", "x"), 2, "is not one of"),
    ],
)
async def test_inbox_says_what_to_do_when_it_fails(
    tmp_path: Path, run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    async with open_lenient(tmp_path):
        assert said in (await run("inbox", *words, code=code, given="{")).err


async def test_show_writes_out_what_a_terminal_would_obey(tmp_path: Path, run: Run) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub, wix(field__first_name_abae="\x1b[2J\u202eEva"))
        shown = await run("inbox", "show", "1", "--body")
        assert "\x1b" not in shown.out and "\\x1b[2J\\u202eEva" in shown.out
        assert (await run("inbox", "show", "1", "--json")).json
        assert WIX["data"]["formName"] not in shown.err
