"""Jobs: each due run once whoever calls, dead runs taken over, failures kept apart."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.engine.children import child
from tests.integration.engine.parts import context_of, opened, rows
from tests.integration.job.job import call
from tests.processes import joined

from cordata import events
from cordata.app import App
from cordata.context import Context
from cordata.errors import TransientError
from cordata.process import all_processes
from cordata.registry import JobTask
from cordata.services.job import JobResult, run_job
from cordata.store import Store, Tx

PROCESS = "tests.integration.job.job"
ALL = {f"{scope} {day}" for scope in ("hotel-a", "hotel-b") for day in ("d1", "d2", "d3")}


async def effects(state: Path) -> Counter[str]:
    async with opened(state, migrate=False) as store:
        return Counter(row["event_id"] for row in await rows(store, "effects"))


async def test_every_missed_period_of_every_scope_runs_once_when_called_twice(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cordata")
    async with opened(state):
        pass
    first, second = await call(state), await call(state)
    assert (len(first.ran), first.exit_code) == (6, 0)
    assert (len(second.ran), len(second.done), second.exit_code) == (0, 6, 0)
    assert await effects(state) == Counter(ALL)
    ran = [r for r in caplog.records if getattr(r, "MESSAGE_ID", "") == events.JOB_RAN]
    assert len(ran) == 6


async def test_missed_and_failed_days_are_caught_up_when_a_job_says_nothing_of_what_is_due(
    state: Path,
) -> None:
    app, ran, failing = App("j"), list[str](), {"2026-02-03"}

    @app.job("daily")
    async def daily(ctx: Context, scope: str, period: str) -> None:
        if period in failing:
            raise ValueError("cannot")
        ran.append(period)

    async with opened(state) as store:
        for day in (1, 1, 4, 5):
            await run_job(
                context_of(store),
                app.jobs["daily"],
                now=datetime(2026, 2, day, 8, tzinfo=UTC),
            )
            if day == 4:
                assert ran == ["2026-02-01", "2026-02-02", "2026-02-04"]
                failing.clear()
    assert ran[3:] == ["2026-02-03", "2026-02-05"]


async def test_scope_and_period_narrow_what_runs(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    assert len((await call(tmp_path, scope="hotel-a")).ran) == 3
    assert len((await call(tmp_path, period="d1")).ran) == 1
    assert len((await call(tmp_path, scope="hotel-z", period="d9")).ran) == 1
    assert (await call(tmp_path, scope="unknown")).exit_code == 0


async def test_done_run_runs_again_when_forced(state: Path) -> None:
    async with opened(state):
        pass
    await call(state)
    again = await call(state, scope="hotel-a", period="d1", force=True)
    assert len(again.ran) == 1
    assert (await effects(state))["hotel-a d1"] == 2


async def test_failing_run_does_not_keep_others_from_running_and_is_tried_again(
    state: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(state):
        pass
    monkeypatch.setenv("FAIL_AT", "hotel-b d1")
    first = await call(state)
    assert (len(first.ran), [r.scope for r in first.failed]) == (5, ["hotel-b"])
    assert first.exit_code == 1
    failed = [r for r in caplog.records if getattr(r, "MESSAGE_ID", "") == events.JOB_FAILED]
    assert len(failed) == 1 and "cannot" not in failed[0].getMessage()
    assert failed[0].__dict__["ALERT_IDS"] == "hotel-b"
    monkeypatch.delenv("FAIL_AT")
    second = await call(state)
    assert (len(second.ran), second.exit_code) == (1, 0)


async def test_exit_code_says_whether_another_try_soon_makes_sense(state: Path) -> None:
    app, errors = App("k"), [TransientError("away"), ValueError("cannot")]

    async def two(ctx: Context, now: datetime) -> list[tuple[str, str]]:
        return [("a", "p"), ("b", "p")]

    @app.job("two", due=two)
    async def fail(ctx: Context, scope: str, period: str) -> None:
        if errors:
            raise errors.pop(0)

    async with opened(state) as store:
        both = await run(store, app.jobs["two"])
        assert (len(both.failed), both.exit_code) == (2, 69)
        errors.append(ValueError("cannot"))
        one = await run(store, app.jobs["two"])
        assert (len(one.failed), one.exit_code) == (1, 1)


async def test_run_is_busy_while_another_process_has_it(state: Path) -> None:
    async with opened(state) as store:
        await joined(store, "other")
        await claim_for(store, "other")
    result = await call(state)
    assert (len(result.ran), len(result.busy), result.exit_code) == (5, 1, 75)
    async with opened(state) as store:
        await (await joined(store, "other")).leave()
    result = await call(state)
    assert (len(result.ran), len(result.done), result.exit_code) == (1, 5, 0)


async def test_eight_callers_at_once_run_each_due_run_once(state: Path) -> None:
    async with opened(state), AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(child(PROCESS, state)) for _ in range(8)]
        codes = Counter([await caller.ended() for caller in callers])
    assert set(codes) <= {0, 75}
    assert codes[0] >= 1
    assert await effects(state) == Counter(ALL)


async def test_run_of_a_killed_process_is_taken_over_by_the_next_call(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(state):
        pass
    monkeypatch.setenv("DIE_AT", "hotel-a d2")
    async with child(PROCESS, state) as victim:
        assert await victim.ended() == -signal.SIGKILL
    monkeypatch.delenv("DIE_AT")
    result = await call(state)
    assert (len(result.ran), len(result.done), result.exit_code) == (4, 2, 0)
    assert set(await effects(state)) == ALL


async def test_claim_is_kept_while_a_run_takes_long_and_lost_when_taken_over(
    state: Path,
) -> None:
    job = App("k")
    cancelled = asyncio.Event()

    @job.job("slow", process_lease_s=3.0)
    async def slow(ctx: Context, scope: str, period: str) -> None:
        await asyncio.sleep(3.5)
        result = await run(store, job.jobs["slow"])
        assert len(result.busy) == 1  # renewed, though it takes longer than its claim
        await steal(store)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with opened(state) as store:
        result = await run(store, job.jobs["slow"])
    assert cancelled.is_set()
    assert len(result.failed) == 1


async def test_lease_is_renewed_when_a_call_has_many_short_runs(tmp_path: Path) -> None:
    job, leases = App("k"), set[int]()

    async def many(ctx: Context, now: datetime) -> list[tuple[str, str]]:
        return [("", f"p{number}") for number in range(100)]

    @job.job("short", due=many, process_lease_s=3.0)
    async def short(ctx: Context, scope: str, period: str) -> None:
        """Each is shorter than the time until the renewal, which a busy machine delays."""
        if len(leases) < 2:
            await asyncio.sleep(0.2)
            leases.update(one.expires_at for one in await all_processes(store))

    async with opened(tmp_path) as store:
        assert len((await run(store, job.jobs["short"])).ran) == 100
    assert len(leases) > 1


async def run(store: Store, task: JobTask) -> JobResult:
    return await run_job(context_of(store), task)


async def claim_for(store: Store, owner: str) -> None:
    async def unit(tx: Tx) -> None:
        await tx.execute(
            "job.claim",
            job="report",
            scope="hotel-a",
            period="d1",
            owner=owner,
            now_us=tx.now_us,
            force=0,
            dead="",
        )

    await store.run(unit)


async def steal(store: Store) -> None:
    async def unit(tx: Tx) -> None:
        await tx.execute("steal_jobs")

    await store.run(unit)
