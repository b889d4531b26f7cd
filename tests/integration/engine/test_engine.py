"""One worker's engine on a real store: delivery, retry, dead letter, stop, test mode."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import known, opened, publish, rows, until

from cordata import log
from cordata.app import App
from cordata.config.sections import EngineConfig
from cordata.context import Event, EventContext
from cordata.errors import PermanentError, StoreUnavailable
from cordata.services.idle_exit import GivenUp
from cordata.store import Store, Tx

REQUEST = "0af7651916cd43dd8448eb211c80319c"


async def test_handler_gets_each_event_once_when_many_are_published(state: Path) -> None:
    app, seen = App("t"), Counter[str]()

    @app.on("thing.done")
    async def count(event: Event, ctx: EventContext) -> None:
        seen[event.id] += 1

    async with opened(state) as store, running(build(store, state, app)):
        ids = await publish(store, 1000)
        await until(lambda: len(seen) == 1000)
        await until(lambda: _empty(store))
        assert seen == Counter(ids)


async def test_event_carries_what_was_published_when_handled(tmp_path: Path) -> None:
    app, got = App("t"), asyncio.get_running_loop().create_future()

    @app.on("thing.done")
    async def take(event: Event, ctx: EventContext) -> None:
        got.set_result((event, ctx.group, ctx.event_id, log.request_id.get()))

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        token = log.request_id.set(REQUEST)
        (event_id,) = await publish(store, 1, key="k", headers={"colour": "red"})
        log.request_id.reset(token)
        event, group, seen_id, request_id = await got
    assert (event.id, event.type, event.key, event.attempt) == (event_id, "thing.done", "k", 1)
    assert event.payload == {"n": 0}
    assert event.headers == {"colour": "red", "request_id": REQUEST}
    assert (group, seen_id, request_id) == ("t.take", event_id, REQUEST)


async def test_worker_lives_when_its_process_is_suspended_before_it_sets_a_timer(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the timer is over when it is set: uvloop gives a Handle then, no TimerHandle."""
    monkeypatch.setattr("cordata.services.consumer.SPACING_S", 0.0)
    app, handled = App("t"), list[str]()

    @app.on("thing.done", concurrency=8)
    async def take(event: Event, ctx: EventContext) -> None:
        handled.append(event.id)

    async with opened(state) as store, running(build(store, state, app)):
        ids = await publish(store, 100)
        await until(lambda: _empty(store))
    assert sorted(handled) == sorted(ids)


async def test_message_is_retried_then_handled_when_handler_fails_twice(state: Path) -> None:
    app, attempts = App("t"), list[int]()

    @app.on("thing.done", retries=5)
    async def flaky(event: Event, ctx: EventContext) -> None:
        attempts.append(event.attempt)
        if event.attempt < 3:
            raise ValueError("not yet")

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: len(attempts) == 3)
        await until(lambda: _empty(store))
    assert attempts == [1, 2, 3]


