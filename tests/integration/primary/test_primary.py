"""The primary: election, preparation, singleton work, fencing, takeover."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest
from tests.integration.engine.children import child
from tests.integration.engine.parts import (
    CHAINS,
    WAIT_S,
    context_of,
    opened,
    publish,
    registered,
    rows,
    until,
)
from tests.integration.engine.stores import use
from tests.integration.primary.primary import Primary, build, running

from cordata import clock
from cordata.app import App
from cordata.broker import ClaimLimit, Outcome, Queue
from cordata.broker.inspection import DeadLetters, Filter
from cordata.config.sections import EngineConfig, MailConfig
from cordata.context import BackfillContext, Context, Event, EventContext
from cordata.core.message_state import Verdict
from cordata.core.retry import Backoff
from cordata.errors import LeaseLost
from cordata.services import backfill
from cordata.services.backfill import BackfillService
from cordata.services.retention import RetentionService
from cordata.store import Row, Store, Tx
from cordata.store.postgres.lease import SILENT_S

PROCESS = "tests.integration.primary.primary"
#: A takeover that waits for the end of a silent lease takes longer.
TAKEOVER_US = int(SILENT_S * 1e6)


async def test_primary_migrates_and_runs_startup_functions_before_it_is_ready(
    state: Path,
) -> None:
    app, order = App("p"), list[str]()

    @app.startup
    async def validate(ctx: Context) -> None:
        assert await ctx.store.schema_current(CHAINS)
        order.append("validate")

    @app.startup
    async def warm(ctx: Context) -> None:
        order.append("warm")

    async with opened(state, migrate=False) as store:
        primary = build(store, state, app)
        async with running(primary):
            assert order == ["validate", "warm"]
            assert primary.lease.status().startswith("primary, term ")


async def test_primary_fails_when_a_startup_function_does(tmp_path: Path) -> None:
    app = App("p")

    @app.startup
    async def broken(ctx: Context) -> None:
        raise ValueError("no table")

    async with opened(tmp_path, migrate=False) as store:
        primary = build(store, tmp_path, app)
        with pytest.raises(ValueError, match="no table"):
            await primary.lease.run(asyncio.Event())
        assert not primary.lease.ready.is_set()


async def test_primary_leads_when_a_backup_runs(tmp_path: Path, runtime_database: str) -> None:
    """A new group lacks the events of older transactions: its worker waits for their end."""
    app = App("p")

    @app.on("thing.done", group="late")
    async def handle(event: Event, ctx: EventContext) -> None: ...

    use(tmp_path, runtime_database)
    async with opened(tmp_path) as store:
        with psycopg.connect(runtime_database) as backup:
            backup.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            backup.execute("SELECT FROM message")  # this takes the snapshot
            primary = build(store, tmp_path, app)
            async with asyncio.timeout(WAIT_S), running(primary):
                assert primary.lease.leading


async def test_standby_is_ready_and_idle_while_another_leads(tmp_path: Path) -> None:
    app, runs = App("p"), list[str]()

    @app.every(seconds=0.01)
    async def tick(ctx: Context) -> None:
        runs.append("tick")

    async with opened(tmp_path) as store, opened(tmp_path) as other:
        first, second = build(store, tmp_path, App("p")), build(other, tmp_path, app)
        async with running(first), running(second):
            await asyncio.sleep(0.1)
            assert first.lease.leading
            assert not second.lease.leading
            assert second.lease.status() == "standby"
            assert runs == []


async def test_standby_leads_when_the_first_stops(state: Path) -> None:
    async with opened(state) as store, opened(state) as other:
        first, second = build(store, state, App("p")), build(other, state, App("p"))
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running(first))
            async with running(second):
                await stack.aclose()
                assert not first.lease.leading
                await until(lambda: _leads(second))


async def test_stale_primary_cannot_write_and_ends_when_a_newer_term_exists(
    state: Path,
) -> None:
    app = App("p")
    refused = asyncio.Event()
    written = 0
    before: list[list[Row]] = []

    @app.every(seconds=0.01)
    async def write(ctx: Context) -> None:
        nonlocal written

        async def unit(tx: Tx) -> None:
            await tx.execute("add_effect", event_id="x", owner="old", at=tx.now_us)

        try:
            await ctx.store.run(unit)
        except LeaseLost:
            refused.set()
            raise
        written += 1

    async with opened(state) as store:
        primary = build(store, state, app)
        with pytest.raises(ExceptionGroup) as lost:
            async with running(primary):
                await until(lambda: written > 0)
                # Cancelled at any moment from then on, since the services end by themselves.
                await _bump_term(store, before)
                await asyncio.wait_for(refused.wait(), 60)
                await asyncio.sleep(600)
        assert lost.group_contains(LeaseLost)
        assert await rows(store, "effects") == before[-1]


async def test_solo_transaction_of_a_stale_primary_is_refused(tmp_path: Path) -> None:
    app, got = App("p"), asyncio.get_running_loop().create_future()

    @app.every(seconds=60)
    async def keep(ctx: Context) -> None:
        got.set_result(ctx)

    async with opened(tmp_path) as store:
        with pytest.raises(ExceptionGroup):
            async with running(build(store, tmp_path, app)):
                ctx = await got
                await _bump_term(store)
                with pytest.raises(LeaseLost):
                    async with ctx.transaction() as tx:
                        await tx.execute("add_effect", event_id="x", owner="", at=tx.now_us)
                store.notify("lease")
                await asyncio.sleep(600)  # cancelled: the lease service ends by itself
        assert await rows(store, "effects") == []


async def test_failing_periodic_task_neither_stops_nor_delays_the_others(tmp_path: Path) -> None:
    app, runs, now = App("p"), Counter[str](), 0

    @app.every(seconds=0.01)
    async def bad(ctx: Context) -> None:
        runs["bad"] += 1
        raise ValueError("bad")

    @app.every(seconds=0.01)
    async def good(ctx: Context) -> None:
        nonlocal now
        now += 1
        assert now == 1
        runs["good"] += 1
        await asyncio.sleep(0.01)
        now -= 1

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await until(lambda: runs["bad"] > 3 and runs["good"] > 3)


@pytest.mark.parametrize("how", ["exit", "interrupt", "cancel"])
async def test_primary_lives_whatever_a_periodic_task_or_a_backfill_does(
    tmp_path: Path, how: str
) -> None:
    app, runs = App("p"), Counter[str]()

    async def misbehave() -> None:
        if how == "exit":
            raise SystemExit(3)
        if how == "interrupt":
            raise KeyboardInterrupt
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @app.every(seconds=0.01)
    async def bad(ctx: Context) -> None:
        runs["bad"] += 1
        await misbehave()

    @app.backfill("wild")
    async def step(ctx: Context, cursor: str | None) -> str | None:
        runs["step"] += 1
        if runs["step"] == 1:
            await misbehave()
        return None

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await until(lambda: runs["bad"] > 3 and runs["step"] == 2)


async def test_hanging_periodic_task_is_cancelled_and_runs_again_when_its_time_is_up(
    tmp_path: Path,
) -> None:
    app, runs = App("p"), Counter[str]()

    @app.every(seconds=0.01, timeout_s=0.02)
    async def hang(ctx: Context) -> None:
        runs["begun"] += 1
        await asyncio.Event().wait()

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await until(lambda: runs["begun"] > 2)


async def test_hanging_backfill_step_is_tried_again_from_its_cursor_when_its_time_is_up(
    tmp_path: Path,
) -> None:
    app, cursors = App("p"), list[str | None]()

    @app.backfill("slow", timeout_s=0.5)
    async def step(ctx: Context, cursor: str | None) -> str | None:
        cursors.append(cursor)
        if cursor == "1" and cursors.count("1") == 1:
            await asyncio.Event().wait()
        return "1" if cursor is None else None

    async with opened(tmp_path) as store, running(build(store, tmp_path, app)):
        await until(lambda: cursors == [None, "1", "1"])


async def test_backfill_runs_to_its_end_once_and_never_again(state: Path) -> None:
    app, cursors = App("p"), list[str | None]()

    @app.backfill("hashes", batch=7)
    async def hashes(ctx: BackfillContext, cursor: str | None) -> str | None:
        cursors.append(cursor)
        assert ctx.batch == 7
        if len(cursors) == 2:
            raise ValueError("once")
        return str(int(cursor or 0) + 1) if int(cursor or 0) < 3 else None

    for _ in range(2):
        async with opened(state) as store:
            async with running(build(store, state, app)):
                await until(lambda: len(cursors) >= 5)
    assert cursors == [None, "1", "1", "2", "3"]


async def test_backfill_pauses_briefly_again_when_steps_succeeded_between_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, tries, stop = App("p"), Counter[int](), asyncio.Event()

    @app.backfill("flaky")
    async def flaky(ctx: BackfillContext, cursor: str | None) -> str | None:
        number = int(cursor or 0)
        tries[number] += 1
        if tries[number] == 1:
            raise ValueError("once")
        if number == 15:  # doubled each time, the pauses would add up to minutes
            stop.set()
        return str(number + 1)

    monkeypatch.setattr(backfill, "_BACKOFF", Backoff(0.01, 300.0))
    async with opened(tmp_path) as store, asyncio.timeout(60):
        await BackfillService(context_of(store), app.backfills).run(stop)


async def test_standby_process_takes_over_within_the_bound_when_the_primary_is_killed(
    state: Path,
) -> None:
    async with opened(state) as store, child(PROCESS, state) as first:
        assert (await first.line()).startswith("leads")
        async with child(PROCESS, state) as second:
            assert await second.line() == "standby"
            await until(lambda: _beats_of(store, first.pid))
            killed_at = clock.now_us()
            first.kill()
            word, at = (await second.line()).split()
            assert word == "leads"
            print(f"takeover after {(int(at) - killed_at) / 1000:.0f} ms")
            assert int(at) - killed_at < TAKEOVER_US
            await until(lambda: _beats_of(store, second.pid))
            beats = [row for row in await rows(store, "effects") if row["event_id"] == "beat"]
            changes = [a["owner"] != b["owner"] for a, b in itertools.pairwise(beats)]
            assert sum(changes) == 1  # never two at once
            assert await second.stop() == 0


async def test_backfill_resumes_where_it_was_when_the_primary_is_killed(state: Path) -> None:
    async with opened(state) as store:
        async with child(PROCESS, state) as first:
            await first.line()
            await until(lambda: _steps(store, 10))
            first.kill()
            await first.ended()
        async with child(PROCESS, state) as second:
            await second.line()
            await until(lambda: _steps(store, 40))
            assert await second.stop() == 0
        done = Counter(
            row["event_id"] for row in await rows(store, "effects") if row["event_id"] != "beat"
        )
    assert set(done) == {f"step-{n}" for n in range(40)}
    assert sum(done.values()) <= 41  # the step in hand may have run once more


async def test_retention_deletes_what_is_old_and_spares_what_is_needed(state: Path) -> None:
    async with opened(state) as store:
        engine = EngineConfig(retention_s=3600.0)
        primary = build(store, state, App("p"), engine=engine)
        queue = Queue(store, owner="me", retries={"a": 0})
        old = clock.now_us() - 7_200_000_000
        await publish(store, 600)
        await registered(store, {"a": "thing.done"})
        await publish(store, 601)
        wants = {"a": ClaimLimit(1000, 1000)}
        handled = [
            one for _ in range(3) for one in (await queue.settle_and_claim([], wants)).messages
        ]
        assert len(handled) == 601
        (dead, *others) = handled
        await queue.settle_and_claim(
            [
                Outcome(message=dead, verdict=Verdict.DEAD, history="[]"),
                *(Outcome(message=one, verdict=Verdict.DONE) for one in others),
            ],
            {},
        )
        await publish(store, 3)
        await store.run(lambda tx: tx.execute("age_events", at=old, position=1201))
        async with running(primary):
            await until(lambda: _left(store, events=1 + 3, marks=0))
        assert await DeadLetters(store).drop(Filter()) == 1
        deleted = await RetentionService(store, engine, MailConfig()).run_once(asyncio.Event())
        assert deleted["events"] == 1
        assert await _left(store, events=3, marks=0)


async def test_retention_deletes_old_keys_and_mails_and_no_others(state: Path) -> None:
    engine, mail = EngineConfig(retention_s=3600.0), MailConfig(retention_s=7200.0)
    async with opened(state) as store:
        retention = RetentionService(store, engine, mail)

        async def answer() -> str:
            return "first"

        async def fill(tx: Tx) -> None:
            for key in ("old", "young"):
                await tx.remembered("s", key, answer, body_hash="h")
            for n in range(4):
                await tx.send_mail(to=["a@example.com"], subject=f"{n}", text="")

        async def age(tx: Tx) -> None:
            await tx.execute("age_key", key="old", at=tx.now_us - 3_600_000_001)
            long_ago, ago = tx.now_us - 7_200_000_001, tx.now_us - 7_100_000_000
            await tx.execute("age_mail", subject="0", state="sent", at=long_ago)
            await tx.execute("age_mail", subject="1", state="failed", at=long_ago)
            await tx.execute("age_mail", subject="2", state="pending", at=long_ago)
            await tx.execute("age_mail", subject="3", state="sent", at=ago)

        await store.run(fill)
        await store.run(age)
        deleted = await retention.run_once(asyncio.Event())
        assert (deleted["idempotency keys"], deleted["mails"]) == (1, 2)
        assert [row["key"] for row in await rows(store, "keys_left")] == ["young"]
        assert [row["subject"] for row in await rows(store, "subjects_left")] == ["2", "3"]


async def _bump_term(store: Store, before: list[list[Row]] | None = None) -> None:
    """What another process does when it takes the lease; the lock of this one is still held.

    `before`: gets the effects of that moment.
    """

    async def unit(tx: Tx) -> None:
        await tx.fetch_one("lease.take", holder="other", acquired_at=tx.now_us)
        if before is not None:
            before.append(await tx.fetch_all("effects"))

    await store.run(unit)


def _leads(primary: Primary) -> bool:
    return primary.lease.leading is not None


async def _beats_of(store: Store, pid: int) -> bool:
    found = await rows(store, "effects")
    return any((row["owner"], row["event_id"]) == (str(pid), "beat") for row in found)


async def _steps(store: Store, count: int) -> bool:
    steps = {row["event_id"] for row in await rows(store, "effects")} - {"beat"}
    return len(steps) >= count


async def _left(store: Store, *, events: int, marks: int) -> bool:
    found = [(await rows(store, name))[0]["count"] for name in ("event_count", "handled_count")]
    return found == [events, marks]
