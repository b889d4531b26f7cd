from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import (
    Hub,
    error_of,
    open_hub,
    open_worker,
    read_rq,
)
from tests.integration.engine.stores import url_of
from tests.raw import raw, until_blocked

from alpinehub.alpinebits import guest_requests
from alpinehub.alpinebits.actions import acknowledge
from alpinehub.alpinebits.guest import REVISION, StoredVersion, render, validate
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol
from alpinehub.models import Hotel

pytestmark = pytest.mark.usefixtures("each_store")

H1, U1 = 1, 1
REFUSED = (
    "hotel software of account u1 rejected 1 guest request of hotel H1: a1; "
    "see: alpinehub requests list --hotel H1 --state rejected"
)
BOOKED = {"total": 1, "currency": "EUR", "room_type": "DZ"}


@pytest.mark.parametrize("waiting", [[], ["a1", "a2"]], ids=["nothing waits", "repeated"])
async def test_poll_that_finds_nothing_new_writes_nothing(
    tmp_path: Path, waiting: list[str]
) -> None:
    async with open_hub(tmp_path) as hub:
        for name in waiting:
            await hub.add(H1, name)
        await hub.read("u1", "H1")
        before = hub.ctx.store.stats()
        assert await hub.read("u1", "H1") == waiting
        assert hub.ctx.store.stats() == before


