"""A worker on Redis: what it has in hand beside the streams, and what it does for others."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import publish, rows, runtime_of, until
from tests.integration.redis.parts import broker_of, on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.app import App
from cordata.broker import Owner, Want
from cordata.config.sections import EngineConfig
from cordata.context import EventContext
from cordata.core.event import Event


async def test_claims_in_the_store_are_renewed_when_a_dead_process_held_more(
    tmp_path: Path, redis: RedisServer
) -> None:
    """What is taken back for others says nothing about what is in hand."""
    use(tmp_path, redis.url)
    app, begun, go_on = App("t"), asyncio.Event(), asyncio.Event()

    @app.on("thing.done", key=True)
    async def take(event: Event, ctx: EventContext) -> None:
        begun.set()
        await go_on.wait()

    config = EngineConfig(claim_timeout_s=0.3, poll_s=0.05)
    async with on_redis(tmp_path) as parts:
        await parts.broker.register({"t.take": "thing.done"}, keyed=["t.take"])
        for n in range(40):
            await publish(parts.store, 1, key=str(n))
        await parts.relay_all()
        dead = Owner.register(runtime_of(tmp_path), name="dead")
        with closing(broker_of(parts.store, redis.url)) as other:
            claimed = await other.exchange(dead.id, [], {"t.take": Want(live=100)})
            assert len(claimed.messages) == 40
            dead.close()
            engine = build(parts.store, tmp_path, app, config)
            async with running(engine):
                try:
                    await asyncio.wait_for(begun.wait(), 10)
                    await asyncio.sleep(4 * config.claim_timeout_s)
                    assert (await other.owners())[engine.owner.id] is False
                finally:
                    go_on.set()


async def test_backfill_in_the_store_goes_on_when_another_group_has_no_place_free(
    tmp_path: Path, redis: RedisServer
) -> None:
    """Nobody knows whether the other one's stream has something, and it has no use for it."""
    use(tmp_path, redis.url)
    app, begun, go_on, done = App("t"), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.on("thing.slow", concurrency=1)
    async def slow(event: Event, ctx: EventContext) -> None:
        begun.set()
        await go_on.wait()

    @app.on("thing.done", key=True)
    async def take(event: Event, ctx: EventContext) -> None:
        done.set()

    async with on_redis(tmp_path) as parts, running(build(parts.store, tmp_path, app)):
        await publish(parts.store, 1, type_="thing.slow")
        with suppress(TimeoutError):
            await asyncio.wait_for(begun.wait(), 10)
            await publish(parts.store, 1, key="x", lane="backfill")
            await asyncio.wait_for(done.wait(), 10)
        in_time = done.is_set()
        go_on.set()
    assert in_time


async def test_backfill_in_a_stream_is_handled_to_its_end_when_nothing_live_comes(
    tmp_path: Path, redis: RedisServer
) -> None:
    """What waits for live events passes it by while there is no room for more of it."""
    use(tmp_path, redis.url)
    app, handled = App("t"), Counter[str]()

    @app.on("thing.done", concurrency=4)
    async def take(event: Event, ctx: EventContext) -> None:
        await asyncio.sleep(0.002)
        handled[event.id] += 1

    async def count_is(count: int) -> bool:
        return len(handled) == count

    async with on_redis(tmp_path) as parts, running(build(parts.store, tmp_path, app)):
        await publish(parts.store, 300, lane="backfill")
        await until(lambda: count_is(300), timeout_s=8.0)
        for number in (301, 302):  # waited for again, beside what is live
            await publish(parts.store, 1, lane="backfill")
            await until(lambda n=number: count_is(n), timeout_s=4.0)  # type: ignore[misc]
        await publish(parts.store, 1)
        await until(lambda: count_is(303), timeout_s=4.0)
    assert set(handled.values()) == {1}


async def test_live_events_go_first_when_the_stream_is_full_of_backfill(
    tmp_path: Path, redis: RedisServer
) -> None:
    use(tmp_path, redis.url)
    app, order = App("t"), list[str]()

    @app.on("thing.done", concurrency=4)
    async def take(event: Event, ctx: EventContext) -> None:
        await asyncio.sleep(0.01)
        order.append("live" if "live" in event.headers else "backfill")

    async with on_redis(tmp_path) as parts, running(build(parts.store, tmp_path, app)):
        await publish(parts.store, 300, lane="backfill")
        await until(lambda: _is(len(order) > 20))
        await publish(parts.store, 20, headers={"live": "1"})
        await until(lambda: _is(order.count("live") == 20), timeout_s=8.0)
        assert len(order) < 200
        await until(lambda: _is(len(order) == 320), timeout_s=8.0)


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


async def _is(value: bool) -> bool:
    return value
