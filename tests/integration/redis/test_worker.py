"""A worker on Redis, which reads streams and the store side by side."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import publish, rows, until
from tests.integration.redis.parts import on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.app import App
from cordata.broker.redis import server
from cordata.broker.redis.broker import RedisBroker
from cordata.context import Event, EventContext
from cordata.core.herd_delay import VAIN_AT_ONCE
from cordata.store import published_topic


async def test_events_of_a_low_priority_delay_nothing_else(
    tmp_path: Path, redis: RedisServer
) -> None:
    """They go through the store, and take a quarter of the places."""
    use(tmp_path, redis.url)
    app, order, over = App("t"), list[str](), False

    @app.on("thing.done", concurrency=4)
    async def take(event: Event, ctx: EventContext) -> None:
        await asyncio.sleep(0.0 if over else 0.01)
        order.append("live" if "live" in event.headers else "low")

    async with on_redis(tmp_path) as parts, running(build(parts.store, tmp_path, app)):
        await publish(parts.store, 800, priority=-1)
        await until(lambda: len(order) > 20)
        await publish(parts.store, 20, headers={"live": "1"})
        await until(lambda: order.count("live") == 20)
        assert len(order) < 500
        over = True
        await until(lambda: len(order) == 820)


async def test_store_and_streams_are_both_read_when_both_bring_events(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    app, handled = App("t"), Counter[str]()

    @app.on("thing.done", retries=3)
    async def take(event: Event, ctx: EventContext) -> None:
        if event.attempt == 1 and event.payload["n"] % 3 == 0:
            raise ValueError("told to")
        handled[event.id] += 1

    @app.on("thing.done", key=True)
    async def in_order(event: Event, ctx: EventContext) -> None:
        handled[event.id] += 1

    async with on_redis(tmp_path) as parts, running(build(parts.store, tmp_path, app)):
        ids = await publish(parts.store, 60, key="x")
        ids += await publish(parts.store, 60)
        await until(lambda: handled.total() == 240)
        assert set(handled) == set(ids) and set(handled.values()) == {2}


async def test_second_commit_is_in_the_dead_letter_though_the_first_one_is_marked(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    app = App("t")

    @app.on("thing.done", retries=0)
    async def twice(event: Event, ctx: EventContext) -> None:
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="", at=1))
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="", at=2))

    async def is_dead() -> bool:
        return [row["state"] for row in await rows(parts.store, "messages")] == ["dead"]

    async with on_redis(tmp_path) as parts, running(build(parts.store, tmp_path, app)):
        await publish(parts.store, 1)
        await until(is_dead)
        assert len(await rows(parts.store, "effects")) == 1


async def test_start_warns_of_nothing_before_the_first_connection_is_made(
    tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    use(tmp_path, redis.url)
    app, handled = App("t"), asyncio.Event()

    @app.on("thing.done", group="take")
    async def take(event: Event, ctx: EventContext) -> None:
        handled.set()

    async with on_redis(tmp_path) as parts:
        await parts.register({"take": "thing.done"})  # so that the start makes no group in Redis
        caplog.clear()
        async with running(build(parts.store, tmp_path, app)):
            await publish(parts.store, 1)
            await handled.wait()
    assert "events wait for Redis" not in caplog.text


async def test_worker_waits_when_it_was_woken_for_events_that_others_relayed(
    tmp_path: Path, redis: RedisServer
) -> None:
    """And no more when it has found one."""
    use(tmp_path, redis.url)
    app, handled = App("t"), asyncio.Event()

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None:
        handled.set()

    async with on_redis(tmp_path) as parts:
        engine = build(parts.store, tmp_path, app)
        async with running(engine):

            def waits() -> bool:
                parts.store.notify(published_topic("thing.done"))
                return engine.consumer._herd.wait_s > 0.0

            await until(waits)
            await publish(parts.store, 1)
            await handled.wait()
            assert engine.consumer._herd.wait_s == 0.0


async def test_full_worker_waits_when_it_was_woken_for_events_that_others_relayed(
    tmp_path: Path, redis: RedisServer
) -> None:
    """It has no room for messages, but relays them for others."""
    use(tmp_path, redis.url)
    app, begun, end = App("t"), asyncio.Event(), asyncio.Event()

    @app.on("thing.done", concurrency=1)
    async def take(event: Event, ctx: EventContext) -> None:
        begun.set()
        await end.wait()

    async with on_redis(tmp_path) as parts:
        engine = build(parts.store, tmp_path, app)
        async with running(engine):
            await publish(parts.store, 1)
            await begun.wait()

            def waits() -> bool:
                parts.store.notify(published_topic("thing.done"))
                return engine.consumer._herd.wait_s > 0.0

            await until(waits)
            end.set()


async def test_worker_looks_at_once_when_no_entry_came_for_a_while(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a wait for entries is no wake-up."""
    monkeypatch.setattr(server, "BLOCK_S", 0.05)
    use(tmp_path, redis.url)
    app, waits = App("t"), 0

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None: ...

    async with on_redis(tmp_path) as parts:
        engine = build(parts.store, tmp_path, app)
        broker = cast(RedisBroker, engine.broker)
        wait_for_entries = broker._server.wait_for_entries

        async def count(*words: Any) -> Any:
            nonlocal waits
            waits += 1
            return await wait_for_entries(*words)

        cast(Any, broker._server).wait_for_entries = count
        async with running(engine):
            await until(lambda: waits > 2 * VAIN_AT_ONCE + 4)
            assert engine.consumer._herd.wait_s == 0.0
