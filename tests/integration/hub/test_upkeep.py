"""Counts and health."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs
from tests.integration.engine.stores import url_of, use
from tests.integration.hub.material import BOOKING, Hub, open_hub
from tests.integration.store.parts import fill, needs_root, small_disk, use_up
from tests.waiting import until_async

from alpinehub import counts, demo
from alpinehub.customers import duplicates
from alpinehub.report.job import read_report
from alpinehub.sources import add_source, set_secret
from cordata import Store, StoreUnavailable, Tx, from_us
from cordata.store import Chain
from cordata.vault import Vault

HOUR_US = 3_600_000_000
on_each_store = pytest.mark.usefixtures("each_store")


async def totals(hub: Hub) -> dict[str, int]:
    """Submissions of all hours, by kind."""
    rows = await hub.rows("SELECT kind, submissions FROM hotel_hour")
    found: Counter[str] = Counter()
    for row in rows:
        found[row["kind"]] += row["submissions"]
    return dict(found)


@on_each_store
async def test_counts_each_change_once_however_often_it_runs(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        assert await counts.fold(store) == 0
        await hub.post(BOOKING)
        await hub.post({**BOOKING, "adults": 3})
        assert await counts.fold(store) == 0  # versions are counted by their own rows
        for _ in range(2):
            await hub.post({**BOOKING, "adults": 3})
        assert await counts.fold(store) == 2
        assert await counts.fold(store) == 0
        await hub.post({**BOOKING, "adults": 0})
        assert await counts.fold(store) == 1
        assert await totals(hub) == {"duplicate": 2, "error": 1}
        assert await hub.one("SELECT count(*) FROM hotel_hour WHERE hour_at % 3600000000 <> 0") == 0


@on_each_store
async def test_counts_goes_in_steps_when_much_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "STEP", 2)
    async with open_hub(tmp_path) as hub:
        for _ in range(6):
            await hub.post(BOOKING)
        assert await counts.fold(hub.ctx.store) == 5
        assert await totals(hub) == {"duplicate": 5}


@on_each_store
async def test_counts_ends_while_changes_keep_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = counts.fold_step

    async def and_one_more(tx: Tx) -> int:
        taken = await step(tx)
        await counts.add(tx, 1, "error")
        return taken

    monkeypatch.setattr(counts, "STEP", 2)
    monkeypatch.setattr(counts, "fold_step", and_one_more)
    async with open_hub(tmp_path) as hub:

        async def fill(tx: Tx) -> None:
            for at in (1, 2, HOUR_US):
                hour_at = at - at % HOUR_US
                await tx.insert("hour_change", hotel_id=1, hour_at=hour_at, kind="spam")

        await hub.ctx.store.run(fill)
        async with asyncio.timeout(60):
            assert await counts.fold(hub.ctx.store) == 5
        rows = await hub.rows("SELECT submissions FROM hotel_hour ORDER BY hour_at")
        assert [row["submissions"] for row in rows][:2] == [2, 1]


async def test_upkeep_of_customers_ends_while_new_ones_keep_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one_more(store: Store, after: int) -> list[int]:
        await asyncio.sleep(0)
        return [after + 1]

    monkeypatch.setattr(duplicates, "STEP", 2)
    monkeypatch.setattr(duplicates, "process_step", one_more)
    async with open_hub(tmp_path) as hub, asyncio.timeout(60):
        assert await duplicates.merge_duplicates(hub.ctx.store) == 1


async def test_upkeep_of_customers_goes_on_after_each_full_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def step(store: Store, after: int) -> list[int]:
        return [one for one in range(1, 6) if one > after][:2]

    monkeypatch.setattr(duplicates, "STEP", 2)
    monkeypatch.setattr(duplicates, "process_step", step)
    async with open_hub(tmp_path) as hub, asyncio.timeout(60):
        assert await duplicates.merge_duplicates(hub.ctx.store) == 5


async def test_ready_says_why_when_it_is_not(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert (await hub.call("GET", "/api/ready", [])).status == 200
        package = tmp_path / "newer"
        (package / "sqlite" / "migrations").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "sqlite" / "migrations" / "0003_more.sql").write_text("SELECT 1;\n")
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.syspath_prepend(str(tmp_path))
        behind = (*hub.ctx.chains, Chain("alpinehub", "newer"))
        older = replace(hub, ctx=structs.replace(hub.ctx, chains=behind))
        answer = await older.call("GET", "/api/ready", [])
        monkeypatch.undo()
        assert answer.status == 503 and "schema" in answer.json["reason"]
        assert b"retry-after" in answer.headers


async def test_ready_says_that_secrets_do_not_open_under_another_master_key(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        restored = replace(hub, ctx=structs.replace(hub.ctx, vault=Vault(b"ab" * 32)))
        assert (await restored.post(BOOKING)).status == 401
        for keyless in (restored, replace(hub, ctx=structs.replace(hub.ctx, vault=Vault(None)))):
            answer = await keyless.call("GET", "/api/ready", [])
            assert answer.status == 503 and b"retry-after" in answer.headers
            assert "DEMO/website" in answer.json["reason"]
            assert "restore the credential master-key" in answer.json["reason"]
        # One that opens keeps the host in: the others must not take it from the hotels they serve.
        await add_source(restored.ctx, "DEMO", "generic", "restored", "another-secret")
        answer = await restored.call("GET", "/api/ready", [])
        assert answer.status == 200 and "DEMO/website" in answer.json["warning"]
        # With the right key, again and again.
        await set_secret(hub.ctx, "DEMO", "restored", "another-secret")
        for _ in range(2):
            assert (await hub.call("GET", "/api/ready", [])).status == 200


class Gone:
    """A store that cannot answer."""

    async def schema_current(self, chains: object) -> bool:
        raise StoreUnavailable("the disk does not answer")


async def test_ready_says_why_when_the_store_is_gone(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        without = replace(hub, ctx=structs.replace(hub.ctx, store=cast(Store, Gone())))
        answer = await without.call("GET", "/api/ready", [])
        assert answer.status == 503 and "does not answer" in answer.json["reason"]
        assert b"retry-after" in answer.headers


@needs_root
async def test_ready_is_503_as_long_as_the_disk_of_the_store_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="8m") as disk:
        async with open_hub(disk) as hub:
            assert (await hub.post(BOOKING)).status == 200
            use_up(disk)
            refused = await hub.post({**BOOKING, "external_id": "n-2"})
            assert (refused.status, refused.json["error"]) == (503, "store_full")
            answer = await hub.call("GET", "/api/ready", [])
            assert answer.status == 503 and answer.json["reason"].startswith("store_full: ")
            assert b"retry-after" in answer.headers
            # It is no reason to restart the process.
            assert (await hub.call("GET", "/api/health", [])).status == 200
            (disk / "filler").unlink()
            await hub.ctx.store.checkpoint()

            async def is_ready() -> bool:
                return (await hub.call("GET", "/api/ready", [])).status == 200

            await until_async(is_ready)
            assert (await hub.post({**BOOKING, "external_id": "n-2"})).status == 200


@needs_root
async def test_ready_is_503_when_the_disk_has_room_for_an_attempt_but_not_for_a_request(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", size="8m") as disk:
        async with open_hub(disk) as hub:
            assert (await hub.post(BOOKING)).status == 200
            filler = disk / "filler"
            fill(filler)
            os.truncate(filler, filler.stat().st_size - 24_576)
            refused = await hub.post({**BOOKING, "external_id": "n-2", "message": "x" * 900})
            assert (refused.status, refused.json["error"]) == (503, "store_full")
            before = hub.ctx.store.stats().commits
            await until_async(lambda: hub.ctx.store.stats().commits > before)  # an attempt to heal
            answer = await hub.call("GET", "/api/ready", [])
            assert answer.status == 503 and answer.json["reason"].startswith("store_full: ")
            filler.unlink()
            await until_async(lambda: hub.ctx.store.stats().state == "ok")
            assert (await hub.call("GET", "/api/ready", [])).status == 200
            assert (await hub.post({**BOOKING, "external_id": "n-2"})).status == 200


@needs_root
@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
async def test_ready_is_200_when_only_the_disk_of_the_host_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="1m") as disk:
        use(disk, url_of(tmp_path))
        async with open_hub(disk) as hub:
            fill(disk / "filler")
            assert (await hub.post(BOOKING)).status == 200
            assert (await hub.call("GET", "/api/ready", [])).status == 200


@on_each_store
async def test_demo_is_made_once_and_left_alone(tmp_path: Path) -> None:
    async with open_hub(tmp_path, seed=False) as hub:
        assert await demo.set_up(hub.ctx)
        assert not await demo.set_up(hub.ctx)
        answer = await hub.post(BOOKING, headers={"x-webhook-secret": "demo"})
        assert answer.status == 200


@on_each_store
@pytest.mark.usefixtures("one_day")
async def test_counts_what_said_nothing_new_and_what_was_refused(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for _ in range(3):
            await hub.post(BOOKING)
        key = {"idempotency-key": "k-1"}
        for _ in range(2):
            await hub.post({**BOOKING, "external_id": "n-2"}, headers=key)
        assert (await hub.post({**BOOKING, "arrival": "2027-02-29"})).status == 422
        assert (await hub.post(body=b"{")).status == 400
        assert (await hub.post(BOOKING, headers={"x-webhook-secret": "wrong"})).status == 401
        await hub.handle_events()
        day = from_us(hub.ctx.now_us()).astimezone(ZoneInfo("Europe/Rome")).date()
        before = await read_report(hub.ctx, "DEMO", day.isoformat())  # the primary was away
        await counts.fold(hub.ctx.store)
        assert await totals(hub) == {"duplicate": 3, "error": 2}
        figures = await read_report(hub.ctx, "DEMO", day.isoformat())
        # n-2 is the same guest and stay
        assert (figures.duplicates, figures.repeated, figures.errors) == (3, 1, 2)
        assert (before.duplicates, before.errors) == (3, 2)
