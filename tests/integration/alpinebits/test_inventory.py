"""What a hotel is and has: pushed in one version, fetched in each, on both stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hotel_data import (
    BASIC,
    INFO,
    PULL_CONTENT,
    PUSH_CONTENT,
    content_rq,
    info_rq,
    pull_content,
    push_content,
)
from tests.integration.alpinebits.hub import NAMESPACE, error_of, open_hub, open_worker

from alpinehub.alpinebits.inbound import read_document
from alpinehub.alpinebits.protocol import PROTOCOLS

pytestmark = pytest.mark.usefixtures("each_store")

KINDS = ("Inventory", "Info")


def content_of(answer: httpx.Response) -> bytes:
    """The content of an answer, canonical and without the hotel."""
    [content] = etree.fromstring(answer.content).iter(f"{{{NAMESPACE}}}HotelDescriptiveContent")
    for name in ("HotelCode", "HotelName"):
        content.attrib.pop(name)
    etree.cleanup_namespaces(content)
    return etree.tostring(content, method="c14n", exclusive=True)


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_what_was_pushed_is_fetched_in_every_version(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub:
        # In 2017-10 and 2018-10 what a hotel info holds is anything.
        for kind, inside in zip(KINDS, (BASIC, INFO), strict=True):
            assert "<Success/></OTA" in (await push_content(hub, kind, inside, version)).text
        for other in PROTOCOLS:
            rooms, info = [await pull_content(hub, kind, other) for kind in KINDS]
            assert "Doppel &amp; mehr ä" in rooms.text and 'RoomID="101"' in rooms.text
            assert 'HotelCode="H1" HotelName="Hotel H1"' in rooms.text
            assert 'Latitude="46.1"' in info.text and "GuestRoom" not in info.text


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_what_was_pushed_comes_back_unchanged_in_its_own_version(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await push_content(hub, "Inventory", BASIC, version)
        sent = etree.fromstring(content_rq(BASIC))[0][0]
        sent.attrib.pop("HotelCode")
        canonical = etree.tostring(sent, method="c14n", exclusive=True)
        assert content_of(await pull_content(hub, "Inventory", version)) == canonical


async def test_sample_of_the_newest_version_is_told_in_each(tmp_path: Path) -> None:
    """With check-in times, awards and all: what an older version cannot carry is left out."""
    name = "Inventory-Push-OTA_HotelDescriptiveContentNotifRQ-hotelInfo.xml"
    document = material.message("2024-10", name)
    async with open_hub(tmp_path) as hub:
        await hub.add_account("pms", await hub.add_hotel("123", name="Frangart Inn"))
        answer = await hub.post("pms", f"{PUSH_CONTENT}Info", document)
        assert "<Success/></OTA" in answer.text
        for version in PROTOCOLS:
            answer = await hub.post("pms", f"{PULL_CONTENT}Info", info_rq("123"), version)
            assert material.problems(answer.content, version) == []
            assert "Position" in answer.text


async def test_nothing_is_told_with_advice_when_nothing_was_pushed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for version in PROTOCOLS:
            for kind in KINDS:
                text = (await pull_content(hub, kind, version)).text
                assert "<GuestRoom " not in text
                advice = 'Type="11" Status="ALPINEBITS_SEND_INVENTORY"' in text
                assert advice == (version >= "2022")


async def test_push_replaces_and_an_empty_one_deletes_all(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await push_content(hub, "Inventory", BASIC)
        await push_content(hub, "Info", INFO)
        await push_content(hub, "Inventory", BASIC.replace("DZ", "EZ"))
        assert 'Code="DZ"' not in (await pull_content(hub, "Inventory")).text
        empty = "<FacilityInfo><GuestRooms/></FacilityInfo>"
        assert "<Success/></OTA" in (await push_content(hub, "Inventory", empty)).text
        assert "<GuestRooms/>" in (await pull_content(hub, "Inventory")).text
        assert "Warning" not in (await pull_content(hub, "Inventory")).text
        assert "Position" in (await pull_content(hub, "Info")).text
        document = await hub.ctx.store.read(lambda tx: read_document(tx, 1, "inventory"))
        assert document.revision == 3 and document.complete_at is not None


@pytest.mark.parametrize(
    ("kind", "inside", "code"),
    [
        ("Inventory", INFO, "450"),
        ("Inventory", "", "321"),
        ("Inventory", BASIC.replace('RoomID="101"', 'RoomID="101" Size="9"'), "450"),
        ("Inventory", BASIC.replace('MinOccupancy="1"', 'MinOccupancy="3"'), "320"),
        ("Inventory", BASIC.replace('MaxOccupancy="3"', f'MaxOccupancy="{"9" * 20}"'), "320"),
        ("Inventory", BASIC.replace('StandardOccupancy="2"', "", 1), "321"),
        ("Inventory", BASIC.replace('Code="42"', 'Code="42" RoomID="1"'), "402"),
        ("Inventory", BASIC.replace('Code="42"', 'Code="0"'), "320"),
        ("Info", BASIC, "450"),
    ],
)
async def test_push_against_the_rules_is_an_error_and_changes_nothing(
    tmp_path: Path, kind: str, inside: str, code: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await push_content(hub, "Inventory", BASIC)
        before = (await pull_content(hub, "Inventory")).content
        answer = await push_content(hub, kind, inside, "2022-10")
        assert error_of(answer) == ("13", code)
        assert (await pull_content(hub, "Inventory")).content == before
        assert await hub.one("SELECT count(*) FROM hotel_document") == 1


async def test_room_that_stands_there_twice_is_an_error(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        room = '<GuestRoom Code="DZ"><TypeRoom RoomID="101"/></GuestRoom>'
        answer = await push_content(hub, "Inventory", BASIC.replace(room, room * 2))
        assert error_of(answer) == ("13", "402")
        assert "GuestRoom 3: this RoomID is listed twice" in answer.text


async def test_hotel_of_another_is_as_one_that_does_not_exist(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_hotel("H2")
        one, other = [await pull_content(hub, "Info", hotel=code) for code in ("H2", "H3")]
        assert one.content == other.content and error_of(one) == ("13", "392")


async def test_what_the_operator_took_away_is_an_error(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.execute("UPDATE hotel SET settings = ?", json.dumps({"off": ["inventory"]}))
        assert error_of(await push_content(hub, "Inventory", BASIC)) == ("11", "450")
        assert error_of(await pull_content(hub, "Inventory")) == ("11", "450")
        assert "<Success/>" in (await push_content(hub, "Info", INFO)).text


async def test_pushes_of_several_workers_at_once_replace_each_other(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as one, open_worker(tmp_path) as two:
        pushes = [
            hub.post("u1", f"{PUSH_CONTENT}Inventory", content_rq(BASIC)) for hub in (one, two) * 4
        ]
        assert all("<Success" in answer.text for answer in await asyncio.gather(*pushes))
        assert await one.one("SELECT revision FROM hotel_document") == 8
