"""Runs a job: each due (job, scope, period) once, although several processes may call it.

(no row) ──claim──> running ──> done          claimed again only by --force
                     │   └────> failed        claimed again by the next call
                     └─ its process died, or did not renew: claimed by the next call
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from cordata import clock, events, exit_codes
from cordata.context import Context
from cordata.errors import LeaseLost, StoreUnavailable, TransientError
from cordata.log import error_places, error_summary, fields, in_request, logger
from cordata.process import ProcessLease, all_processes, plain_name, this_process
from cordata.registry import JobTask
from cordata.services.loop import background
from cordata.store import Row, Tx, new_id

log = logger("cordata.job")

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """The key of a run."""

    job: str
    scope: str
    period: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.job, self.scope, self.period) if part)


@dataclass(slots=True, kw_only=True)
class JobResult:
    """The result of one call: each run that was due is in one list."""

    ran: list[Run] = field(default_factory=list)
    failed: list[Run] = field(default_factory=list)
    #: In progress in another living process.
    busy: list[Run] = field(default_factory=list)
    #: Done before, by this or another process.
    done: list[Run] = field(default_factory=list)
    #: Whether one of the failed runs raised a TransientError.
    is_unavailable: bool = False

    @property
    def exit_code(self) -> int:
        """0: all that was due has run, or nothing was; 69: one failed for now; 1: one failed;
        75: one runs elsewhere.
        """
        if self.failed:
            return exit_codes.UNAVAILABLE if self.is_unavailable else exit_codes.FAILED
        return exit_codes.BUSY if self.busy else exit_codes.OK


async def run_job(
    ctx: Context,
    task: JobTask,
    *,
    scope: str | None = None,
    period: str | None = None,
    force: bool = False,
    now: datetime | None = None,
    count: Callable[[str, float], None] | None = None,
) -> JobResult:
    """Run the due runs that no process has done or is running.

    `scope` and `period` together name one run, due or not; one alone filters the due runs. `force`
    also repeats runs that are done. If a run fails, the others still run, and the next call tries
    it again. `count` is called with the outcome ("done", "failed") and the seconds of each run.
    Cancelling (a signal) leaves the current run to the next call.
    """
    process = this_process(f"job-{task.name}")
    lease = ProcessLease(ctx.store, process, lease_s=task.process_lease_s)
    await lease.renew()
    try:
        now = now or clock.from_us(ctx.now_us())
        runs = await _runs(ctx, task, scope, period, now)
        return await _JobRunner(ctx, task, lease, force=force, count=count).run_all(runs)
    finally:
        with contextlib.suppress(StoreUnavailable):  # then the lease expires
            await lease.leave()


async def _runs(
    ctx: Context, task: JobTask, scope: str | None, period: str | None, now: datetime
) -> list[Run]:
    if scope is not None and period is not None:
        return [Run(task.name, scope, period)]
    if task.due is None:
        due: Iterable[tuple[str, str]] = await _days(ctx, task, now)
    else:
        due = await task.due(ctx, now)
    runs = dict.fromkeys(Run(task.name, s, p) for s, p in due)
    return [
        run
        for run in runs
        if (scope is None or run.scope == scope) and (period is None or run.period == period)
    ]


async def _days(ctx: Context, task: JobTask, now: datetime) -> list[tuple[str, str]]:
    """The days that a job without `due` has to run: a failed day is tried until it is done."""

    async def unit(tx: Tx) -> list[tuple[str, bool]]:
        rows = await tx.fetch_all("job.days", job=task.name)
        return [(row["period"], bool(row["done"])) for row in rows]

    known = await ctx.store.read(unit)
    return [("", day) for day in days_owed(known, now.astimezone(UTC).date())]


def days_owed(known: Iterable[tuple[str, bool]], today: date) -> list[str]:
    """The days to run, oldest first: those begun but not done, and all after the last done one.

    `known`: (period, done) of every run so far. Periods that are not days, and future days, were
    run by name and are ignored. A job that never ran has today only.
    """
    begun: set[date] = set()
    last_done: date | None = None
    for period, done in known:
        with contextlib.suppress(ValueError):
            day = date.fromisoformat(period)
            if day > today:
                continue
            if not done:
                begun.add(day)
            elif last_done is None or day > last_done:
                last_done = day
    first = today if last_done is None else last_done + _DAY
    missed = {first + count * _DAY for count in range((today - first).days + 1)}
    return [day.isoformat() for day in sorted(begun | missed)]


async def latest_run(ctx: Context, job: str, scope: str) -> tuple[str, str] | None:
    """Period and state of a scope's run with the last period; None: it has none."""
    row = await ctx.store.read(lambda tx: tx.fetch_one("job.latest", job=job, scope=scope))
    return None if row is None else (row["period"], row["state"])


