"""What is asked before guest requests: version, capabilities, handshake; and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lxml import etree
from tests.integration.alpinebits.hub import Hub, open_hub, read_rq

from alpinehub.alpinebits import contact
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client import message
from cordata import StoreUnavailable

pytestmark = pytest.mark.usefixtures("each_store")

H1, U1 = 1, 1
PING = "OTA_Ping:Handshaking"


def ping_rq(versions: object) -> bytes:
    return message.ping(json.dumps({"versions": versions}))


async def test_version_and_capabilities_are_told_in_plain_text_in_2017(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        told = await hub.post("u1", "getVersion", None, "2017-10")
        assert (told.status_code, told.text) == (200, "OK:2017-10")
        assert told.headers["content-type"].startswith("text/plain")
        told = await hub.post("u1", "getCapabilities", None, "2017-10")
        assert told.text.startswith("OK:action_getVersion,action_getCapabilities,action_OTA_Read")
        assert "action_OTA_Ping" not in told.text


@pytest.mark.parametrize("version", [*PROTOCOLS][1:])
@pytest.mark.parametrize("action", ["getVersion", "getCapabilities"])
async def test_housekeeping_is_unknown_where_there_is_a_handshake(
    tmp_path: Path, version: str, action: str
) -> None:
    async with open_hub(tmp_path) as hub:
        told = await hub.post("u1", action, None, version)
        assert (told.status_code, told.text) == (400, "ERROR:unknown or missing action")


async def test_housekeeping_wants_a_version_that_is_served(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for version in ("2015-07b", "2030-10"):
            told = await hub.post("u1", "getVersion", None, version)
            assert told.status_code == 400
            assert told.text.startswith("ERROR:your current alpinebits version")


async def test_handshake_is_remembered_for_the_account_by_version(tmp_path: Path) -> None:
    read, ping = {"action": "action_OTA_Read"}, {"action": "action_OTA_Ping"}
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", H1)
        first = [{"version": "2018-10", "actions": [read, ping]}, {"version": "2030-10"}]
        await hub.post("u1", PING, ping_rq(first), "2018-10")
        agreed: dict[str, object] = {"2018-10": {"action_OTA_Ping": [], "action_OTA_Read": []}}
        assert await remembered(hub) == {U1: agreed}
        again = [{"version": "2018-10", "actions": [read]}, {"version": "2024-10"}]
        await hub.post("u1", PING, ping_rq(again))
        agreed = {"2018-10": {"action_OTA_Read": []}, "2024-10": {}}
        assert await remembered(hub) == {U1: agreed}


async def test_handshake_echoes_to_the_character(tmp_path: Path) -> None:
    echo = '\t{"versions": [] ,\r\n "ä<&>]]>": "&quot;𝄞"} '
    async with open_hub(tmp_path) as hub:
        told = await hub.post("u1", PING, message.ping(echo))
        assert etree.fromstring(told.content)[-1].text == echo


async def remembered(hub: Hub) -> dict[int, dict[str, object]]:
    found: dict[int, dict[str, object]] = {}
    for row in await hub.execute("SELECT * FROM handshake"):
        found.setdefault(row["account_id"], {})[row["protocol"]] = json.loads(row["capabilities"])
    return found


async def test_handshake_writes_nothing_when_it_comes_to_the_same(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        document = ping_rq([{"version": "2024-10"}])
        await hub.post("u1", PING, document)
        before = await hub.execute("SELECT * FROM handshake")
        written = hub.ctx.store.stats()
        await hub.post("u1", PING, document)
        assert hub.ctx.store.stats() == written
        assert await hub.execute("SELECT * FROM handshake") == before


async def test_contact_tells_when_an_account_last_polled_and_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as hub:
        other = await hub.add_hotel("H2")
        await hub.add_account("u2", H1, other)
        await hub.add(H1, "a1")
        await hub.read("u2", "H1", "2018-10")
        [row] = await hub.execute("SELECT * FROM contact")
        assert (row["account_id"], row["hotel_id"]) == (2, H1)
        assert row["polled_at"] > 0 and row["acked_at"] is None
        await hub.read("u2", "H1")  # no news within half a minute
        assert await hub.execute("SELECT * FROM contact") == [row]
        await hub.acknowledge("u2", (14, "a1"), version="2022-10")
        [acked] = await hub.execute("SELECT * FROM contact")
        assert acked["acked_at"] > row["polled_at"] == acked["polled_at"]
        monkeypatch.setattr(contact, "POLL_NOTED_S", -1.0)
        contact._polls_noted.clear()
        await hub.read("u2", "H1")
        [polled] = await hub.execute("SELECT * FROM contact")
        assert polled["polled_at"] > acked["acked_at"] == polled["acked_at"]


async def test_poll_is_noted_after_the_clock_was_set_back(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        an_hour_ahead = hub.ctx.now_us() + 3600 * 1_000_000
        contact._polls_noted[hub.ctx.store] = {(U1, H1): an_hour_ahead}
        await hub.read("u1", "H1")
        assert await hub.one("SELECT polled_at FROM contact") < an_hour_ahead


async def test_poll_is_noted_after_one_that_failed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        run = hub.ctx.store.run

        async def away(unit: object) -> object:
            raise StoreUnavailable("disk", retry_after_s=7)

        hub.ctx.store.run = away  # type: ignore[method-assign,assignment]
        assert (await hub.post("u1", "OTA_Read:GuestRequests", read_rq("H1"))).is_error
        hub.ctx.store.run = run  # type: ignore[method-assign]
        assert await hub.read("u1", "H1") == ["a1"]
        assert await hub.one("SELECT polled_at FROM contact") > 0


async def test_poll_answers_when_that_it_came_cannot_be_noted(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:

        async def away(unit: object) -> object:
            raise StoreUnavailable("disk", retry_after_s=7)

        hub.ctx.store.run = away  # type: ignore[method-assign,assignment]
        assert await hub.read("u1", "H1") == []
