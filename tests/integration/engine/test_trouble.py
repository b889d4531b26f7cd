"""The engine when the store is away, a process hangs, or a group is gone."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from tests.integration.engine.engine import QUICK, build, running
from tests.integration.engine.parts import opened, publish, rows, runtime_of, until
from tests.integration.primary.primary import build as build_primary
from tests.integration.primary.primary import running as leading

from cordata import clock
from cordata.app import App
from cordata.broker import Owner, Owners, StoreBroker, Want, mark_of
from cordata.config.sections import EngineConfig
from cordata.context import EventContext
from cordata.core.event import Event
from cordata.errors import StoreFull
from cordata.services import consumer
from cordata.services.reclaim import ReclaimService
from cordata.store import Store, Tx, Unit

T = TypeVar("T")


class FullStore:
    """A store whose disk is full while `full` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.full = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Unit[T], **options: Any) -> T:
        if self.full:
            self.refused += 1
            raise StoreFull()
        return await self._store.run(unit, **options)


async def test_engine_goes_on_where_it_was_when_the_disk_has_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, handled = App("t"), list[str]()

    @app.on("thing.done", retries=0)
    async def take(event: Event, ctx: EventContext) -> None:
        handled.append(event.id)

    async with opened(tmp_path) as store:
        away = FullStore(store)
        async with running(build(cast(Store, away), tmp_path, app)):
            away.full = True
            ids = await publish(store, 10)
            await until(lambda: _is(away.refused >= 3))
            assert handled == []
            away.full = False
            await until(lambda: _empty(store))
    assert sorted(handled) == sorted(ids)
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1  # once, not at every try


async def test_finished_messages_are_settled_when_the_disk_has_room_again(tmp_path: Path) -> None:
    app = App("t")
    calls = list[str]()

    async with opened(tmp_path) as store:
        away = FullStore(store)

        @app.on("thing.done", retries=0)
        async def take(event: Event, ctx: EventContext) -> None:
            calls.append(event.id)
            away.full = True

        async with running(build(cast(Store, away), tmp_path, app)):
            await publish(store, 1)
            await until(lambda: _is(away.refused >= 2))
            away.full = False
            await until(lambda: _empty(store))
    assert len(calls) == 1


async def test_engine_stops_and_another_goes_on_when_the_disk_stays_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_SETTLE_S", 0.3)
    app = App("t")
    calls = list[str]()

    async with opened(tmp_path) as store:
        away = FullStore(store)

        @app.on("thing.done", retries=0)
        async def take(event: Event, ctx: EventContext) -> None:
            calls.append(event.id)
            away.full = len(calls) == 1

        async with asyncio.timeout(5.0):
            async with running(build(cast(Store, away), tmp_path, app)):
                ids = await publish(store, 1)
                await until(lambda: _is(away.full))
        away.full = False
        async with running(build(cast(Store, away), tmp_path, app)):
            await until(lambda: _empty(store))
    assert calls == ids * 2


async def test_reclaim_goes_on_when_the_process_has_no_descriptor_left(tmp_path: Path) -> None:
    app, stop = App("t"), asyncio.Event()

    class Exhausted(Owners):
        asked = 0

        def ids(self) -> list[str]:
            self.asked += 1
            raise OSError(errno.EMFILE, "Too many open files")

    async with opened(tmp_path) as store:
        mine = Owner.register(runtime_of(tmp_path), name="mine")
        owners = Exhausted(runtime_of(tmp_path))
        broker = StoreBroker(store, claim_timeout_s=1.0)
        reclaim = ReclaimService(store, broker, mine, owners, app.handlers, QUICK)
        async with asyncio.TaskGroup() as group:
            group.create_task(reclaim.run(stop))
            await until(lambda: _is(owners.asked >= 2))
            stop.set()


async def test_nobody_counts_as_dead_when_the_runtime_directory_was_emptied(
    tmp_path: Path,
) -> None:
    app, stop = App("t"), asyncio.Event()
    config = EngineConfig(poll_s=0.05)

    async with opened(tmp_path) as store:
        runtime = runtime_of(tmp_path)
        other, mine = (Owner.register(runtime, name=name) for name in ("other", "mine"))
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register({"t.take": "thing.done"})
        await publish(store, 1)
        await broker.relay(100)
        await broker.exchange(other.id, [], {"t.take": Want(live=10)})
        shutil.rmtree(runtime / "owner")
        owners = Owners(runtime)
        reclaim = ReclaimService(store, broker, mine, owners, app.handlers, config)
        async with asyncio.TaskGroup() as group:
            group.create_task(reclaim.run(stop))
            await until(lambda: _is(mine.id in owners.ids()))
            assert [row["owner"] for row in await rows(store, "messages")] == [other.id]
            assert other.restore() and owners.is_alive(other.id) and not other.restore()
            await asyncio.sleep(4 * config.poll_s)
            assert [row["owner"] for row in await rows(store, "messages")] == [other.id]
            other.close()
            await until(lambda: _taken_from(store, other.id))
            stop.set()


