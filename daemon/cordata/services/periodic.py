"""Runs the application's `@app.every` functions, on the primary only, concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cordata.context import Context
from cordata.errors import LeaseLost
from cordata.log import error_places, error_summary, fields, in_request, logger
from cordata.registry import PeriodicTask
from cordata.services.handler_call import call, cut_off
from cordata.services.loop import pause
from cordata.store import new_id

log = logger("cordata.periodic")


class PeriodicService:
    """Runs each task at once, then `seconds` after each end of it, so it never overlaps itself. A
    run that fails or takes too long is logged.
    """

    name = "periodic"

    def __init__(
        self,
        ctx: Context,
        tasks: Sequence[PeriodicTask],
        *,
        cut_off_s: float | None = None,
    ) -> None:
        """`cut_off_s` after the stop a running task is cancelled; None: never."""
        self._cut_off_s = cut_off_s
        self._ctx = ctx
        self._tasks = tasks

    async def run(self, stop: asyncio.Event) -> None:
        """Run the tasks until `stop`; a running one ends first. Raises: LeaseLost."""
        async with cut_off(stop, self._cut_off_s, self.name):
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for task in self._tasks:
                    group.create_task(self._repeat(task, stop), name=task.name)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await stop.wait()

    async def _repeat(self, task: PeriodicTask, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.run_once(task)
            await pause(stop, task.seconds)

    async def run_once(self, task: PeriodicTask) -> bool:
        """One run of one task. Returns whether it succeeded. Raises: LeaseLost."""
        with in_request(new_id(self._ctx.now_us())):
            error = await call(task.name, task.run, self._ctx, timeout_s=task.timeout_s)
            if isinstance(error, LeaseLost):
                raise error
            if error is not None:
                log.error(
                    "%s failed with %s at %s",
                    task.name,
                    error_summary(error),
                    error_places(error),
                    exc_info=error,
                    extra=fields(task=task.name),
                )
        return error is None
