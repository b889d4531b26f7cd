"""Several workers as processes: each message once, whatever is killed or stopped."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.integration.engine.children import Child, child
from tests.integration.engine.engine import app
from tests.integration.engine.parts import WAIT_S, known, opened, rows, until

from cordata import clock
from cordata.store import Store, Tx

WORKER = "tests.integration.engine.engine"


async def publish_each(store: Store, payloads: list[dict[str, object]]) -> list[str]:
    async def unit(tx: Tx) -> list[str]:
        return [await tx.publish("thing.done", payload) for payload in payloads]

    return await store.run(unit)


async def effects(store: Store) -> Counter[str]:
    return Counter(row["event_id"] for row in await rows(store, "effects"))


async def all_done(store: Store, ids: list[str]) -> bool:
    done = await effects(store)
    return len(done) == len(ids) and not await rows(store, "messages")


async def test_each_message_is_handled_once_when_two_workers_share_them(state: Path) -> None:
    async with opened(state) as store, child(WORKER, state) as one:
        async with child(WORKER, state) as two:
            assert [await one.line(), await two.line()] == ["up", "up"]
            ids = await publish_each(store, [{"slow_s": 0.002} for _ in range(1000)])
            await until(lambda: all_done(store, ids))
            assert await effects(store) == Counter(ids)
            owners = {row["owner"] for row in await rows(store, "effects")}
            assert owners == {str(one.pid), str(two.pid)}
            assert [await one.stop(), await two.stop()] == [0, 0]


async def test_effect_happens_once_when_worker_dies_between_effect_and_ack(state: Path) -> None:
    async with opened(state) as store, child(WORKER, state) as one:
        async with child(WORKER, state) as two:
            assert [await one.line(), await two.line()] == ["up", "up"]
            ids = await publish_each(store, [{"die": n == 25} for n in range(50)])
            await until(lambda: all_done(store, ids))
            assert await effects(store) == Counter(ids)

            def killed() -> int:
                return [worker.returncode for worker in (one, two)].count(-signal.SIGKILL)

            await until(lambda: killed() == 1)  # which may be told after its effect was seen


async def test_other_worker_takes_over_at_once_when_one_is_killed_in_a_handler(
    state: Path,
) -> None:
    async with opened(state) as store, child(WORKER, state) as one:
        assert await one.line() == "up"
        ids = await publish_each(store, [{"hang": one.pid if n < 4 else 0} for n in range(8)])
        await until(lambda: claimed(store, 4))
        async with child(WORKER, state) as two:
            assert await two.line() == "up"
            await asyncio.sleep(0.3)  # it watches the first one now
            killed_at = clock.now_us()
            one.kill()
            await until(lambda: all_done(store, ids))
            done = await rows(store, "effects")
            taken = min(row["at"] for row in done if row["event_id"] in ids[:4]) - killed_at
            print(f"first message of the dead worker handled after {taken / 1000:.0f} ms")
            assert taken < 1_000_000 * WAIT_S  # its lease lasts 60 s
            assert await effects(store) == Counter(ids)


async def test_only_the_message_that_kills_is_dead_when_it_kills_every_worker(
    state: Path,
) -> None:
    async with opened(state) as store:
        await known(store, app)
        ids = await publish_each(store, [{"kill": n == 10} for n in range(20)])
        for _ in range(10):
            async with child(WORKER, state) as worker:
                assert await worker.line() == "up"
                if await ended_or(worker, lambda: only_dead(store)):
                    assert await worker.stop() == 0
                    break
        (message,) = await rows(store, "messages")
        history = json.loads(message["history"])
        assert (message["state"], message["attempts"]) == ("dead", 4)
        assert [entry["attempt"] for entry in history] == [1, 2, 3, 4]
        assert history[0]["error"].startswith("ProcessDied")
        others = [event_id for n, event_id in enumerate(ids) if n != 10]
        assert await effects(store) == Counter(others)


async def test_nothing_stays_claimed_when_a_worker_stops_under_load(state: Path) -> None:
    async with opened(state) as store, child(WORKER, state) as one:
        assert await one.line() == "up"
        # Half a minute of work for this one, however late the effects are seen.
        slow: dict[str, object] = {"slow_s": 0.3, "slow_in": one.pid}
        ids = await publish_each(store, [slow] * 400)
        await until(lambda: some_effects(store))
        assert await one.stop() == 0
        left = await rows(store, "messages")
        assert {(row["state"], row["attempts"]) for row in left} == {("ready", 0)}
        assert len(left) + len(await effects(store)) == 400
        async with child(WORKER, state) as two:
            await until(lambda: all_done(store, ids))
            assert await effects(store) == Counter(ids)
            assert await two.stop() == 0


async def ended_or(worker: Child, condition: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until the worker has died (False) or the condition holds (True)."""

    async def over() -> bool:
        return worker.returncode is not None or await condition()

    await until(over)
    return worker.returncode is None


async def claimed(store: Store, count: int) -> bool:
    return [row["state"] for row in await rows(store, "messages")].count("claimed") == count


async def only_dead(store: Store) -> bool:
    return [row["state"] for row in await rows(store, "messages")] == ["dead"]


async def some_effects(store: Store) -> bool:
    return bool(await effects(store))
