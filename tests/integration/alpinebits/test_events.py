"""Activities of a hotel, as its software pushes them, on both stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.alpinebits.hotel_data import YOGA, push_events, report
from tests.integration.alpinebits.hub import Hub, error_of, open_hub

pytestmark = pytest.mark.usefixtures("each_store")

VERSIONS = ("2020-10", "2022-10", "2024-10")
GONE = "<GeneralEventInfo/>"


async def events(hub: Hub) -> list[str]:
    rows = await hub.execute("SELECT context, event_id FROM activity ORDER BY context, event_id")
    return [f"{row['context']}/{row['event_id']}" for row in rows]


@pytest.mark.parametrize("version", VERSIONS)
async def test_activity_is_kept_changed_and_deleted(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await push_events(hub, report("1", YOGA), report("2", YOGA), version=version)
        assert "<Success/></OTA" in answer.text
        changed = report("1", YOGA.replace("Yoga", "Pilates")), report("1", YOGA, context="Y")
        await push_events(hub, *changed, version=version)
        assert await events(hub) == ["X/1", "X/2", "Y/1"]
        await push_events(hub, report("2", GONE), report("9", GONE), version=version)
        assert await events(hub) == ["X/1", "Y/1"]


async def test_activity_of_which_nothing_was_told_for_long_is_forgotten(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await push_events(hub, report("1", YOGA))
        await hub.execute("UPDATE activity SET changed_at = changed_at - ?", 401 * 86400 * 10**6)
        await push_events(hub, report("2", YOGA))
        assert await events(hub) == ["X/2"]


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ((report("1", YOGA, "H2"),), "392"),
        ((report("1", YOGA, "H9"),), "392"),
        ((report("1", YOGA), report("1", GONE)), "320"),
        ((report("1", YOGA.replace("T11", "T09")),), "404"),
    ],
)
async def test_push_against_the_rules_is_an_error(
    tmp_path: Path, reports: tuple[str, ...], code: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_hotel("H2")
        assert error_of(await push_events(hub, *reports)) == ("13", code)
        assert await events(hub) == []


async def test_reports_of_several_hotels_in_one_message_are_an_error(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await push_events(hub, report("1", YOGA), report("2", YOGA, "H2"))
        assert error_of(answer) == ("13", "450")


async def test_what_the_operator_took_away_is_an_error(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.execute("UPDATE hotel SET settings = ?", json.dumps({"off": ["activities"]}))
        assert error_of(await push_events(hub, report("1", YOGA))) == ("11", "450")
        assert await events(hub) == []


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2027-05-01T10:00:00+02:00", "2027-05-01T09:00:00+00:00"),
        ("2027-05-01T10:00:00", "2027-05-01"),
        ("22:00:00", "02:00:00"),
        ("2027-05-01", "2027-05-01"),
    ],
)
async def test_end_that_may_be_after_the_start_is_taken(
    tmp_path: Path, start: str, end: str
) -> None:
    async with open_hub(tmp_path) as hub:
        told = YOGA.replace("2027-05-01T10:00:00", start).replace("2027-05-01T11:00:00", end)
        assert "<Success/></OTA" in (await push_events(hub, report("1", told))).text
