"""Runs the application's backfills step by step, on the primary after READY; requests go first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cordata import clock
from cordata.context import BackfillContext, Context, derive_context
from cordata.core.retry import Backoff
from cordata.errors import LeaseLost
from cordata.log import error_places, error_summary, fields, in_request, logger
from cordata.registry import BackfillTask
from cordata.services.handler_call import call, cut_off
from cordata.services.loop import Pace, pause
from cordata.store import Row, new_id

log = logger("cordata.backfill")

#: After failed steps, until one succeeds.
_BACKOFF = Backoff(1.0, 300.0)
_TELL_S = 10.0


class BackfillService:
    """Runs each backfill to its end, one after the other; a failing one lets the others go first.

    The cursor is stored after the step, in another transaction than the step's writes: if the
    process dies in between, the step runs once more.
    """

    name = "backfill"

    def __init__(
        self,
        ctx: Context,
        tasks: Mapping[str, BackfillTask],
        *,
        cut_off_s: float | None = None,
    ) -> None:
        """`cut_off_s` after the stop a running step is cancelled; None: never."""
        self._cut_off_s = cut_off_s
        #: Failed steps since the last successful one.
        self._failures = 0
        self._ctx = ctx
        self._tasks = tasks
        self._current = ""

    def status(self) -> str:
        """For STATUS=."""
        return self._current

    async def run(self, stop: asyncio.Event) -> None:
        """Run what is not done until `stop`. Raises: LeaseLost."""
        async with cut_off(stop, self._cut_off_s, self.name):
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        waiting = list(self._tasks.values())
        while waiting and not stop.is_set():
            task = waiting.pop(0)
            if await self._run_task(task, stop):
                continue
            waiting.append(task)
            self._failures += 1
            await pause(stop, _BACKOFF.delay_s(self._failures))
        self._current = ""
        await stop.wait()

    async def _run_task(self, task: BackfillTask, stop: asyncio.Event) -> bool:
        """Step until done or stopped. Returns False when a step failed."""
        with in_request(new_id(self._ctx.now_us())):
            try:
                await self._step_on(task, stop)
            except (LeaseLost, asyncio.CancelledError):
                raise
            except Exception as caught:
                error = caught.error if isinstance(caught, _Failed) else caught
                log.error(
                    "backfill %s failed with %s at %s; it continues from its cursor later",
                    task.name,
                    error_summary(error),
                    error_places(error),
                    exc_info=error,
                    extra=fields(backfill=task.name),
                )
                return False
        return True

    async def _step_on(self, task: BackfillTask, stop: asyncio.Event) -> None:
        row = await stored_progress(self._ctx, task.name)
        if row is not None and row["done_at"] is not None:
            return
        cursor: str | None = None if row is None else row["cursor"]
        steps = 0 if row is None else int(row["steps"])
        log.info(
            "backfill %s %s", task.name, f"continues after step {steps}" if steps else "begins"
        )
        pace = Pace(self._ctx.store, spacing_s=0.0)
        logged_at = clock.monotonic()
        while not stop.is_set():
            await pace.next(full=True)
            cursor = await self.run_once(task, cursor)
            self._failures = 0
            steps += 1
            self._current = f"backfill {task.name}: {steps} steps"
            if cursor is None:
                log.info("backfill %s is done after %d steps", task.name, steps)
                return
            if clock.monotonic() - logged_at >= _TELL_S:
                logged_at = clock.monotonic()
                log.info("backfill %s: %d steps", task.name, steps)

    async def run_once(self, task: BackfillTask, cursor: str | None) -> str | None:
        """One step, then its cursor. Returns the cursor for the next one, None when done.

        Raises: what the step raised; LeaseLost.
        """
        following: str | None = None

        async def step() -> None:
            nonlocal following
            ctx = derive_context(self._ctx, BackfillContext, batch=task.batch)
            following = await task.run(ctx, cursor)

        error = await call(f"backfill {task.name}", step, timeout_s=task.timeout_s)
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise _Failed(error)

        await self._ctx.store.run(
            lambda tx: tx.execute(
                "backfill.step",
                name=task.name,
                cursor=following,
                done_at=tx.now_us if following is None else None,
            )
        )
        return following


class _Failed(Exception):
    """A step raised `error`, which would end the process, or cancel its task, if it were raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def stored_progress(ctx: Context, name: str) -> Row | None:
    """How far a backfill is: cursor, steps, done_at; None: it has not begun."""
    return await ctx.store.read(lambda tx: tx.fetch_one("backfill.get", name=name))
