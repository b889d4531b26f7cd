"""Handlers that do what no handler should: each is its message's failure, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.engine.children import Child, child
from tests.integration.engine.engine import QUICK, build, running
from tests.integration.engine.parts import known, opened, publish, rows, until
from tests.integration.engine.wild import app as wild_app

from cordata.app import App
from cordata.context import Event, EventContext
from cordata.store import Store, Tx

WORKER = "tests.integration.engine.wild"


@pytest.mark.parametrize(
    "error",
    [
        GeneratorExit(),
        KeyboardInterrupt(),
        SystemExit(3),
        asyncio.CancelledError(),
        BaseExceptionGroup("", [SystemExit(3)]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_attempts_count_and_others_are_handled_when_a_unit_raises_anything(
    state: Path, error: BaseException
) -> None:
    app, done = App("t"), list[str]()

    @app.on("thing.done", retries=1)
    async def wild(event: Event, ctx: EventContext) -> None:
        async def unit(tx: Tx) -> None:
            await tx.execute("add_effect", event_id=event.id, owner="", at=1)
            if event.payload["n"] == 0:
                raise error

        await ctx.run(unit)
        done.append(event.id)

    async with opened(state) as store, running(build(store, state, app)):
        ids = await publish(store, 6)
        await until(lambda: _are(store, ["dead"]))
        assert sorted(done) == sorted(ids[1:])
        assert {row["event_id"] for row in await rows(store, "effects")} == set(ids[1:])
        (message,) = await rows(store, "messages")
        assert message["attempts"] == 2
        assert type(error).__name__ in message["history"]


async def test_attempts_count_when_a_handler_cancels_itself_as_the_loop_of_the_service_wakes(
    state: Path,
) -> None:
    app, calls = App("t"), list[str]()

    @app.on("thing.done", retries=1, concurrency=2)
    async def suicidal(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        time.sleep(0.15)  # the service's own sleep is over, which cancels its task for a moment
        _own_task().cancel()
        await asyncio.sleep(0)

    config = replace(QUICK, poll_s=0.1)
    async with opened(state) as store, running(build(store, state, app, config)):
        ids = await publish(store, 4)
        await until(lambda: _are(store, ["dead"] * 4))
        assert sorted(calls) == sorted(ids * 2)
        assert all("CancelledError" in row["history"] for row in await rows(store, "messages"))


async def test_places_stay_when_a_handler_is_cancelled_after_its_end(state: Path) -> None:
    app, tasks = App("t"), list[asyncio.Task[object]]()

    @app.on("thing.done", retries=0, concurrency=1)
    async def late(event: Event, ctx: EventContext) -> None:
        tasks.append(_own_task())
        _own_task().cancel()  # and awaits nothing any more

    async with opened(state) as store, running(build(store, state, app)):
        for count in (1, 2, 3):
            await publish(store, 1)
            await until(lambda count=count: len(tasks) == count)  # type: ignore[misc]
            for task in tasks:
                task.cancel()
        await until(lambda: _are(store, []))


async def test_place_of_background_work_stays_when_a_handler_is_cancelled_after_its_end(
    state: Path,
) -> None:
    """Its slot gives the loop away then."""
    app, calls = App("t"), list[str]()

    @app.on("thing.done", retries=0, concurrency=1)
    async def late(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        asyncio.get_running_loop().call_soon(_own_task().cancel)

    async with opened(state) as store, running(build(store, state, app)):
        for count in (1, 2, 3):
            await publish(store, 1, priority=-1)
            await until(lambda count=count: len(calls) == count)  # type: ignore[misc]
        await until(lambda: _are(store, []))


async def test_one_line_names_the_handler_when_it_swallows_its_cancellation(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, go = App("t"), asyncio.Event()

    @app.on("thing.done", retries=0, timeout_s=0.1)
    async def stubborn(event: Event, ctx: EventContext) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    caplog.set_level(logging.WARNING, "cordata.engine")
    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: "swallows its cancellation" in caplog.text)
        go.set()
        await until(lambda: _are(store, []))
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("t.stubborn: the handler goes on although its 0.1 s were over")


async def test_timeout_is_told_with_the_place_where_the_handler_waited(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("t")

    @app.on("thing.done", retries=0, timeout_s=0.1)
    async def slow(event: Event, ctx: EventContext) -> None:
        await asyncio.sleep(30)

    caplog.set_level(logging.WARNING, "cordata.engine")
    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _are(store, ["dead"]))
    (line,) = [one.getMessage() for one in caplog.records]
    assert "failed with TimeoutError at" in line
    assert "test_wild.py" in line


@pytest.mark.parametrize("how", ["stop", "exit", "cancel"])
async def test_message_is_dead_and_the_others_handled_when_it_ends_every_worker(
    state: Path, how: str
) -> None:
    async with opened(state) as store:
        await known(store, wild_app)
        await store.run(lambda tx: _publish(tx, [{"how": how}]))
        ended = 0
        for _ in range(6):
            async with child(WORKER, state) as worker:
                assert await worker.line() == "up"
                if ended == 0:
                    good = await store.run(lambda tx: _publish(tx, [{}] * 3))
                if await _lives(worker, store, good):
                    assert await worker.stop() == 0
                    break
                ended += 1
        assert ended == 3, "retries=2"
        await until(lambda: _are(store, ["dead"]))
        assert {row["event_id"] for row in await rows(store, "effects")} == set(good)
        (message,) = await rows(store, "messages")
        assert message["attempts"] == 3


async def _lives(worker: Child, store: Store, good: list[str]) -> bool:
    """Whether a worker has come to the end of its work, and not to its own."""

    async def over() -> bool:
        return worker.returncode is not None or await done()

    async def done() -> bool:
        effects = {row["event_id"] for row in await rows(store, "effects")}
        return effects == set(good) and await _are(store, ["dead"])

    await until(over)
    return worker.returncode is None


async def _publish(tx: Tx, payloads: list[dict[str, str]]) -> list[str]:
    return [await tx.publish("thing.wild", payload) for payload in payloads]


async def _are(store: Store, states: list[str]) -> bool:
    return [row["state"] for row in await rows(store, "messages")] == states


def _own_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task
