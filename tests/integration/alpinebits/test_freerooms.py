"""Free rooms from the push to what is kept, on both stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.contract.pool.running import running
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hotel_data import entry, push_rooms, today
from tests.integration.alpinebits.hub import (
    Hub,
    error_of,
    notif_report_rq,
    open_hub,
    open_worker,
)
from tests.unit.alpinebits.free_rooms import CLOSED, DZ, LIMIT, ROOM, count, status

from alpinehub.alpinebits.call import POOL_BYTES
from alpinehub.alpinebits.document import LARGE_BYTES
from alpinehub.alpinebits.inbound import read_document
from alpinehub.alpinebits.rules import room_counts
from alpinehub.alpinebits.rules.room_counts import Counts, Key
from alpinehub.alpinebits_client import message

pytestmark = pytest.mark.usefixtures("each_store", "one_day")

NO_SET = "no full data set has been received yet"


async def known(hub: Hub) -> dict[Key, dict[int, Counts]]:
    """What is kept of H1: counts by night from today; a closing season is of no category."""
    document = await hub.ctx.store.read(lambda tx: read_document(tx, 1, "freerooms"))
    if not document.body():
        return {}
    rooms = room_counts.decode(document.body())
    told = {**rooms.entries, **({Key(""): rooms.closings} if rooms.closings else {})}
    return {
        key: {
            night - today().toordinal(): one.counts
            for one in some
            for night in range(one.first, one.last + 1)
        }
        for key, some in told.items()
    }


async def test_delta_changes_what_a_complete_set_told_and_another_set_replaces_it(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        first = entry(CLOSED, first=50, last=59), entry(DZ, count(2, 3)), entry('InvTypeCode="EZ"')
        assert "<Success/></OTA" in (await push_rooms(hub, *first, complete=True)).text
        answer = await push_rooms(hub, entry(DZ, count(2, 1) + count(6, 2), first=3, last=4))
        assert "<Success/></OTA" in answer.text
        rooms = await known(hub)
        assert rooms[Key("DZ")] == {
            **dict.fromkeys(range(10), Counts(3)),
            **dict.fromkeys((3, 4), Counts(1, 2)),
        }
        assert rooms[Key("EZ")] == dict.fromkeys(range(10), Counts())
        assert set(rooms[Key("")]) == set(range(50, 60))
        await push_rooms(hub, entry(ROOM, count(2, 1), last=0), complete=True)
        assert await known(hub) == {Key("DZ", "101"): {0: Counts(1)}}
        await push_rooms(hub, "<Inventory/>", complete=True)
        assert await known(hub) == {}
        [row] = await hub.execute("SELECT * FROM hotel_document")
        assert (row["revision"], row["protocol"], row["account_id"]) == (4, "2024-10", 1)


@pytest.mark.parametrize("version", ["2017-10", "2018-10", "2020-10", "2022-10", "2024-10"])
async def test_delta_without_a_complete_set_is_taken_with_advice(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        older = version < "2020"
        one = status(LIMIT.format(4)) if older else entry(DZ, count(2, 4))
        answer = await push_rooms(hub, one, version=version)
        told = '<Warning Type="11" Status="ALPINEBITS_SEND_FREEROOMS">'
        if version == "2017-10":
            told = '<Warning Type="11">'
        assert f"<Success/><Warnings>{told}{NO_SET}</Warning></Warnings>" in answer.text
        assert {Counts(4)} == set((await known(hub))[Key("DZ")].values())
        await push_rooms(hub, one, complete=True, version=version)
        assert "Warning" not in (await push_rooms(hub, one, version=version)).text
        two_days_ago = "UPDATE hotel_document SET complete_at = complete_at - ?"
        await hub.execute(two_days_ago, 49 * 3600 * 10**6)
        answer = await push_rooms(hub, one, version=version)
        assert "last full data set received more than 48 hours ago" in answer.text


async def test_dates_in_a_far_future_are_left_out_with_a_warning(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        far = entry(DZ, count(2, 9), first=20, last=3000), entry(DZ, first=4000, last=4009)
        answer = await push_rooms(hub, entry(DZ, count(2, 4)), *far, complete=True)
        text = "dates are too far in the future for this server to process"
        assert f'<Success/><Warnings><Warning Type="3">{text}</Warning>' in answer.text
        rooms = (await known(hub))[Key("DZ")]
        near = dict.fromkeys(range(10), Counts(4)) | dict.fromkeys(range(20, 1831), Counts(9))
        assert rooms == near
        # A closing season that ends some day is one from the day on which it begins.
        await push_rooms(
            hub, entry(CLOSED, first=30, last=3000), entry(DZ, count(2, 4)), complete=True
        )
        assert set((await known(hub))[Key("")]) == set(range(30, 1831))


async def test_nights_long_over_are_forgotten_with_the_next_delta(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await push_rooms(hub, entry(DZ, first=-90, last=-60), entry(DZ, first=-50), complete=True)
        await push_rooms(hub, entry(DZ, count(2, 1)))
        nights = (await known(hub))[Key("DZ")]
        assert min(nights) == -50 and nights[-1] == Counts() and nights[0] == Counts(1)


@pytest.mark.parametrize(
    ("off", "told", "complete", "word"),
    [
        ("rooms", entry(ROOM), True, "distinct rooms"),
        ("categories", entry(DZ), True, "room categories"),
        ("deltas", entry(DZ), False, "deltas"),
        ("complete_set", entry(DZ), True, "complete sets"),
        ("closing_seasons", entry(CLOSED), True, "closing seasons"),
        ("out_of_order", entry(DZ, count(6, 1)), True, "rooms out of order"),
        ("out_of_market", entry(DZ, count(9, 1)), True, "not bookable"),
    ],
)
async def test_what_the_operator_took_away_is_an_error(
    tmp_path: Path, off: str, told: str, complete: bool, word: str
) -> None:
    async with open_hub(tmp_path) as hub:
        settings = json.dumps({"off": [off], "of_a_newer_program": 1})
        await hub.execute("UPDATE hotel SET settings = ?", settings)
        answer = await push_rooms(hub, told, complete=complete)
        assert error_of(answer) == ("11", "450") and word in answer.text
        assert 'Status="ALPINEBITS_SEND_HANDSHAKE"' in answer.text
        assert await hub.one("SELECT count(*) FROM hotel_document") == 0
        # Before 2024-10 a new handshake could not be asked for.
        answer = await push_rooms(hub, told, complete=complete, version="2022-10")
        assert error_of(answer) == ("13", "450") and "Status" not in answer.text
        # What is left is taken.
        rest = entry(DZ) if off == "rooms" else entry(ROOM, count(2, 1))
        assert "<Success/>" in (await push_rooms(hub, rest, complete=off != "complete_set")).text


async def test_hotel_of_another_is_as_one_that_does_not_exist(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_hotel("H2")
        answers = [
            await push_rooms(hub, entry(DZ), complete=True, hotel=code) for code in ("H2", "H3")
        ]
        assert answers[0].content == answers[1].content
        assert error_of(answers[0]) == ("13", "392")
        assert await hub.one("SELECT count(*) FROM inbound_message") == 0


async def test_each_push_is_on_record_without_what_it_says(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await push_rooms(hub, entry(DZ), complete=True)
        await push_rooms(hub, entry(DZ), entry(ROOM), complete=True)
        rows = await hub.execute("SELECT * FROM inbound_message ORDER BY id")
        assert [(row["outcome"], row["problem"]) for row in rows] == [
            ("success", None),
            ("error", "room categories and distinct rooms are mixed"),
        ]
        for row in rows:
            assert row["action"] == "OTA_HotelInvCountNotif:FreeRooms"
            assert row["protocol"] == "2024-10" and row["size_bytes"] > 200


async def test_threshold_is_told_when_it_was_agreed_upon(tmp_path: Path) -> None:
    name = "rules/2018-10/freerooms/HotelAvailNotifRQ_err_bookingthreshold-{}.xml"
    missing, given = (material.own(name.format(what)) for what in ("null", "not-null"))
    supports = [f"OTA_HotelAvailNotif_accept_{what}" for what in ("rooms", "BookingThreshold")]
    offer = {"action": "action_OTA_HotelAvailNotif", "supports": supports}
    ping = json.dumps({"versions": [{"version": "2018-10", "actions": [offer]}]})
    action = "OTA_HotelAvailNotif:FreeRooms"
    async with open_hub(tmp_path) as hub:
        await hub.add_account("pms", await hub.add_hotel("9996"))
        assert "<Success/>" in (await hub.post("pms", action, missing, "2018-10")).text
        assert error_of(await hub.post("pms", action, given, "2018-10")) == ("13", "450")
        answer = await hub.post("pms", "OTA_Ping:Handshaking", message.ping(ping), "2018-10")
        assert "accept_BookingThreshold" in answer.text
        assert error_of(await hub.post("pms", action, missing, "2018-10")) == ("13", "321")
        assert "<Success/>" in (await hub.post("pms", action, given, "2018-10")).text
        # In 2017 there was no handshake to agree in.
        assert "<Success/>" in (await hub.post("pms", action, missing, "2017-10")).text
        assert "<Success/>" in (await hub.post("pms", action, given, "2017-10")).text


async def test_deltas_of_several_workers_at_once_are_all_kept(tmp_path: Path) -> None:
    """On one store; each reads, computes and writes while the others do."""
    async with open_hub(tmp_path) as one, open_worker(tmp_path) as two:
        await push_rooms(one, "<Inventory/>", complete=True)
        told = [(hub, night) for night in range(3) for hub in (one, two)]
        answers = await asyncio.gather(
            *(
                push_rooms(hub, entry(f'InvTypeCode="C{at}"', count(2, 1), night, night))
                for at, (hub, night) in enumerate(told)
            )
        )
        taken = [at for at, answer in enumerate(answers) if answer.status_code == 200]
        assert len(taken) >= len(told) - 1  # the last of many may have to come again
        assert {key.category for key in await known(one)} == {f"C{at}" for at in taken}


async def test_large_complete_set_is_read_in_a_child(tmp_path: Path) -> None:
    nights = [
        entry(f'InvTypeCode="R{room}" InvCode="{room}"', count(2, night % 2), night, night)
        for room in range(20)
        for night in range(100)
    ]
    assert sum(map(len, nights)) > POOL_BYTES
    (tmp_path / "pool").mkdir()
    with running(tmp_path / "pool", app="alpinehub.app:app", workers=1) as path:
        async with open_hub(tmp_path, path) as hub:
            assert "<Success/></OTA" in (await push_rooms(hub, *nights, complete=True)).text
            rooms = await known(hub)
            assert len(rooms) == 20
            assert rooms[Key("R7", "7")] == {night: Counts(night % 2) for night in range(100)}
            answer = await push_rooms(hub, *nights, entry(DZ), complete=True)
            assert error_of(answer) == ("13", "450")


async def test_push_of_any_size_up_to_its_own_limit_is_taken(tmp_path: Path) -> None:
    """Beyond what other requests may have, in bytes and in tags, without a pool."""
    rooms = [
        entry(f'InvTypeCode="R{room}" InvCode="{room}"', count(2, 1), night, night)
        for room in range(80)
        for night in range(180)
    ]
    assert sum(map(len, rooms)) > LARGE_BYTES
    async with open_hub(tmp_path) as hub:
        assert "<Success/></OTA" in (await push_rooms(hub, *rooms, complete=True)).text
        assert len(await known(hub)) == 80
        padding = f"<!--{'x' * LARGE_BYTES}-->"
        document = f"{padding}{notif_report_rq(((14, 'a1'),), {})}"
        answer = await hub.post("u1", "OTA_NotifReport:GuestRequests", document)
        assert (answer.status_code, answer.text) == (413, "ERROR:the document is too large")
        answer = await push_rooms(hub, *rooms * 4, complete=True)
        assert answer.status_code == 413


async def test_free_rooms_in_a_closing_season_are_taken_with_advice(tmp_path: Path) -> None:
    """Told together, and by a later delta; none is free there."""
    text = "rooms are free in a closing season"
    async with open_hub(tmp_path) as hub:
        closed = entry(CLOSED, first=5, last=9)
        free, full, before = (
            entry(DZ, count(2, number), first, last)
            for number, first, last in ((3, 9, 12), (0, 5, 9), (3, 0, 4))
        )
        answer = await push_rooms(hub, closed, free, complete=True)
        assert "<Success/>" in answer.text and 'Type="11"' in answer.text and text in answer.text
        assert text not in (await push_rooms(hub, closed, before, full, complete=True)).text
        assert text in (await push_rooms(hub, free)).text
        assert text not in (await push_rooms(hub, before, full)).text


async def test_count_of_a_distinct_room_above_one_is_taken_with_advice(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await push_rooms(hub, entry(ROOM, count(2, 2)), complete=True)
        assert "<Success/>" in answer.text and 'Type="11"' in answer.text
        assert "greater than 1" in answer.text
        assert "greater than 1" not in (await push_rooms(hub, entry(ROOM, count(2, 1)))).text
        assert (
            "greater than 1"
            not in (await push_rooms(hub, entry(DZ, count(2, 2)), complete=True)).text
        )


@pytest.mark.parametrize(("kept", "told"), [(DZ, ROOM), (ROOM, DZ)])
async def test_delta_of_the_other_kind_is_refused_and_changes_nothing(
    tmp_path: Path, kept: str, told: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await push_rooms(hub, entry(kept, count(2, 1)), complete=True)
        before = await known(hub)
        answer = await push_rooms(hub, entry(told, count(2, 1)))
        assert error_of(answer) == ("11", "450") and "ALPINEBITS_SEND_FREEROOMS" in answer.text
        assert await known(hub) == before
        assert (
            "<Success/></OTA"
            in (await push_rooms(hub, entry(told, count(2, 1)), complete=True)).text
        )
