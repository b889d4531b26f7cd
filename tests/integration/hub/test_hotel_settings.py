"""What an operator chooses for one hotel, by command, and what hotel software finds of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.alpinebits.hotel_data import (
    BASIC,
    entry,
    plan,
    push_content,
    push_plans,
    push_rooms,
)
from tests.integration.alpinebits.hub import open_hub
from tests.integration.alpinebits_client.peers import Done
from tests.integration.hub.command import Run
from tests.integration.hub.material import forget_directory
from tests.integration.hub.stores import on_sqlite
from tests.unit.alpinebits.free_rooms import CLOSED, DZ, count

from alpinehub.customers.duplicates import merge_duplicates
from alpinehub.directory import directory_of
from alpinehub.models import Settings

pytestmark = pytest.mark.usefixtures("each_store")


async def test_features_are_taken_away_and_given_back(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.execute("UPDATE hotel SET settings = ?", '{"off": ["of_tomorrow"], "newer": [1]}')
        await run(
            *("hotel", "set", "H1", "--off", "rooms", "--off", "deltas", "--stale-after", "6"),
            *("--alert-email", "a@b.example, c@d.example", "--name", " Post "),
        )
        text = await hub.one("SELECT settings FROM hotel")
        assert json.loads(text) == {
            "off": ["deltas", "of_tomorrow", "rooms"],
            "newer": [1],
            "stale_after_h": 6,
            "alert_email": "a@b.example, c@d.example",
        }
        assert "does not support" in (await push_rooms(hub, entry(DZ))).text
        words = ("--on", "deltas", "--stale-after", "default", "--json")
        shown = (await run("hotel", "set", "H1", *words)).json
        assert shown["features_off"] == ["of_tomorrow", "rooms"] and "deltas" in shown["features"]
        assert shown["settings"] == {"newer": [1], "alert_email": "a@b.example, c@d.example"}
        assert shown["name"] == "Post" and shown["region"] == "IT"
        await run("hotel", "set", "H1", "--on", "rooms", "--alert-email", "")
        assert json.loads(await hub.one("SELECT settings FROM hotel"))["off"] == ["of_tomorrow"]


async def test_hotel_is_given_a_retention_of_its_own(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:

        async def choose(*words: str, code: int = 0) -> Done:
            return await run("hotel", "set", "H1", *words, code=code)

        await choose("--retention", "inbox_days=7", "--retention", "customer_days=0")
        told = json.loads(await hub.one("SELECT settings FROM hotel"))
        assert told == {"retention": {"inbox_days": 7, "customer_days": 0}}
        await choose("--retention", "inbox_days=default", "--off", "rooms")
        told = json.loads(await hub.one("SELECT settings FROM hotel"))
        assert told == {"off": ["rooms"], "retention": {"customer_days": 0}}
        await choose("--retention", "customer_days=default", "--on", "rooms")
        assert await hub.one("SELECT settings FROM hotel") is None
        for wrong in ("inbox_day=7", "inbox_days=x", "inbox_days"):
            assert "inbox_days" in (await choose("--retention", wrong, code=2)).err


async def test_numbers_are_read_again_when_the_region_of_a_hotel_changes(
    tmp_path: Path, run: Run
) -> None:
    async with open_hub(tmp_path) as hub:
        for phone, email in (("06641234567", None), ("+436641234567", "eva@example.com")):
            await hub.execute(
                "INSERT INTO customer (hotel_id, phone, email, created_at) VALUES (?, ?, ?, 1)",
                *(await hub.one("SELECT id FROM hotel"), phone, email),
            )
        await merge_duplicates(hub.ctx.store)
        assert await hub.one("SELECT sum(phone_due) FROM customer") == 0
        await run("hotel", "set", "H1", "--region", "AT")
        await merge_duplicates(hub.ctx.store)
        assert await hub.one("SELECT email FROM customer") == "eva@example.com"


async def test_what_was_told_is_shown(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        await push_rooms(
            hub, entry(CLOSED, first=50, last=55), entry(DZ, count(2, 3)), complete=True
        )
        await push_content(hub, "Inventory", BASIC)
        await push_plans(hub, plan("A"))

        async def told(*words: str) -> Done:
            return await run("hotel", *words)

        rows = (await told("data", "H1", "freerooms", "--json")).json["items"]
        assert [(row["category"], row["bookable"]) for row in rows] == [("closed", 0), ("DZ", 3)]
        assert (await told("data", "H1", "freerooms")).out.splitlines()[0].startswith("CATEGORY")
        assert (await told("data", "H1", "inventory")).out.startswith("<HotelDescriptiveContent ")
        assert (await told("data", "H1", "info")).out == ""
        assert "Titel A" in (await told("data", "H1", "rates")).out
        assert (await told("data", "H1", "activities", "--json")).json["items"] == []
        messages = (await told("messages", "H1", "--limit", "2", "--json")).json["items"]
        assert [row["action"].partition(":")[2] for row in messages] == ["RatePlans", "Inventory"]
        stored = (await told("show", "H1", "--json")).json
        assert stored["data"][0]["kind"] == "freerooms"
        assert stored["created_at"] == "2024-01-02T13:26:27.938+00:00"
        shown = await told("show", "H1")
        for word in ("freerooms", "inventory", "rates A", "Hotel H1", "closing_seasons"):
            assert word in shown.out


@on_sqlite
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("set", "H9", "--off", "rooms"), 1, "did you mean H1?"),
        (("set", "H1"), 2, "no change is given"),
        (("set", "H1", "--off", "rooms", "--on", "rooms"), 2, "both in --on and --off"),
        (("set", "H1", "--off", "roms"), 2, "Invalid value"),
        (("set", "H1", "--stale-after", "soon"), 2, "hours or default"),
        (("set", "H1", "--time-zone", "Europe/Rom"), 1, "Europe/Rome"),
        (("set", "H1", "--alert-email", "a@b.example,nobody"), 1, "mail addresses"),
        (("set", "H1", "--report-language", "fr"), 2, "'de', 'it', 'en'"),
        (("set", "H1", "--region", "XX"), 1, "region 'XX' must be a country"),
        (("show", "Nowhere"), 1, "see `alpinehub hotel list`"),
        (("show", "H9"), 1, "did you mean H1?"),
        (("data", "H9", "rates"), 1, "did you mean H1?"),
        (("data", "H1", "everything"), 2, "Invalid value"),
        (("set", "H1", "--report-email", "info@a.example; b@a.example"), 1, "report-email must"),
        (("set", "H1", "--report-email", "hütte@a.example"), 1, "report-email must"),
        (("add", "H9", "--name", "Post", "--report-email", "info"), 1, "report-email must"),
        (("set", "H1", "--alert-email", "hütte@a.example"), 1, "alert-email must"),
    ],
)
async def test_command_says_what_to_do_when_it_fails(
    tmp_path: Path, run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    async with open_hub(tmp_path) as hub:
        assert said in (await run("hotel", *words, code=code)).err
        assert await hub.one("SELECT settings FROM hotel") is None


async def test_settings_that_cannot_be_read_are_not_overwritten(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        for text in ("[1]", "{"):
            await hub.execute("UPDATE hotel SET settings = ?", text)
            refused = await run("hotel", "set", "H1", "--off", "rooms", code=1)
            assert "cannot be read" in refused.err
            assert await hub.one("SELECT settings FROM hotel") == text


async def test_settings_are_the_defaults_as_long_as_they_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:

        async def settings(text: str | None) -> Settings:
            await hub.execute("UPDATE hotel SET settings = ?", text)
            await hub.execute("UPDATE directory SET revision = revision + 1")
            forget_directory(hub.ctx)
            snapshot = await directory_of(hub.ctx).snapshot()
            return snapshot.sources_by_hotel["H1"][0].hotel.settings

        assert await settings(None) == Settings()
        newer = json.dumps({"off": ["deltas", "of a newer program"], "new": {"x": 1}})
        assert (await settings(newer)).off == {"deltas", "of a newer program"}
        assert not caplog.records
        for broken in ("{", "[]", '{"off": 1}'):
            assert await settings(broken) == Settings()
            assert "the settings of hotel H1 are not used" in caplog.text
            caplog.clear()
