"""A list of any length, a page at a time; what is noted and told of it."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.integration.alpinebits import material
from tests.integration.alpinebits.hub import Hub, open_hub, read_rq, reservations

from alpinehub.alpinebits import guest_requests
from alpinehub.alpinebits.call import Recipient
from alpinehub.alpinebits.guest_requests import Cursor
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.models import Hotel
from cordata import StoreUnavailable

pytestmark = pytest.mark.usefixtures("each_store")

H1, U1 = 1, 1
READ = "OTA_Read:GuestRequests"
HOTEL = Hotel(
    id=H1, code="H1", name="Hotel H1", time_zone="Europe/Rome", language="de", region="IT"
)
RECIPIENT = Recipient(account_id=U1, protocol=PROTOCOLS["2024-10"], client_id="asa")


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_requests, "PAGE", 3)


async def fill(hub: Hub, count: int) -> list[str]:
    names = [f"a{number:03d}" for number in range(count)]
    for name in names:
        await hub.add(H1, name)
    return names


@pytest.mark.parametrize(
    ("count", "whole"), [(0, True), (2, True), (3, False), (4, False), (8, False)]
)
async def test_list_goes_out_whole_when_it_is_less_than_a_page(
    tmp_path: Path, count: int, whole: bool
) -> None:
    async with open_hub(tmp_path) as hub:
        names = await fill(hub, count)
        assert await hub.read("u1", "H1", "2024-10", "2020-01-01T00:00:00Z") == names
        for _ in range(2):
            response = await hub.post("u1", READ, read_rq("H1"))
            assert (hub.parts == 1) is whole
            assert material.problems(response.content, "2024-10") == []
            assert [one[1] for one in reservations(response.content)] == names
            assert response.headers["content-type"] == "text/xml; charset=utf-8"
            assert response.headers["x-alpinebits-server-accept-encoding"] == "gzip"
        await hub.acknowledge("u1", *((14, name) for name in names))
        assert await hub.read("u1", "H1") == []
        assert await hub.read("u1", "H1", "2024-10", "2020-01-01T00:00:00Z") == names


async def test_page_is_recorded_as_sent_before_it_is_given_and_no_other(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await fill(hub, 7)
        cursor: Cursor | None = Cursor()
        for expected in (3, 6, 7):
            assert cursor is not None
            cursor = (await guest_requests.send_page(hub.ctx, RECIPIENT, HOTEL, cursor)).next
            sent = [row for row in (await hub.deliveries(U1)).values() if row["sent_at"]]
            assert len(sent) == expected
        assert cursor is None


async def test_page_of_nothing_but_undeliverable_ones_does_not_end_the_list(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for number in range(9):
            await hub.add(H1, f"a{number}", adults=0 if number < 8 else 1)
        assert await hub.read("u1", "H1") == ["a8"]


def fail_once(monkeypatch: pytest.MonkeyPatch, hub: Hub, page: int) -> None:
    """Let the store fail when a poll records its page of this number, from 1."""
    run, pages = hub.ctx.store.run, itertools.count(1)

    async def fail(unit: Any) -> Any:
        if next(pages) == page:
            raise StoreUnavailable("disk", retry_after_s=7)
        return await run(unit)

    monkeypatch.setattr(hub.ctx.store, "run", fail)


async def count_sent(hub: Hub) -> int:
    return sum(1 for row in (await hub.deliveries(U1)).values() if row["sent_at"])


@pytest.mark.parametrize("page", [1, 2])
async def test_failure_before_a_list_begins_is_told_and_its_page_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    async with open_hub(tmp_path) as hub:
        await fill(hub, 12)
        fail_once(monkeypatch, hub, page)
        response = await hub.post("u1", READ, read_rq("H1"))
        assert (response.status_code, response.headers["retry-after"]) == (503, "7")
        assert response.text.startswith("ERROR:")
        assert await count_sent(hub) == 3 * (page - 1)
        assert len(await hub.read("u1", "H1")) == 12


async def test_failure_in_the_middle_of_a_list_ends_it_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as hub:
        await fill(hub, 12)
        fail_once(monkeypatch, hub, 3)
        with pytest.raises(StoreUnavailable):
            await hub.post("u1", READ, read_rq("H1"))
        assert await count_sent(hub) == 6
        assert len(await hub.read("u1", "H1")) == 12


async def test_undeliverable_ones_are_one_alert_for_each_cause_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        for number in range(3):
            await hub.add(H1, f"a{number}", adults=0, email="secret@example.com", message="secret")
        await hub.add(H1, "b1", arrival=None, departure=None)
        for _ in range(2):
            assert await hub.read("u1", "H1", "2018-10") == []
    alerts = {r.__dict__["ALERT"]: r.getMessage() for r in caplog.records if hasattr(r, "ALERT")}
    assert set(alerts) == {"undeliverable:H1:schema", "undeliverable:H1:no_stay"}
    text = "3 guest requests of hotel H1 (Hotel H1) held back, AlpineBits 2018-10"
    assert text in alerts["undeliverable:H1:schema"]
    assert "(a0, a1, a2)" in alerts["undeliverable:H1:schema"]
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 2
    assert "secret" not in caplog.text


async def test_history_tells_once_why_a_version_is_undeliverable(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2", arrival=None, departure=None)
        for version in ("2024-10", "2024-10", "2020-10", "2020-10"):
            await hub.read("u1", "H1", version)
        rows = await hub.execute(
            "SELECT * FROM reservation_event WHERE event <> 'delivered' ORDER BY id"
        )
        told = [(row["reservation_id"], row["event"], json.loads(row["detail"])) for row in rows]
        reason = "what has no stay (a newsletter, a question) exists only from version 2022-10 on"
        assert told == [
            ("a2", "undeliverable", {"protocol": "2020-10", "code": "no_stay", "text": reason}),
        ]
        assert {(row["account_id"], row["version"]) for row in rows} == {(U1, 1)}


async def test_account_that_asks_in_two_versions_by_turns_makes_no_history_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2", arrival=None, departure=None)
        for version in ("2024-10", "2020-10") * 3:
            await hub.read("u1", "H1", version)
        rows = await hub.execute(
            "SELECT event FROM reservation_event WHERE event <> 'delivered' ORDER BY id"
        )
        assert [row["event"] for row in rows] == ["undeliverable"]
        await hub.add(H1, "a2", arrival=None, departure=None, message="changed")
        await hub.read("u1", "H1", "2020-10")  # a version of its own
        assert await hub.one("SELECT count(*) FROM reservation_event") == 4
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 2


async def test_undeliverable_one_that_an_account_never_had_is_one_alert_however_often_it_polls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A poll with Start finds what was there before the account, without a delivery of its own."""
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1", arrival=None, departure=None)
        await hub.add_account("late", H1)
        for _ in range(3):
            assert await hub.read("late", "H1", "2020-10", "2020-01-01T00:00:00Z") == []
        assert await hub.one("SELECT count(*) FROM reservation_event") == 1
    assert len([r for r in caplog.records if hasattr(r, "ALERT")]) == 1
