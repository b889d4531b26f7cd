"""A primary with newer migrations gets the lease from one that has not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine.parts import CHAINS, context_of, opened
from tests.integration.engine.stores import STORES
from tests.integration.primary.primary import build, running

from cordata.app import App
from cordata.services import primary
from cordata.services.primary import PrimaryService
from cordata.store import Chain, RuntimeStore
from cordata.systemd import Notifier

NEWER = Chain("upgrade", "upgrade_sql")


def newer_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer program's migrations."""
    for dialect in STORES:
        migrations = folder / "upgrade_sql" / dialect / "migrations"
        migrations.mkdir(parents=True)
        (migrations / "0001_more.sql").write_text("CREATE TABLE more (id INTEGER PRIMARY KEY);\n")
    (folder / "upgrade_sql" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(folder))


def newer_primary(store: RuntimeStore, app: App) -> PrimaryService:
    """As it stands by after its host was upgraded."""
    return PrimaryService(
        *(context_of(store), app, store.lease(holder="newer"), ()),
        *((*CHAINS, NEWER), Notifier()),
        holder="newer",
    )


async def test_older_primary_hands_over_when_a_newer_one_waits_for_its_migration(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer_package(state / "lib", monkeypatch)
    monkeypatch.setattr(primary, "_CHECK_S", 600.0)  # only the request wakes it
    app, handed_over = App("p"), asyncio.Event()
    async with opened(state) as one, opened(state, migrate=False) as two:
        stop, newer = asyncio.Event(), newer_primary(two, app)
        async with asyncio.TaskGroup() as group:
            async with running(build(one, state, app, hand_over=handed_over.set)):
                group.create_task(newer.run(stop))
                async with asyncio.timeout(60):
                    await handed_over.wait()
                assert not newer.ready.is_set()
            async with asyncio.timeout(60):
                await newer.ready.wait()
            assert newer.led.is_set() and not await two.pending((*CHAINS, NEWER))
            # The older one starts again, and stands by.
            again = build(one, state, app)
            assert await again.lease.run_once() is None
            stop.set()


async def test_older_primary_leaves_the_lease_to_the_newer_when_both_want_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer_package(state / "lib", monkeypatch)
    app = App("p")
    async with opened(state) as one, opened(state, migrate=False) as two:
        held = one.lease(holder="somebody")
        assert await held.try_acquire() is not None
        newer = newer_primary(two, app)
        assert await newer.run_once() is None  # requests a takeover
        await held.release()
        older = build(one, state, app)
        assert await older.lease.run_once() is None
        fence = await newer.run_once()
        assert fence is not None
        await two.migrate((*CHAINS, NEWER), fence=fence)


async def test_primary_leads_on_when_the_request_was_for_what_it_applied(tmp_path: Path) -> None:
    app = App("p")
    async with opened(tmp_path, migrate=False) as one, opened(tmp_path, migrate=False) as two:
        other = build(two, tmp_path, app, holder="other")
        older = build(one, tmp_path, app, holder="older")
        fence = await older.lease.run_once()
        assert fence is not None
        assert (
            await other.lease.run_once() is None
        )  # the schema is not there yet: requests a takeover
        assert await older.lease.check(fence)
        await one.migrate(CHAINS, fence=fence)
        assert not await older.lease.check(fence)