async def test_message_is_dead_with_its_history_when_retries_are_used_up(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("t")

    @app.on("thing.done", retries=2)
    async def broken(event: Event, ctx: EventContext) -> None:
        raise ValueError(f"cannot read {event.payload}")

    with caplog.at_level(logging.WARNING, "cordata"):
        async with opened(state) as store, running(build(store, state, app)):
            await publish(store, 1)
            await until(lambda: _dead(store))
            (message,) = await rows(store, "messages")
    history = json.loads(message["history"])
    assert [entry["attempt"] for entry in history] == [1, 2, 3]
    assert history[0]["error"].startswith("ValueError: cannot read")
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING", "ERROR"]
    assert "test_engine.py" in caplog.text
    assert "cannot read" not in caplog.text  # it quotes the payload


async def test_message_is_dead_at_once_when_error_is_permanent(tmp_path: Path) -> None:
    app, calls = App("t"), list[str]()

    @app.on("thing.done", retries=5)
    async def refused(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        raise PermanentError("never")

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await publish(store, 1)
        await until(lambda: _dead(store))
    assert len(calls) == 1


async def test_conflict_is_tried_again_and_dead_when_retries_are_used_up(state: Path) -> None:
    app = App("t")

    @app.on("thing.done", retries=2)
    async def collides(event: Event, ctx: EventContext) -> None:
        await ctx.run(lambda tx: tx.publish("thing.else", {}, event_id=event.id))

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _dead(store))
        (message,) = await rows(store, "messages")
    history = json.loads(message["history"])
    assert [entry["attempt"] for entry in history] == [1, 2, 3]
    assert all(entry["error"].startswith("Conflict: ") for entry in history)


@pytest.mark.parametrize("form", ["run", "transaction"])
async def test_events_that_race_for_one_key_are_all_handled(state: Path, form: str) -> None:
    """Pairs in two workers: the second of each finds what the first one has stored."""
    app, answers = App("t"), Counter[str]()

    @app.on("thing.done", retries=5, concurrency=8)
    async def answer_once(event: Event, ctx: EventContext) -> None:
        key = f"pair {event.payload['n'] // 2}"

        async def unit(tx: Tx) -> str:
            async def answer() -> str:
                return await tx.publish("thing.answered", {"key": key})

            return await tx.remembered("t", key, answer, body_hash="")

        if form == "run":
            answers[await ctx.run(unit)] += 1
            return
        async with ctx.transaction() as tx:
            answer_id = await unit(tx)
        answers[answer_id] += 1

    async with opened(state) as one, opened(state, migrate=False) as two:
        async with running(build(one, state, app)), running(build(two, state, app)):
            await publish(one, 80)
            await until(lambda: answers.total() == 80, timeout_s=120)
            await until(lambda: _empty(one))
    assert len(answers) == 40 and set(answers.values()) == {2}


async def test_attempt_is_not_counted_when_the_store_was_away(tmp_path: Path) -> None:
    app, attempts = App("t"), list[int]()

    @app.on("thing.done", retries=0)
    async def unlucky(event: Event, ctx: EventContext) -> None:
        attempts.append(event.attempt)
        if len(attempts) < 3:
            raise StoreUnavailable("full")

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await publish(store, 1)
        await until(lambda: len(attempts) == 3)
        await until(lambda: _empty(store))
    assert attempts == [1, 1, 1]


async def test_attempt_fails_when_handler_takes_too_long(tmp_path: Path) -> None:
    app, attempts = App("t"), list[int]()

    @app.on("thing.done", timeout_s=0.05)
    async def slow(event: Event, ctx: EventContext) -> None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            await asyncio.sleep(60)

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await publish(store, 1)
        await until(lambda: _empty(store))
    assert attempts == [1, 2]


async def test_handlers_run_side_by_side_up_to_their_limit(tmp_path: Path) -> None:
    app, now, most = App("t"), 0, 0

    @app.on("thing.done", concurrency=3)
    async def slow(event: Event, ctx: EventContext) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await publish(store, 30)
        await until(lambda: _empty(store))
    assert most == 3


async def test_effect_happens_once_when_handler_fails_after_its_commit(state: Path) -> None:
    app, calls = App("t"), list[str]()

    @app.on("thing.done")
    async def forgetful(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        async with ctx.transaction() as tx:
            await tx.execute("add_effect", event_id=event.id, owner="", at=tx.now_us)
        raise ValueError("after the commit")

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _empty(store))
        assert len(await rows(store, "effects")) == 1
    assert len(calls) == 1


@pytest.mark.parametrize("error", [PermanentError("no"), StoreUnavailable("gone"), KeyError()])
async def test_message_is_done_when_its_handler_fails_behind_its_effect(
    state: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("t")

    @app.on("thing.done", retries=0)
    async def forgetful(event: Event, ctx: EventContext) -> None:
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="", at=1))
        raise error

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _empty(store))
        assert len(await rows(store, "effects")) == 1
    assert f"failed with {type(error).__name__} at" in caplog.text
    assert "after its effect was committed; it counts as handled" in caplog.text


@pytest.mark.parametrize("together", [False, True])
async def test_second_commit_of_a_message_is_refused(state: Path, together: bool) -> None:
    app = App("t")

    @app.on("thing.done", retries=0)
    async def twice(event: Event, ctx: EventContext) -> None:
        async def unit(tx: Tx) -> None:
            await tx.execute("add_effect", event_id=event.id, owner="", at=tx.now_us)

        if together:
            await asyncio.gather(ctx.run(unit), ctx.run(unit))
        await ctx.run(unit)
        await ctx.run(unit)

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _dead(store))
        (message,) = await rows(store, "messages")
        assert "commits twice for one message" in message["history"]
        await until(lambda: _count(store, "effects", 1))


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [GeneratorExit(), KeyboardInterrupt(), SystemExit(3), Mute(), BaseExceptionGroup("", [Mute()])],
    ids=lambda error: type(error).__name__,
)
async def test_worker_lives_whatever_a_handler_raises(state: Path, error: BaseException) -> None:
    app = App("t")

    @app.on("thing.done", retries=1)
    async def wild(event: Event, ctx: EventContext) -> None:
        raise error

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _dead(store))
        (message,) = await rows(store, "messages")
        assert type(error).__name__ in message["history"]


