"""Large acknowledgements, which a child of the pool reads."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import httpx
import pytest
from tests.contract.pool.running import running
from tests.integration.alpinebits.hotel_data import BASIC, content_rq, info_rq
from tests.integration.alpinebits.hub import Hub, notif_report_rq, open_hub, open_worker
from tests.integration.cli.command import python

from alpinehub.alpinebits import call
from alpinehub.alpinebits.call import POOL_BYTES
from cordata.pool import SyncClient

COUNT = 4000


def large(*ids: str) -> str:
    unknown = (f"{number:032x}" for number in range(COUNT))
    document = notif_report_rq(((14, one) for one in (*ids, *unknown)), {})
    assert len(document) > POOL_BYTES
    return document


async def send(hub: Hub, document: str) -> httpx.Response:
    return await hub.post("u1", "OTA_NotifReport:GuestRequests", document)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub waits for the pool of a busy machine, instead of reading the document itself."""
    monkeypatch.setattr(call, "POOL_TIMEOUT_S", 60.0)


@pytest.mark.usefixtures("patient")
async def test_large_acknowledgement_is_read_in_a_child(tmp_path: Path) -> None:
    with running(tmp_path, app="alpinehub.app:app", workers=1) as path:
        async with open_hub(tmp_path / "state", path) as hub:
            await hub.add(1, "a1")
            await hub.add(1, "a2")
            assert sorted(await hub.read("u1", "H1")) == ["a1", "a2"]
            answer = await send(hub, large("a1"))
            assert answer.status_code == 200 and "Success" in answer.text
            assert answer.text.count("<Warning ") == COUNT  # nobody knows them
            assert await hub.read("u1", "H1") == ["a2"]
            refused = await send(hub, large("a2").replace('Type="14" ID="a2"', 'Type="9" ID="a2"'))
            assert refused.status_code == 400
            assert "does not conform to the schema" in refused.text
            broken = await send(hub, large("a2")[:-1])
            assert broken.status_code == 400 and "cannot be parsed: line 2" in broken.text
            await hub.acknowledge("u1", (14, "a2"))  # a small one is no call
            assert await hub.read("u1", "H1") == []
        with SyncClient(path) as pool:
            [worker] = pool.status()["workers"]
            assert worker["children"][0]["calls"] == 3


async def test_large_acknowledgement_is_read_here_when_there_is_no_pool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")
        await hub.read("u1", "H1")
        assert (await send(hub, large("a1"))).status_code == 200
        assert await hub.read("u1", "H1") == []
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert told == [
        "a large OTA_NotifReportRQ is processed in the worker, not by the pool (unavailable)"
    ]


@pytest.mark.usefixtures("patient")
async def test_document_that_kills_is_not_read_here(tmp_path: Path) -> None:
    with running(tmp_path, app="tests.integration.alpinebits.deadly:dying", workers=1) as path:
        async with open_hub(tmp_path / "state", path) as hub:
            await hub.add(1, "a1")
            await hub.read("u1", "H1")
            killed = await send(hub, large("a1"))
            refused = await send(hub, large("a1"))
            assert (killed.status_code, refused.status_code) == (500, 503)
            assert killed.text.startswith("ERROR:") and refused.text.startswith("ERROR:")
            assert await hub.read("u1", "H1") == ["a1"]
        with SyncClient(path) as pool:
            assert pool.status()["workers"][0]["crashed"] == 3


@pytest.mark.parametrize(
    ("pool", "timeout_s", "status", "said"),
    [
        ("staying", 5.0, 503, "the document could not be processed in time"),
        ("failing", 60.0, 500, "the server failed"),
    ],
)
async def test_document_that_a_child_has_tried_is_not_read_here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    pool: str,
    timeout_s: float,
    status: int,
    said: str,
) -> None:
    monkeypatch.setattr(call, "POOL_TIMEOUT_S", timeout_s)
    app = f"tests.integration.alpinebits.deadly:{pool}"
    with running(tmp_path, app=app, workers=1) as path:
        async with open_hub(tmp_path / "state", path) as hub:
            await hub.add(1, "a1")
            await hub.read("u1", "H1")
            answer = await send(hub, large("a1"))
            assert answer.status_code == status and answer.text.startswith(f"ERROR:{said}")
            assert await hub.read("u1", "H1") == ["a1"]
    assert "processed in the worker" not in caplog.text
    assert ("no such letter" in caplog.text) is (pool == "failing")


@pytest.mark.usefixtures("patient")
async def test_stored_content_that_kills_is_not_converted_here(tmp_path: Path) -> None:
    before, rooms, after = re.split("<GuestRooms>|</GuestRooms>", BASIC)
    many = "".join(rooms.replace('"DZ"', f'"D{number}"') for number in range(COUNT // 4))
    document = content_rq(f"{before}<GuestRooms>{many}</GuestRooms>{after}")
    folder, action = tmp_path / "hub", "OTA_HotelDescriptiveInfo:Inventory"
    folder.mkdir()
    async with open_hub(folder) as hub:
        answer = await hub.post("u1", "OTA_HotelDescriptiveContentNotif:Inventory", document)
        assert "<Success" in answer.text
        assert len((await hub.post("u1", action, info_rq())).content) > POOL_BYTES
    with running(tmp_path, app="tests.integration.alpinebits.deadly:dying", workers=1) as path:
        async with open_worker(folder, path) as hub:
            answers = [await hub.post("u1", action, info_rq()) for _ in range(2)]
            assert [one.status_code for one in answers] == [500, 503]
            assert all(one.text.startswith("ERROR:") for one in answers)


def test_module_of_the_commands_imports_neither_store_nor_xml() -> None:
    code = "import sys, alpinehub.alpinebits.large; print(*sys.modules)"
    imported = set(python("-c", code).stdout.split())
    assert "alpinehub.alpinebits.grammar" in imported
    heavy = {"jinja2", "lxml", "sqlite3", "asyncio", "cordata.store", "cordata.app", "starlette"}
    assert not heavy & imported
