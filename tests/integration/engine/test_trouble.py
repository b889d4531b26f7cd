"""The engine when the store is away, a process hangs, or a group is gone."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from tests.integration.engine.engine import QUICK, build, running
from tests.integration.engine.parts import (
    context_of,
    opened,
    publish,
    registered,
    rows,
    until,
)
from tests.integration.primary.primary import build as build_primary
from tests.integration.primary.primary import running as leading
from tests.integration.redis.parts import PromptBroker, on_redis
from tests.integration.redis.stores import use as use_redis
from tests.processes import joined
from tests.servers.redis import RedisServer

from cordata import clock, events
from cordata.app import App
from cordata.broker import Claimed, ClaimLimit, ClaimLimits, MessageId, Outcome, Queue
from cordata.broker.group import Group
from cordata.broker.inspection import remove_group
from cordata.broker.redis.broker import RedisBroker
from cordata.config.sections import EngineConfig, MailConfig
from cordata.context import Event, EventContext
from cordata.errors import StoreFull, StoreUnavailable
from cordata.metrics.backlog import read_backlog
from cordata.process import ProcessLease, this_process
from cordata.services import consumer, process_lease
from cordata.services.consumer import ConsumerService
from cordata.services.process_lease import ProcessLeaseService
from cordata.services.retention import RetentionService
from cordata.services.unhandled_event import AbsentGroupService
from cordata.store import Store, Unit

T = TypeVar("T")
TAKE = Group("t.take", "thing.done")


def queue_of(store: Store, owner: str) -> Queue:
    return Queue(store, owner=owner, retries={"t.take": 5})


class FullStore:
    """A store whose disk is full while `full` is set; nor can it be read while `absent` is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.full = self.absent = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Unit[T], **options: Any) -> T:
        if self.full:
            self.refused += 1
            raise StoreFull()
        return await self._store.run(unit, **options)

    async def read(self, unit: Unit[T], **options: Any) -> T:
        if self.absent:
            raise StoreUnavailable("absent")
        return await self._store.read(unit, **options)


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
            await until(lambda: away.refused >= 3)
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
            await until(lambda: away.refused >= 2)
            away.full = False
            await until(lambda: _empty(store))
    assert len(calls) == 1


async def test_handlers_end_at_the_stop_when_the_store_is_away(
    tmp_path: Path, redis: RedisServer
) -> None:
    """Also if the worker has read an entry that it would have to look up first."""
    use_redis(tmp_path, redis.url)
    app, begun, end = App("t"), asyncio.Event(), asyncio.Event()

    @app.on("thing.done", concurrency=2)
    async def take(event: Event, ctx: EventContext) -> None:
        begun.set()
        await end.wait()

    async with on_redis(tmp_path) as parts, opened(tmp_path) as store:
        away = FullStore(store)
        engine = build(cast(Store, away), tmp_path, app)
        broker = cast(RedisBroker, engine.broker)

        async def bring_back() -> None:
            await until(lambda: broker._consumer._is_stopping)
            away.full = away.absent = False
            end.set()

        async with asyncio.TaskGroup() as tasks:
            async with running(engine):
                await publish(parts.store, 1)
                await begun.wait()
                # From now on any entry may have been handled before Redis lost data.
                broker._consumer.state = replace(broker._consumer.state, recheck_to=2**62)
                broker._look_deadline = float("inf")
                away.full = away.absent = True
                await publish(parts.store, 1)
                other = cast(PromptBroker, await parts.process("other"))
                other.relays = True  # as a worker does, which wakes the engine
                await other.settle_and_claim((), {})
                await until(lambda: bool(broker._consumer._doubtful))
                tasks.create_task(bring_back())
        assert engine.consumer.handled_count == 1
        assert [row["state"] for row in await rows(store, "messages")] == ["ready"]


async def test_engine_stops_and_another_goes_on_when_the_disk_stays_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_SETTLE_S", 0.3)
    monkeypatch.setattr(process_lease, "_GRACE_S", 0.3)
    app = App("t")
    calls = list[str]()

    config = replace(QUICK, process_lease_s=2.0, poll_s=0.1)  # it could not say that it left
    async with opened(tmp_path) as store:
        away = FullStore(store)

        @app.on("thing.done", retries=1)
        async def take(event: Event, ctx: EventContext) -> None:
            calls.append(event.id)
            away.full = len(calls) == 1

        async with asyncio.timeout(60.0):
            async with running(build(cast(Store, away), tmp_path, app, config)):
                ids = await publish(store, 1)
                await until(lambda: away.full)
        away.full = False
        async with running(build(cast(Store, away), tmp_path, app, config)):
            await until(lambda: _empty(store))
    assert calls == ids * 2


