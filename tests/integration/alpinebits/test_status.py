"""Hotel software tells what became of guest requests."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import NAMESPACE, Hub, error_of, open_hub

pytestmark = pytest.mark.usefixtures("each_store")

H1 = 1
ACTION = "OTA_HotelResNotif:GuestRequests_StatusUpdate"
each_version = pytest.mark.parametrize("version", ["2022-10", "2024-10"])


def update(*told: tuple[str, str, str], modified: str = "") -> str:
    """(ID, ResStatus, CreateDateTime)"""
    inside = "".join(
        f'<HotelReservation CreateDateTime="{at}" ResStatus="{status}"'
        + (f' LastModifyDateTime="{modified}"' if modified else "")
        + f'><UniqueID Type="{15 if status == "Cancelled" else 14}" ID="{name}"/>'
        "</HotelReservation>"
        for name, status, at in told
    )
    return (
        f'<OTA_HotelResNotifRQ xmlns="{NAMESPACE}" Version="1.000"><HotelReservations>{inside}'
        "</HotelReservations></OTA_HotelResNotifRQ>"
    )


async def say(hub: Hub, document: str | bytes, version: str, user: str = "u1") -> httpx.Response:
    response = await hub.post(user, ACTION, document, version)
    assert response.status_code == 200, response.text
    assert material.problems(response.content, version) == []
    return response


async def statuses(hub: Hub) -> dict[str, str | None]:
    rows = await hub.execute("SELECT id, hotel_status FROM reservation ORDER BY id")
    return {row["id"]: row["hotel_status"] for row in rows}


def ids(response: httpx.Response, name: str, attribute: str) -> list[str]:
    root = etree.fromstring(response.content)
    return [str(one.get(attribute)) for one in root.iter(f"{{{NAMESPACE}}}{name}")]


@each_version
async def test_status_is_kept_beside_the_request_and_waits_for_nobody(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", H1)
        await hub.add(H1, "a1")
        await hub.add(H1, "a2")
        await hub.read("u1", "H1")
        await hub.acknowledge("u1", (14, "a1"), (14, "a2"))
        document = update(
            ("a1", "Reserved", "2026-01-01T10:00:00+01:00"),
            ("a2", "Cancelled", "2026-01-01T10:00:00Z"),
        )
        response = await say(hub, document, version)
        assert ids(response, "UniqueID", "ID") == ["a1", "a2"]
        assert ids(response, "UniqueID", "Type") == ["14", "15"]
        assert await statuses(hub) == {"a1": "Reserved", "a2": "Cancelled"}
        assert await hub.read("u1", "H1") == []
        assert await hub.one("SELECT max(version) FROM reservation") == 1
        rows = await hub.execute(
            "SELECT detail FROM reservation_history WHERE event = 'status' ORDER BY id"
        )
        assert [json.loads(row["detail"])["res_status"] for row in rows] == [
            "Reserved",
            "Cancelled",
        ]


@each_version
async def test_id_that_is_not_of_a_hotel_of_the_account_is_taken_with_a_remark(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        other = await hub.add_hotel("H2")
        await hub.add(H1, "a1")
        await hub.add(other, "b1")
        at = "2026-01-01T10:00:00Z"
        document = update(("a1", "Reserved", at), ("b1", "Reserved", at), ("nope", "Reserved", at))
        response = await say(hub, document, version)
        assert ids(response, "UniqueID", "ID") == ["a1", "b1", "nope"]
        assert ids(response, "Warning", "RecordID") == ["b1", "nope"]
        assert set(ids(response, "Warning", "Type")) == {"11"}
        assert set(ids(response, "Warning", "Code")) == {"450"}
        assert await statuses(hub) == {"a1": "Reserved", "b1": None}


@each_version
async def test_request_that_tells_of_nothing_is_an_error(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub:
        assert error_of(await say(hub, update(), version)) == ("13", "450")


async def test_older_word_changes_nothing_and_the_same_is_told_once(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        for status, at, expected in (
            ("Reserved", "2026-01-02T00:00:00Z", "Reserved"),
            ("Reserved", "2026-01-02T00:00:00Z", "Reserved"),
            ("Cancelled", "2026-01-01T00:00:00Z", "Reserved"),
            ("Cancelled", "2026-01-02T00:30:00+01:00", "Reserved"),
            ("Cancelled", "2026-01-02T00:30:00Z", "Cancelled"),
            ("Reserved", "2999-01-01T00:00:00Z", "Reserved"),  # a clock that is ahead
            ("Cancelled", "2998-01-01T00:00:00Z", "Cancelled"),
        ):
            await say(hub, update(("a1", status, at)), "2024-10")
            assert await statuses(hub) == {"a1": expected}
        events = "SELECT count(*) FROM reservation_history WHERE event = 'status'"
        assert await hub.one(events) == 4


async def test_newest_of_several_words_in_one_request_stands(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
        document = update(("a1", "Reserved", late), ("a1", "Cancelled", early))
        response = await say(hub, document, "2024-10")
        assert ids(response, "UniqueID", "Type") == ["14", "15"]
        assert await statuses(hub) == {"a1": "Reserved"}


async def test_moment_of_the_last_change_counts_where_it_is_told(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await say(hub, update(("a1", "Reserved", "2026-01-05T00:00:00Z")), "2024-10")
        old = ("a1", "Cancelled", "2026-01-01T00:00:00Z")
        await say(hub, update(old, modified="2026-01-06T00:00:00Z"), "2024-10")
        assert await statuses(hub) == {"a1": "Cancelled"}


async def test_hotel_that_does_not_offer_it_is_not_known(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.execute("UPDATE directory SET revision = revision + 1")
        await hub.execute("""UPDATE hotel SET settings = '{"off": ["status_update"]}'""")
        response = await say(hub, update(("a1", "Reserved", "2026-01-01T00:00:00Z")), "2024-10")
        assert ids(response, "Warning", "RecordID") == ["a1"]
        assert await statuses(hub) == {"a1": None}


@pytest.mark.parametrize("version", ["2017-10", "2018-10", "2020-10"])
async def test_status_update_is_unknown_before_2022(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub:
        response = await hub.post("u1", ACTION, update(), version)
        assert (response.status_code, response.text) == (400, "ERROR:unknown or missing action")


async def test_sample_is_answered(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        known, unknown = "0f8fad5bd9cb469fa16570867728950e", "7c9e6679742540de944be07fc1f90ae7"
        await hub.add(H1, known)
        sample = "messages/2024-10/GuestRequests-Push-OTA_HotelResNotifRQ-StatusUpdate.xml"
        response = await say(hub, material.own(sample), "2024-10")
        assert ids(response, "UniqueID", "ID") == [known, unknown]
        assert ids(response, "Warning", "RecordID") == [unknown]
        assert await statuses(hub) == {known: "Reserved"}
