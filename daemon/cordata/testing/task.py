"""Jobs and backfills in a test: the code of the roles, with errors that show."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from cordata.context import Context
from cordata.registry import BackfillTask, JobTask
from cordata.services.backfill import BackfillService
from cordata.services.job import JobResult, run_job
from cordata.services.leadership import Leadership
from cordata.store import Row


async def run_job_now(
    ctx: Context,
    task: JobTask,
    *,
    now: datetime,
    scope: str | None,
    period: str | None,
    force: bool,
) -> JobResult:
    """As `cordata job`. Raises: what the first run that failed raised, after all have run."""
    errors: list[Exception] = []

    async def watched(ctx: Context, scope: str, period: str) -> None:
        try:
            await task.run(ctx, scope, period)
        except Exception as error:
            error.add_note(f"in job {task.name}, scope {scope!r}, period {period!r}")
            errors.append(error)
            raise

    result = await run_job(
        ctx,
        dataclasses.replace(task, run=watched),
        scope=scope,
        period=period,
        force=force,
        now=now,
    )
    if errors:
        raise errors[0]
    return result


async def backfill_to_its_end(ctx: Context, task: BackfillTask, *, steps: int | None) -> int:
    """From the stored cursor on, `steps` steps at most. Returns how many were taken."""
    service = BackfillService(Leadership(), {task.name: task})
    row = await _stored(ctx, task.name)
    if row is not None and row["done_at"] is not None:
        return 0
    cursor, taken = None if row is None else row["cursor"], 0
    while steps is None or taken < steps:
        cursor = await service.run_once(ctx, task, cursor)
        taken += 1
        if cursor is None:
            break
    return taken


async def _stored(ctx: Context, name: str) -> Row | None:
    return await ctx.store.read(lambda tx: tx.fetch_one("backfill.get", name=name))