class _JobRunner:
    def __init__(
        self,
        ctx: Context,
        task: JobTask,
        lease: ProcessLease,
        *,
        force: bool,
        count: Callable[[str, float], None] | None,
    ) -> None:
        self._ctx = ctx
        self._task = task
        self._lease = lease
        self._owner = lease.process.id
        self._force = force
        self._count = count or (lambda outcome, seconds: None)
        self._renew_deadline = self._next_renewal()

    async def run_all(self, runs: Iterable[Run]) -> JobResult:
        result = JobResult()
        for run in runs:
            if clock.monotonic() >= self._renew_deadline:  # many short runs may outlast the lease
                await self._renew_lease()
            with in_request(new_id(self._ctx.now_us())):
                (await self._run(run, result)).append(run)
        return result

    async def _run(self, run: Run, result: JobResult) -> list[Run]:
        """Run one if it can be claimed. Returns the list of the result that it belongs to."""
        if not await self._claim(run):
            row = await self._row(run)
            busy = row is not None and row["state"] == "running"
            return result.busy if busy else result.done
        begun = clock.monotonic()
        try:
            async with background(self._renew(run)):
                await self._task.run(self._ctx, run.scope, run.period)
            await self._finish(run, None)
        except Exception as error:  # noqa: BLE001 - the boundary of one run
            self._count("failed", clock.monotonic() - begun)
            await self._fail(run, error)
            result.is_unavailable |= isinstance(error, TransientError)
            return result.failed
        took_s = clock.monotonic() - begun
        self._count("done", took_s)
        log.info(
            "%s ran in %.1f s",
            run,
            took_s,
            extra=fields(events.JOB_RAN, job=run.job, scope=run.scope, period=run.period),
        )
        return result.ran

    async def _row(self, run: Run) -> Row | None:
        return await self._ctx.store.read(
            lambda tx: tx.fetch_one("job.get", job=run.job, scope=run.scope, period=run.period)
        )

    async def _claim(self, run: Run) -> bool:
        row = await self._row(run)
        holder = row["owner"] if row is not None and row["state"] == "running" else ""
        processes = await all_processes(self._ctx.store) if holder else []
        dead = holder if any(one.id == holder and one.is_gone() for one in processes) else ""

        claimed = await self._ctx.store.run(
            lambda tx: tx.execute(
                "job.claim",
                job=run.job,
                scope=run.scope,
                period=run.period,
                owner=self._owner,
                now_us=tx.now_us,
                force=int(self._force),
                dead=dead,
            )
        )
        if claimed and holder:
            log.warning("%s is taken over from %s, which died", run, plain_name(holder))
        return claimed > 0

    def _next_renewal(self) -> float:
        return clock.monotonic() + self._task.process_lease_s / 3

    async def _renew_lease(self) -> None:
        self._renew_deadline = self._next_renewal()
        await self._lease.renew()

    async def _renew(self, run: Run) -> None:
        """Renew the lease. Raises: LeaseLost when another process has taken the run over."""
        while True:
            await asyncio.sleep(self._renew_deadline - clock.monotonic())
            try:
                await self._renew_lease()
                row = await self._row(run)
            except StoreUnavailable as error:
                log.warning("%s: the process lease was not renewed: %s", run, error)
                continue
            if row is None or row["owner"] != self._owner:
                raise LeaseLost(f"{run} was taken over by another process")

    async def _finish(self, run: Run, error: BaseException | None) -> None:
        is_ours = await self._ctx.store.run(
            lambda tx: tx.execute(
                "job.finish",
                job=run.job,
                scope=run.scope,
                period=run.period,
                owner=self._owner,
                state="failed" if error is not None else "done",
            )
        )
        if error is None and not is_ours:
            raise LeaseLost(f"{run} was taken over by another process")

    async def _fail(self, run: Run, error: Exception) -> None:
        about = {"job": run.job, "scope": run.scope, "period": run.period}
        log.error(
            "%s failed with %s at %s",
            run,
            error_summary(error),
            error_places(error),
            exc_info=error,
            extra=fields(events.JOB_FAILED, **about, alert_ids=run.scope),
        )
        try:
            await self._finish(run, error)
        except StoreUnavailable as unavailable:  # the claim ends with this process
            log.warning("the failure of %s was not stored: %s", run, unavailable)
