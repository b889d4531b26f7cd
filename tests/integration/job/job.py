"""A caller of a job, as the command line is one; `python -m` runs it as a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import uvloop
from tests.integration.engine.parts import context_of, opened

from cordata.app import App
from cordata.context import Context
from cordata.services.job import JobResult, run_job
from cordata.store import Tx

app = App("j")


async def three_days(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """Two scopes, three periods each."""
    return [(scope, day) for day in ("d1", "d2", "d3") for scope in ("hotel-a", "hotel-b")]


@app.job("report", due=three_days, process_lease_s=30.0)
async def report(ctx: Context, scope: str, period: str) -> None:
    """Leave a trace, slowly enough to be met by others, to be killed, or fail."""
    await asyncio.sleep(0.01)

    async def unit(tx: Tx) -> None:
        await tx.execute(
            "add_effect", event_id=f"{scope} {period}", owner=str(os.getpid()), at=tx.now_us
        )

    await ctx.run(unit)
    if os.environ.get("DIE_AT") == f"{scope} {period}":
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("FAIL_AT") == f"{scope} {period}":
        raise ValueError("cannot")


async def call(state: Path, **options: object) -> JobResult:
    """One call of the job."""
    async with opened(state, migrate=False) as store:
        return await run_job(
            context_of(store),
            app.jobs["report"],
            **options,  # type: ignore[arg-type]
        )


if __name__ == "__main__":
    sys.exit(uvloop.run(call(Path(sys.argv[1]))).exit_code)