async def test_messages_of_a_living_neighbour_stay_its_own_when_its_file_is_deleted(
    state: Path,
) -> None:
    app, handled, go_on = App("t"), list[str](), asyncio.Event()

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None:
        handled.append(event.id)
        await go_on.wait()

    async with opened(state) as store:
        one, other = (build(store, state, app) for _ in range(2))
        async with running(one):
            await publish(store, 3)
            await until(lambda: _is(len(handled) == 3))
            for path in (runtime_of(state) / "owner").iterdir():
                if path.name == one.owner.id:
                    path.unlink()
            async with running(other):
                for _ in range(3):
                    assert await other.reclaim.run_once() == 0
                go_on.set()
                await until(lambda: _is(one.consumer.handled_count == 3))
        assert len(handled) == 3


async def _taken_from(store: Store, owner_id: str) -> bool:
    return [row["owner"] for row in await rows(store, "messages")] != [owner_id]


async def test_claims_of_a_hanging_process_are_taken_back_when_they_expire(state: Path) -> None:
    """Alive, but it renews nothing: what it was running has used up an attempt, the rest not."""
    app = App("t")

    @app.on("thing.done", retries=5)
    async def take(event: Event, ctx: EventContext) -> None:
        raise AssertionError("nobody handles here")

    async with opened(state) as store:
        runtime = runtime_of(state)
        hanging, mine = (Owner.register(runtime, name=name) for name in ("hanging", "mine"))
        broker = StoreBroker(store, claim_timeout_s=0.1)
        await broker.register({"t.take": "thing.done"})
        await publish(store, 2)
        await broker.relay(100)
        claimed = await broker.exchange(hanging.id, [], {"t.take": Want(live=10)})
        hanging.begin(mark_of("t.take", claimed.messages[0].id))
        reclaim = ReclaimService(store, broker, mine, Owners(runtime), app.handlers, QUICK)
        assert await reclaim.run_once() == 0
        await asyncio.sleep(0.15)
        assert await reclaim.run_once() == 2
        states = [(row["state"], row["attempts"]) for row in await rows(store, "messages")]
        assert states == [("ready", 1), ("ready", 0)]
        assert hanging.id in Owners(runtime).ids()
        hanging.close()
        mine.close()


async def test_claims_are_renewed_while_a_handler_takes_longer_than_they_last(
    state: Path,
) -> None:
    app, calls = App("t"), list[str]()

    @app.on("thing.done")
    async def slow(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        await asyncio.sleep(0.8)

    config = EngineConfig(claim_timeout_s=0.2, poll_s=0.05)
    async with opened(state) as store:
        one, two = build(store, state, app, config), build(store, state, app, config)
        async with running(one), running(two):
            await publish(store, 1)
            await until(lambda: _empty(store))
    assert len(calls) == 1


async def test_messages_of_a_group_nobody_knows_are_deleted_after_retention(
    state: Path,
) -> None:
    async with opened(state) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register({"gone": "thing.done", "kept": "thing.done"})
        await publish(store, 300)
        while (await broker.relay(100)).published:
            pass

        async def age(tx: Tx) -> None:
            await tx.execute("age_group", group="gone", at=clock.now_us() - 7_200_000_000)

        await store.run(age)
        primary = build_primary(store, state, App("p"), engine=EngineConfig(retention_s=3600.0))
        async with leading(primary):
            await until(lambda: _messages(store, 300))
        assert {row["group"] for row in await rows(store, "messages")} == {"kept"}


async def test_group_keeps_the_type_of_a_newer_program_when_an_older_primary_cleans_up(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older = App("t")

    @older.on("old.type")
    async def take(event: Event, ctx: EventContext) -> None:
        raise AssertionError("nobody handles here")

    async with opened(state) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        primary = build_primary(store, state, older, engine=EngineConfig(retention_s=3600.0))
        async with leading(primary):
            await broker.register({"t.take": "thing.done"})
            assert "t.take handles thing.done from now on, before it was old.type" in caplog.text

            async def age(tx: Tx) -> None:
                await tx.execute("age_group", group="t.take", at=clock.now_us() - 7_200_000_000)

            await store.run(age)
            ctx = await primary.leadership.wait(asyncio.Event())
            assert ctx is not None
            assert (await primary.retention.run_once(ctx, asyncio.Event()))["outbox entries"] == 0
        await publish(store, 1)
        await broker.relay(100)
        assert [row["group"] for row in await rows(store, "messages")] == ["t.take"]


async def _is(value: bool) -> bool:
    return value


async def _messages(store: Store, count: int) -> bool:
    return len(await rows(store, "messages")) == count


async def _empty(store: Store) -> bool:
    states = {row["state"] for row in await rows(store, "outbox_states")}
    return states == {"published"} and not await rows(store, "messages")