async def test_accounts_cannot_see_or_acknowledge_what_is_not_theirs(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        other = await hub.add_hotel("H2")
        await hub.add_account("u2", other)
        await hub.add(H1, "a1")
        for user, hotel in (("u2", "H1"), ("u2", "H9"), ("u1", "H2")):
            response = await hub.post(user, "OTA_Read:GuestRequests", read_rq(hotel))
            assert error_of(response) == ("13", "392")
        assert await hub.read("u1", "H1") == ["a1"]
        assert await hub.acknowledge("u2", (14, "a1")) == ["a1"]
        assert await hub.read("u1", "H1") == ["a1"]


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_unknown_id_is_success_with_a_warning_where_the_version_has_them(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        unknown = await hub.acknowledge(
            "u1", (14, "no-such"), (15, "no-such"), rejected={"nor-this": "why"}, version=version
        )
        assert unknown == ([] if version < "2022-10" else ["no-such", "nor-this"])


async def test_many_are_acknowledged_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the units of one report others may write."""
    monkeypatch.setattr(acknowledge, "STEP", 2)
    async with open_hub(tmp_path) as hub:
        for number in range(8):
            await hub.add(H1, f"a{number}")
        await hub.read("u1", "H1")
        ids = [(14, f"a{number}") for number in range(5)]
        refused = {"a5": "no room", "a6": "no room", "nowhere": "no room"}
        taken = "SELECT 1 FROM delivery WHERE acked_at IS NOT NULL AND rejected_text IS NULL"
        store, run = hub.ctx.store, hub.ctx.store.run
        after_each: list[int] = []

        async def followed(unit: Any) -> Any:
            result = await run(unit)
            after_each.append(len(await run(lambda tx: raw(tx, taken))))
            return result

        store.run = followed  # type: ignore[method-assign,assignment]
        unknown = await hub.acknowledge("u1", *ids, (14, "nobody"), rejected=refused)
        store.run = run  # type: ignore[method-assign]
        assert sorted(unknown) == ["nobody", "nowhere"]
        assert list(dict.fromkeys(after_each)) == [2, 4, 5]
        assert await hub.read("u1", "H1") == ["a7"]


async def test_refusal_ends_delivery_keeps_the_hotels_words_and_is_an_alert(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", H1)
        await hub.add(H1, "a1")
        await hub.add(H1, "a2")
        assert await hub.acknowledge("u1", rejected={"a1": "too early"}) == ["a1"]
        await hub.read("u1", "H1")
        await hub.read("u2", "H1")
        assert await hub.acknowledge("u1", (14, "a2"), rejected={"a1": "Room <X>"}) == []
        assert await hub.acknowledge("u1", rejected={"a1": "once more"}) == []
        row = (await hub.deliveries(U1))["a1", 1]
        assert (row["rejected_text"], row["waiting"]) == ("Room <X>", 0)
        assert row["acked_at"] is not None
        assert await hub.read("u1", "H1") == []
        assert await hub.read("u2", "H1") == ["a1", "a2"]
    alerts = [r.getMessage() for r in caplog.records if hasattr(r, "ALERT")]
    assert alerts == [REFUSED]


async def test_refusal_is_an_alert_for_each_hotel_and_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        other = await hub.add_hotel("20261122")
        await hub.add_account("u2", H1, other)
        await hub.add(H1, "a1")
        await hub.add(other, "b1")
        for code in ("H1", "20261122"):
            await hub.read("u2", code)
        await hub.acknowledge("u2", rejected={"a1": "too early", "b1": "too late"})
    told = [r for r in caplog.records if hasattr(r, "ALERT")]
    assert [(r.__dict__["ALERT"], r.__dict__["ALERT_IDS"]) for r in told] == [
        ("rejected-by-hotel:H1", "H1"),
        ("rejected-by-hotel:20261122", "20261122"),
    ]


async def test_refusal_after_an_acknowledgement_is_an_event_and_an_alert(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.read("u1", "H1")
        await hub.acknowledge("u1", (14, "a1"))
        acked_at = (await hub.deliveries(U1))["a1", 1]["acked_at"]
        for _ in range(2):
            assert await hub.acknowledge("u1", rejected={"a1": "no room"}) == []
        row = (await hub.deliveries(U1))["a1", 1]
        assert (row["rejected_text"], row["acked_at"]) == ("no room", acked_at)
        rows = await hub.execute("SELECT event FROM reservation_event ORDER BY id")
        assert [row["event"] for row in rows] == [
            *("delivered", "acknowledged", "rejected"),
        ]
    alerts = [r.getMessage() for r in caplog.records if hasattr(r, "ALERT")]
    assert alerts == [REFUSED]


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
@pytest.mark.parametrize("how", ["taken", "rejected"])
async def test_acknowledgement_that_meets_a_resending_leaves_it_waiting(
    tmp_path: Path, how: str
) -> None:
    """As if it had not been sent: what is said of it was said of what went before."""
    resend = "UPDATE delivery SET waiting = 1, sent_at = NULL WHERE reservation_id = 'a1'"
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.read("u1", "H1")
        with psycopg.connect(url_of(tmp_path)) as other:
            other.execute(resend)
            said = ((14, "a1"),) if how == "taken" else ()
            refused = {"a1": "no room"} if how == "rejected" else {}
            task = asyncio.create_task(hub.acknowledge("u1", *said, rejected=refused))
            await until_blocked(hub.ctx.store)
        assert await task == ["a1"]
        row = (await hub.deliveries(U1))["a1", 1]
        assert (row["waiting"], row["acked_at"], row["rejected_text"]) == (1, None, None)


async def test_selection_gives_everything_created_since_acknowledged_or_not(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        for name in ("a1", "a2", "a3"):  # created 13:26:28.938Z, :29.938, :30.938
            await hub.add(H1, name)
        await hub.read("u1", "H1")
        await hub.acknowledge("u1", (14, "a2"))
        since = {
            "2024-01-02T13:26:29Z": ["a2", "a3"],
            "2024-01-02T13:26:29.938000Z": ["a2", "a3"],
            "2024-01-02T13:26:29.938001Z": ["a3"],
            "2024-01-02T14:26:29+01:00": ["a2", "a3"],
            "2024-01-02T14:26:29": ["a2", "a3"],  # the hotel's local time
            "2000-02-29T24:00:00": ["a1", "a2", "a3"],
            "-0044-03-15T00:00:00Z": ["a1", "a2", "a3"],
            "99999-01-01T00:00:00Z": [],
        }
        for start, expected in since.items():
            assert await hub.read("u1", "H1", "2024-10", start) == expected, start
        assert await hub.read("u1", "H1") == ["a1", "a3"]


async def test_selection_is_answered_when_the_time_zone_of_the_hotel_is_not_known(
    tmp_path: Path,
) -> None:
    """On a host without tzdata-legacy: that it is not known, the operator is told elsewhere."""
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", await hub.add_hotel("H2", time_zone="Mars/Olympus"))
        await hub.add(H1 + 1, "a1")
        for start, expected in (("2024-01-02T13:26:28", ["a1"]), ("2024-01-02T13:26:29", [])):
            assert await hub.read("u2", "H2", "2024-10", start) == expected


async def test_record_that_cannot_be_rendered_is_undeliverable_and_blocks_nothing(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2", adults=0)
        await hub.add(H1, "a3", room_type="much too long")
        await hub.add(H1, "a4")
        await hub.add(H1, "a5")
        await hub.execute("UPDATE reservation_version SET data = '{' WHERE reservation_id = 'a5'")
        for _ in range(2):
            assert await hub.read("u1", "H1") == ["a1", "a4"]
        rows = await hub.deliveries(U1)
        assert rows["a2", 1]["undeliverable_text"] == "GuestCount/@Count is not valid"
        codes = {name: rows[name, 1]["undeliverable_code"] for name in ("a1", "a2", "a3", "a5")}
        assert codes == {"a1": None, "a2": "schema", "a3": "schema", "a5": "unreadable"}
        assert rows["a2", 1]["undeliverable_at"] > hub.made_at
        assert rows["a3", 1]["undeliverable_text"] == "RoomType/@RoomTypeCode is not valid"
        assert "cannot be read" in rows["a5", 1]["undeliverable_text"]
        assert {rows[name, 1]["waiting"] for name in ("a2", "a3", "a5")} == {1}
        assert rows["a2", 1]["sent_at"] is None
        assert await hub.acknowledge("u1", (14, "a2")) == ["a2"]
        await hub.add(H1, "a2", adults=1)
        assert await hub.read("u1", "H1") == ["a1", "a2", "a4"]


async def test_record_on_which_the_renderer_fails_blocks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2")
        # The year 33658.
        await hub.execute("UPDATE reservation SET created_at = 1000000000000000000 WHERE id = 'a1'")
        assert await hub.read("u1", "H1") == ["a2"]
        row = (await hub.deliveries(U1))["a1", 1]
        assert row["undeliverable_code"] == "renderer" and "renderer" in row["undeliverable_text"]
    details, told = (r for r in caplog.records if r.levelno >= logging.WARNING)
    assert details.exc_info and details.levelno == logging.WARNING  # one alert, not two
    assert told.__dict__["ALERT"] == "undeliverable:H1:renderer"


async def test_record_that_is_rendered_wrongly_is_undeliverable_and_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake of ours is not sent, told once, and sent when it is mended."""

    def wrong(record: StoredVersion, hotel: Hotel, protocol: Protocol) -> bytes:
        made = render(record, hotel, protocol)
        if record.id == "a2":
            return made.replace(b'ResStatus="Requested"', b'ResStatus="Wanted"')
        return made.replace(b"<RoomStays>", b"<RoomStays") if record.id == "a4" else made

    async with open_hub(tmp_path) as hub:
        for name in ("a1", "a2", "a3", "a4"):
            await hub.add(H1, name)
        with monkeypatch.context() as patch:
            patch.setattr(guest_requests, "render", wrong)
            for _ in range(2):
                assert await hub.read("u1", "H1") == ["a1", "a3"]
        rows = await hub.deliveries(U1)
        assert [rows[name, 1]["undeliverable_code"] for name in ("a2", "a4")] == [
            "schema",
            "schema",
        ]
        assert rows["a2", 1]["undeliverable_text"] == "HotelReservation/@ResStatus is not valid"
        assert rows["a2", 1]["waiting"] == 1 and rows["a2", 1]["rendered"] is None
        [told] = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert (
            told.__dict__["ALERT"] == "undeliverable:H1:schema" and "(a2, a4)" in told.getMessage()
        )
        assert await hub.read("u1", "H1") == ["a1", "a2", "a3", "a4"]
        assert (await hub.deliveries(U1))["a2", 1]["undeliverable_code"] is None


async def test_version_is_checked_once_for_each_form_that_it_is_sent_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def count(made: bytes, protocol: Protocol) -> None:
        checked.append(protocol.name)
        validate(made, protocol)

    monkeypatch.setattr(guest_requests, "validate", count)
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2")
        for version in ("2024-10", "2024-10", "2020-10", "2020-10"):
            await hub.read("u1", "H1", version)
        await hub.add(H1, "a2", adults=7)
        await hub.read("u1", "H1", "2020-10")
        assert checked == ["2024-10"] * 2 + ["2020-10"] * 3
        row = (await hub.deliveries(U1))["a1", 1]
        assert row["rendered"] == f"2020-10/{REVISION}"


async def test_client_that_fetched_a_version_first_is_recorded(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        asa = "ASA\t 7 " + "x" * 100
        for number, said in enumerate((asa, "", "later")):
            await hub.add(H1, f"a{number}")
            hub.client.headers["X-AlpineBits-ClientID"] = said
            await hub.read("u1", "H1")
        rows = await hub.deliveries(U1)
        assert [rows[f"a{number}", 1]["client_id"] for number in range(3)] == [
            asa[:64],
            None,
            "later",
        ]


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_hotel_is_found_by_code_and_before_2024_by_name(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        by_name = read_rq("", name="Hotel H1")
        response = await hub.post("u1", "OTA_Read:GuestRequests", by_name, version)
        if version == "2024-10":
            assert response.status_code == 400
            return
        assert b'ID="a1"' in response.content
        for wrong in ('HotelName="Hotel H2"', "", 'HotelCode="H2" HotelName="Hotel H1"'):
            document = by_name.replace('HotelName="Hotel H1"', wrong)
            response = await hub.post("u1", "OTA_Read:GuestRequests", document, version)
            assert error_of(response) == ("13", "392")
            assert material.problems(response.content, version) == []


async def test_name_of_two_hotels_is_an_invalid_hotel(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", H1, await hub.add_hotel("H2", name="Hotel H1"))
        by_name = read_rq("", name="Hotel H1")
        response = await hub.post("u2", "OTA_Read:GuestRequests", by_name, "2022-10")
        assert error_of(response) == ("13", "392")


async def test_concurrent_polls_and_acknowledgements_lose_nothing(tmp_path: Path) -> None:
    """Hotel software polls and acknowledges from several threads while versions are made."""
    async with open_hub(tmp_path) as hub:
        names = [f"a{number:02d}" for number in range(30)]
        for name in names:
            await hub.add(H1, name)

        async def poll_and_acknowledge() -> None:
            got = await hub.read("u1", "H1")
            await hub.acknowledge("u1", *((14, name) for name in got))

        async def change(name: str) -> None:
            await hub.add(H1, name, adults=4)

        async with asyncio.TaskGroup() as group:
            for name in names[:10]:
                group.create_task(poll_and_acknowledge())
                group.create_task(change(name))
        await _check_and_drain(hub, names)


async def test_acknowledgements_race_over_two_workers_and_one_wins(tmp_path: Path) -> None:
    """The hotel's software repeats itself on another connection: one acknowledgement stands."""
    async with open_hub(tmp_path) as hub, open_worker(tmp_path) as other:
        names = [f"a{number:02d}" for number in range(20)]
        for name in names:
            await hub.add(H1, name)
        ids = [(14, name) for name in names]
        assert await hub.read("u1", "H1") == await other.read("u1", "H1") == names
        answers = await asyncio.gather(
            *(worker.acknowledge("u1", *ids) for worker in (hub, other, hub, other)),
            other.acknowledge("u1", rejected={names[0]: "too late, or first"}),
        )
        assert answers == [[], [], [], [], []]
        rows = await hub.deliveries(U1)
        assert len({row["acked_at"] for row in rows.values()} - {None}) <= 2
        assert await hub.read("u1", "H1") == await other.read("u1", "H1") == []


async def _check_and_drain(hub: Hub, names: list[str]) -> None:
    """Whatever was not acknowledged in its newest version is still waiting, and only that."""
    rows = await hub.deliveries(U1)
    newest = {name: max(v for n, v in rows if n == name) for name in names}
    open_ones = [name for name in names if rows[name, newest[name]]["acked_at"] is None]
    for (name, version), row in rows.items():
        assert row["acked_at"] is None or row["sent_at"] is not None
        assert row["waiting"] == (version == newest[name] and row["acked_at"] is None)
    assert sorted(await hub.read("u1", "H1")) == open_ones
    await hub.acknowledge("u1", *((14, name) for name in open_ones))
    assert await hub.read("u1", "H1") == []


async def test_each_first_reading_acknowledgement_and_refusal_is_one_entry(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2")
        await hub.read("u1", "H1")
        await hub.read("u1", "H1")
        for _ in range(2):
            await hub.acknowledge("u1", (14, "a1"), rejected={"a2": "no room"})
        rows = await hub.execute(
            "SELECT event, reservation_id, account_id, detail FROM reservation_event"
            " WHERE event <> 'rendered' ORDER BY id"
        )
        assert [(row["event"], row["reservation_id"]) for row in rows] == [
            ("delivered", "a1"),
            ("delivered", "a2"),
            ("acknowledged", "a1"),
            ("rejected", "a2"),
        ]
        assert rows[-1]["account_id"] == U1
        assert json.loads(rows[-1]["detail"]) == {"protocol": "2024-10"}  # not the hotel's words
