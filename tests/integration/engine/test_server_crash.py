"""PostgreSQL dies under the engine: what was not on disk yet is done again, or was settled."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import opened, publish, registered, rows, until
from tests.integration.engine.stores import use
from tests.processes import joined
from tests.servers.postgres import PostgresServer

from cordata.app import App
from cordata.broker import ClaimLimit, Message, Queue
from cordata.config.sections import EngineConfig
from cordata.context import Event, EventContext
from cordata.errors import StoreUnavailable
from cordata.store import Store

_CONFIG = EngineConfig(retry_first_s=0.05, retry_max_s=0.2, process_lease_s=3.0)
#: What need not wait for the disk does not come there by chance, either.
_RARELY = {
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
    "bgwriter_lru_maxpages": "0",
    "autovacuum": "off",
}


def make_app() -> App:
    """Two groups with an effect each, one that keeps the order of keys."""
    app = App("t")

    @app.on("thing.done", concurrency=4)
    async def free(event: Event, ctx: EventContext) -> None:
        await asyncio.sleep(0.002)
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="free", at=1))

    @app.on("thing.done", concurrency=4, key=True)
    async def keyed(event: Event, ctx: EventContext) -> None:
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="keyed", at=1))

    return app


async def _published(store: Store, number: int) -> list[str]:
    with contextlib.suppress(StoreUnavailable):
        return await publish(store, 10, key=f"k{number % 5}")
    return []


async def test_every_effect_is_there_once_when_the_server_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    with PostgresServer() as server, server.database() as url:
        use(tmp_path, url)
        promised: list[str] = []
        async with opened(tmp_path) as one, opened(tmp_path, migrate=False) as two:
            app = make_app()
            first, second = (build(store, tmp_path, app, _CONFIG) for store in (one, two))
            async with running(first), running(second):
                for number in range(60):
                    promised += await _published(one if number % 2 else two, number)
                    if number % 15 == 7:
                        server.kill()
                        server.start()
                await until(lambda: _settled(one), timeout_s=120.0)
            done = Counter((row["event_id"], row["owner"]) for row in await rows(one, "effects"))
        assert set(done.values()) == {1}
        assert {(id, group) for id in promised for group in ("free", "keyed")} <= set(done)


async def _settled(store: Store) -> bool:
    with contextlib.suppress(StoreUnavailable):
        (left,) = await rows(store, "messages_left")
        return bool(left["count"] == 0)
    return False


async def _claim(queue: Queue, group: str) -> list[Message]:
    wants = {group: ClaimLimit(count=10, low=10, run=10)}
    return list((await queue.settle_and_claim([], wants)).messages)


async def test_key_is_nobody_elses_when_the_server_dies_right_after_the_claim(
    tmp_path: Path,
) -> None:
    """Claims without a key, made after it, are taken back by the very crash."""
    with PostgresServer(settings=_RARELY) as server, server.database() as url:
        use(tmp_path, url)
        async with opened(tmp_path) as one, opened(tmp_path, migrate=False) as two:
            mine, others = (
                Queue(store, owner=name, retries={"keyed": 5, "free": 5}, keyed=["keyed"])
                for store, name in ((one, "me"), (two, "other"))
            )
            await registered(one, {"keyed": "in.order", "free": "any"}, keyed=["keyed"])
            await publish(one, 4, type_="in.order", key="k")
            await publish(one, 4, type_="any", key="k")
            assert len(await _claim(mine, "keyed")) == 4
            lost: list[Message] = []
            for _ in range(3):  # by chance the server may write at once, but not each time
                await publish(one, 4, type_="any", key="k")
                assert await _claim(mine, "free")
                server.kill()
                server.start()
                await until(lambda: _answers(two))
                assert await _claim(others, "keyed") == []
                if lost := await _claim(others, "free"):
                    break
            assert lost


async def _answers(store: Store) -> bool:
    with contextlib.suppress(StoreUnavailable):
        await store.run(lambda tx: tx.execute("add_effect", event_id="e", owner="probe", at=1))
        return True
    return False


async def test_no_two_of_a_key_are_handled_at_once_when_the_server_dies_under_handlers(
    tmp_path: Path,
) -> None:
    watch = Watch()
    with PostgresServer(settings=_RARELY) as server, server.database() as url:
        use(tmp_path, url)
        async with opened(tmp_path) as one, opened(tmp_path, migrate=False) as two:
            first, second = (build(store, tmp_path, watch.app, _CONFIG) for store in (one, two))
            async with running(first), running(second):
                for key in "abcd":
                    await publish(one, 2, key=key)
                await until(lambda: watch.has(running=4))
                server.kill()
                server.start()
                await watch.go_on_after(one, 0.5)
                await until(lambda: _settled(one), timeout_s=120.0)
            effects = await rows(one, "effects")
        assert watch.together == []
        done = Counter(row["owner"] for row in effects if row["owner"] != "probe")
        assert done == Counter(dict.fromkeys("abcd", 2))
        assert all(one == sorted(one) for one in watch.order.values())


async def test_no_two_of_a_key_are_handled_at_once_when_claims_expired_while_the_server_was_away(
    tmp_path: Path,
) -> None:
    watch = Watch()
    config = replace(_CONFIG, process_lease_s=1.5, poll_s=0.1)
    with PostgresServer() as server, server.database() as url:
        use(tmp_path, url)
        async with opened(tmp_path) as one, opened(tmp_path, migrate=False) as two:
            first, second = (build(store, tmp_path, watch.app, config) for store in (one, two))
            async with running(first), running(second):
                for key in "abcd":
                    await publish(one, 2, key=key)
                await until(lambda: watch.has(running=4))
                server.kill()
                await asyncio.sleep(3.0)
                server.start()
                await watch.go_on_after(one, 3.0)
                await until(lambda: _settled(one), timeout_s=120.0)
            effects = await rows(one, "effects")
        assert watch.together == []
        done = Counter(row["owner"] for row in effects if row["owner"] != "probe")
        assert done == Counter(dict.fromkeys("abcd", 2))


async def test_claims_of_the_living_stay_theirs_when_a_worker_starts_after_the_server_was_away(
    tmp_path: Path,
) -> None:
    """Nobody could renew, so their leases are over; the new worker has not seen why."""
    with PostgresServer() as server, server.database() as url:
        use(tmp_path, url)
        async with opened(tmp_path) as one:
            await registered(one, {"free": "any"})
            lease = await joined(one, "living", lease_s=1.0)
            await publish(one, 1, type_="any")
            assert await _claim(Queue(one, owner="living", retries={"free": 5}), "free")
            await lease.renew()  # the claim itself did not wait for the disk
            server.kill()
            with pytest.raises(StoreUnavailable):
                async with opened(tmp_path, migrate=False):
                    pass
            await until(lambda: not lease.is_held())
            server.start()
            async with opened(tmp_path, migrate=False) as new:
                engine = build(new, tmp_path, App("t"))
                async with running(engine):
                    assert await engine.process_lease.run_once() == 0
                    found = await rows(new, "messages")
        assert [(row["state"], row["owner"]) for row in found] == [("claimed", "living")]


class Watch:
    """A group that keeps the order of keys, and what was seen of it.

    The handler of the first event of each key ends when it is told to.
    """

    def __init__(self) -> None:
        self.app = App("t")
        self._go_on = asyncio.Event()
        self.running: Counter[str] = Counter()
        #: Keys of which two were handled at once.
        self.together: list[str] = []
        self.order: dict[str, list[int]] = {}

        @self.app.on("thing.done", key=True, retries=50)
        async def keyed(event: Event, ctx: EventContext) -> None:
            key = event.key or ""
            self.running[key] += 1
            if self.running[key] > 1:
                self.together.append(key)
            try:
                if event.payload["n"] == 0 and key in "abcd":
                    await self._go_on.wait()
                add = {"event_id": event.id, "owner": key, "at": 1}
                await ctx.run(lambda tx: tx.execute("add_effect", **add))
                self.order.setdefault(key, []).append(event.payload["n"])
            finally:
                self.running[key] -= 1

    def has(self, *, running: int) -> bool:
        """Whether so many handlers run."""
        return self.running.total() == running

    async def go_on_after(self, store: Store, more_s: float) -> None:
        """Let them end when the engines are at work again, and had the time to go wrong."""

        async def is_published() -> bool:
            with contextlib.suppress(StoreUnavailable):
                await publish(store, 1, key="probe")
                return True
            return False

        await until(is_published)
        await until(lambda: "probe" in self.order)
        await asyncio.sleep(more_s)
        self._go_on.set()