async def test_membership_goes_on_when_the_process_has_no_descriptor_left(tmp_path: Path) -> None:
    class Exhausted(Queue):
        asked = 0

        async def give_back_orphans(self, held: Collection[MessageId]) -> None:
            self.asked += 1
            if self.asked > 1:
                raise OSError(errno.EMFILE, "Too many open files")

    async with opened(tmp_path) as store:
        queue = Exhausted(store, owner="mine", retries={})
        mine = await joined(store, "mine", lease_s=0.1)
        config = EngineConfig(process_lease_s=0.1, poll_s=0.05)
        process_lease = ProcessLeaseService(store, queue, mine, [TAKE], config, held=set)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(process_lease.run(stop))
            await until(lambda: queue.asked >= 3)
            stop.set()


async def test_message_is_held_while_its_result_is_being_stored(tmp_path: Path) -> None:
    """Else the next two renewals of the lease would give it back, as nobody's."""

    class Slow(Queue):
        settling, go_on = asyncio.Event(), asyncio.Event()

        async def settle_and_claim(
            self, outcomes: Sequence[Outcome], limits: ClaimLimits, *, suspect_allowed: bool = False
        ) -> Claimed:
            if outcomes:
                self.settling.set()
                await self.go_on.wait()
            return await super().settle_and_claim(outcomes, limits, suspect_allowed=suspect_allowed)

    app = App("t")

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None:
        pass

    async with opened(tmp_path) as store:
        await registered(store, {"t.take": "thing.done"})
        ids = await publish(store, 1)
        queue, stop = Slow(store, owner="me", retries={}), asyncio.Event()
        service = ConsumerService(context_of(store), queue, app.handlers, QUICK, owner="me")
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(stop))
            await queue.settling.wait()
            held = service.held_ids()
            queue.go_on.set()
            await until(lambda: _empty(store))
            stop.set()
    assert held == {(ids[0], "t.take")}


async def test_claims_of_a_hanging_process_are_taken_back_when_its_lease_expires(
    state: Path,
) -> None:
    """Alive, but it renews nothing."""
    async with opened(state) as store:
        mine = await joined(store, "mine")
        await registered(store, {"t.take": "thing.done"})
        await joined(store, "hanging")
        await publish(store, 2)
        queue = queue_of(store, "hanging")
        assert len((await queue.settle_and_claim([], {"t.take": ClaimLimit(10, 10)})).messages) == 2
        process_lease = ProcessLeaseService(
            store, queue_of(store, "mine"), mine, [TAKE], QUICK, held=set
        )
        assert await process_lease.run_once() == 0
        await joined(store, "hanging", lease_s=-1.0)
        assert await process_lease.run_once() == 2
        states = [(r["state"], r["attempts"], r["owner"]) for r in await rows(store, "messages")]
        assert states == [("ready", 0, None)] * 2


async def test_claims_of_the_dead_are_taken_back_as_soon_as_a_worker_has_waited_after_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_lease, "_GRACE_S", 0.3)
    rarely = replace(QUICK, poll_s=3600.0, process_lease_s=7200.0)
    async with opened(tmp_path) as store:
        await registered(store, {"t.take": "thing.done"})
        await joined(store, "dead", lease_s=-1.0)
        await publish(store, 1)
        queue = queue_of(store, "dead")
        assert (await queue.settle_and_claim([], {"t.take": ClaimLimit(10, 10)})).messages
        async with running(build(store, tmp_path, App("t"), rarely)):
            await until(lambda: _is_given_back(store))


async def _is_given_back(store: Store) -> bool:
    return all(row["state"] != "claimed" for row in await rows(store, "messages"))


async def test_claims_of_the_living_stay_theirs_when_a_worker_started_while_the_disk_was_full(
    tmp_path: Path,
) -> None:
    """Nobody could renew, so their leases are over; but they are about to."""
    async with opened(tmp_path) as store:
        await registered(store, {"t.take": "thing.done"})
        await joined(store, "living", lease_s=-1.0)
        await publish(store, 1)
        living = queue_of(store, "living")
        assert (await living.settle_and_claim([], {"t.take": ClaimLimit(10, 10)})).messages
        away = FullStore(store)
        away.full = True
        queue = queue_of(store, "mine")
        mine = ProcessLease(cast(Store, away), this_process("mine"), lease_s=60.0)
        service = ProcessLeaseService(cast(Store, away), queue, mine, [TAKE], QUICK, held=set)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(stop))
            await until(lambda: away.refused >= 2)
            away.full = False
            await service.ready.wait()
            assert await service.run_once() == 0
            stop.set()
        [row] = await rows(store, "messages")
        assert (row["state"], row["owner"], row["suspect"]) == ("claimed", "living", 0)