async def test_place_is_not_lost_when_a_handler_cancels_its_own_task(state: Path) -> None:
    app, calls = App("t"), list[str]()

    @app.on("thing.done", retries=0, concurrency=1)
    async def suicidal(event: Event, ctx: EventContext) -> None:
        calls.append(event.id)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 3)
        await until(lambda: _count(store, "messages", 3))
        await until(lambda: _all_dead(store))
    assert len(calls) == 3


async def _all_dead(store: Store) -> bool:
    return {row["state"] for row in await rows(store, "messages")} == {"dead"}


async def test_commit_that_failed_may_be_tried_again(state: Path) -> None:
    app = App("t")

    @app.on("thing.done", retries=0)
    async def stubborn(event: Event, ctx: EventContext) -> None:
        async def refused(tx: Tx) -> None:
            await tx.execute("add_effect", event_id=event.id, owner="", at=1)
            raise ValueError("no")

        with contextlib.suppress(ValueError):
            await ctx.run(refused)
        await ctx.run(lambda tx: tx.execute("add_effect", event_id=event.id, owner="", at=2))

    async with opened(state) as store, running(build(store, state, app)):
        await publish(store, 1)
        await until(lambda: _empty(store))
        assert [row["at"] for row in await rows(store, "effects")] == [2]


async def test_unbegun_messages_are_given_back_and_begun_ones_finished_when_stopped(
    state: Path,
) -> None:
    app, begun, ended = App("t"), list[str](), list[str]()

    @app.on("thing.done", concurrency=2)
    async def slow(event: Event, ctx: EventContext) -> None:
        begun.append(event.id)
        await asyncio.sleep(0.2)
        ended.append(event.id)

    config = EngineConfig(batch=50, poll_s=0.1)
    async with opened(state) as store:
        async with running(build(store, state, app, config)):
            await publish(store, 50)
            await until(lambda: len(begun) >= 2)
        assert begun == ended
        left = await rows(store, "messages")
        assert len(left) == 50 - len(ended)
        assert {(m["state"], m["attempts"]) for m in left} == {("ready", 0)}


async def test_test_mode_ends_with_an_error_when_something_is_dead(tmp_path: Path) -> None:
    app = App("t")

    @app.on("thing.done", retries=2)
    async def odd(event: Event, ctx: EventContext) -> None:
        if event.payload["n"] == 1:
            raise ValueError("odd")

    config = EngineConfig(retry_first_s=3600.0, retry_max_s=3600.0)
    async with opened(tmp_path) as store:
        await known(store, app)
        await publish(store, 3)
        engine = build(store, tmp_path, app, config)
        async with running(engine), asyncio.timeout(60):
            with pytest.raises(GivenUp):
                await engine.idle_exit.run(asyncio.Event())
        assert engine.consumer.handled_count == 2


async def test_test_mode_handles_what_handlers_publish_and_leaves_what_is_not_due(
    state: Path,
) -> None:
    app, got = App("t"), list[str]()

    @app.on("thing.done")
    async def first(event: Event, ctx: EventContext) -> None:
        async def unit(tx: Tx) -> None:
            await tx.publish("thing.followed", {})

        await ctx.run(unit)

    @app.on("thing.followed")
    async def second(event: Event, ctx: EventContext) -> None:
        got.append(event.id)

    async with opened(state) as store:
        await known(store, app)
        await publish(store, 5)
        await publish(store, 1, delay_s=3600.0)
        engine = build(store, state, app)
        async with running(engine), asyncio.timeout(60):
            await engine.idle_exit.run(asyncio.Event())
        (later,) = await rows(store, "messages")
    assert len(got) == 5
    assert later["state"] == "scheduled"


async def _empty(store: Store) -> bool:
    return not await rows(store, "messages")


async def _dead(store: Store) -> bool:
    return [m["state"] for m in await rows(store, "messages")] == ["dead"]


async def _count(store: Store, query: str, count: int) -> bool:
    return len(await rows(store, query)) == count