async def test_operator_is_told_of_a_message_that_is_dead_because_processes_died_of_it(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(state) as store:
        await registered(store, {"t.take": "thing.done"})
        await joined(store, "dead")
        [event_id] = await publish(store, 1)
        deadly = Queue(store, owner="dead", retries={"t.take": 0})
        assert (await deadly.settle_and_claim([], {"t.take": ClaimLimit(10, 10)})).messages
        other = Queue(store, owner="mine", retries={"t.take": 0})
        assert await other.reclaim("dead", is_dead=True) == 1
        assert [row["state"] for row in await rows(store, "messages")] == ["dead"]
    [record] = [one for one in caplog.records if one.levelno == logging.ERROR]
    told = record.__dict__
    assert (told["MESSAGE_ID"], told["EVENT_ID"]) == (events.MESSAGE_DEAD, event_id)


async def test_lease_is_renewed_between_dead_processes_when_each_takes_long(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(state) as store:
        mine, queue = await joined(store, "mine"), queue_of(store, "mine")
        for number in range(3):
            await joined(store, f"dead-{number}", lease_s=-1.0)
        service = ProcessLeaseService(store, queue, mine, [], QUICK, held=set)
        renewed, renew = list[str](), mine.renew

        async def count() -> None:
            renewed.append("mine")
            await renew()

        async def take_long(owner: str, *, is_dead: bool) -> int:
            renewed.append(owner)
            service._renewed_deadline = 0.0  # a third of the lease is over
            return 0

        monkeypatch.setattr(mine, "renew", count)
        monkeypatch.setattr(queue, "reclaim", take_long)
        await service.run_once()
        assert renewed == ["mine", "dead-0", "mine", "dead-1", "mine", "dead-2"]


async def test_claims_are_renewed_while_a_handler_takes_longer_than_they_last(
    state: Path,
) -> None:
    app, calls = App("t"), list[str]()

    @app.on("thing.done")
    async def slow(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        await asyncio.sleep(3.5)

    config = EngineConfig(process_lease_s=3.0, poll_s=0.05)
    async with opened(state) as store:
        one, two = build(store, state, app, config), build(store, state, app, config)
        async with running(one), running(two):
            await publish(store, 1)
            await until(lambda: _empty(store))
    assert len(calls) == 1


async def test_messages_of_a_removed_group_are_deleted_and_none_are_added(state: Path) -> None:
    async with opened(state) as store:
        await registered(store, {"gone": "thing.done", "kept": "thing.done"})
        await publish(store, 300)
        assert await remove_group(store, "gone") == 300
        await publish(store, 1)
        assert {row["group"] for row in await rows(store, "messages")} == {"kept"}
        assert [one.ready for one in (await store.read(read_backlog)).groups] == [301]


async def test_group_that_no_process_has_is_reported_once_and_keeps_its_events(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, handled = App("t"), list[str]()

    @app.on("thing.done")
    async def here(event: Event, ctx: EventContext) -> None:
        handled.append(event.id)

    async with opened(state) as store:
        service = AbsentGroupService(store)
        await registered(store, {"t.gone": "thing.done"})
        async with running(build(store, state, app)):
            assert await service.run_once() == []
            at = clock.now_us() - 7_200_000_000
            await store.run(lambda tx: tx.execute("age_group", group="t.gone", at=at))
            for _ in range(2):
                assert await service.run_once() == ["t.gone"]
            await publish(store, 3)
            await until(lambda: len(handled) == 3)
        errors = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert [one.__dict__["MESSAGE_ID"] for one in errors] == [events.GROUP_ABSENT]
        assert "no process has had the consumer group t.gone since" in errors[0].getMessage()
        assert len(await rows(store, "messages")) == 3
        assert await remove_group(store, "t.gone") == 3
        assert await service.run_once() == []


async def test_group_keeps_the_type_of_a_newer_program_when_an_older_primary_leads(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older = App("t")

    @older.on("old.type")
    async def take(event: Event, ctx: EventContext) -> None:
        raise AssertionError("nobody handles here")

    async with opened(state) as store:
        async with leading(build_primary(store, state, older)):
            await registered(store, {"t.take": "thing.done"})
            assert "t.take handles thing.done from now on, before it was old.type" in caplog.text
            engine = EngineConfig(retention_s=3600.0)
            await RetentionService(store, engine, MailConfig()).run_once(asyncio.Event())
        await publish(store, 1)
        assert [row["group"] for row in await rows(store, "messages")] == ["t.take"]


async def _empty(store: Store) -> bool:
    return not await rows(store, "messages")
