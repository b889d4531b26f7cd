"""Harness: one application with a store and a clock; its methods run handlers, requests, jobs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json as json_
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from cordata import clock as wall
from cordata.app import App
from cordata.broker.inspection import DeadLetters, Filter
from cordata.config import Config, Document, build, find_file, open_document
from cordata.config.sections import PathsConfig
from cordata.context import Context, runtime_store
from cordata.context_factory import open_context
from cordata.eventstore import EventStore, NewEvent, StoredEvent
from cordata.eventstore.inspection import Subscriptions, SubscriptionStatus
from cordata.http import AsgiApp
from cordata.log import in_request
from cordata.pool.client.lazy_client import LazyClient
from cordata.services.backfill import BackfillService, stored_progress
from cordata.services.job import JobResult, run_job
from cordata.services.loop import background
from cordata.store import Row, RuntimeStore, Unit, new_id
from cordata.testing.asgi import Mounted, Response
from cordata.testing.delivery import Delivery
from cordata.testing.failure import Failure
from cordata.testing.pool import InlinePool
from cordata.testing.record import DeadLetter, Mail, OutboxEntry
from cordata.testing.store import Clock, TimedStore
from cordata.testing.subscriptions import SubscriptionRunner
from cordata.vault import Vault

P = ParamSpec("P")
T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)
_PAGE = 1000
#: The same in every test, so that test data may contain sealed secrets.
MASTER_KEY = bytes(range(32)).hex().encode()


@asynccontextmanager
async def open_app(
    app: App,
    *,
    now: datetime | None = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    directory: Path | None = None,
    startup: bool = True,
) -> AsyncIterator[Harness]:
    """Context manager: the application, migrated and started up, ready to serve.

    `now`: the time, aware; by default the current time. `config`: sections of cordata.toml, for
    example `{"shop": {"desk": "a@example.com"}}`, a file, or a Config; its directories and the
    environment are ignored. `directory`: the directory of the store, for example pytest's
    `tmp_path`; by default a temporary one. `startup=False`: the `@app.startup` functions are not
    run until `run_startup()`. Secrets are sealed with a fixed master key.

    Raises: ConfigError; what a startup function raises.
    """
    clock = Clock(now or wall.now())
    async with AsyncExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cordata-")))
        directory.mkdir(parents=True, exist_ok=True)
        loaded = dataclasses.replace(_loaded(app, config), paths=_paths(directory))
        opened = await stack.enter_async_context(
            open_context(loaded, _with_queries(app), vault=Vault(MASTER_KEY))
        )
        store = cast(RuntimeStore, TimedStore(runtime_store(opened), clock))
        lazy_client = LazyClient(lambda: InlinePool(app, loaded, clock.now_us))
        stack.push_async_callback(lazy_client.close)
        ctx = msgspec.structs.replace(opened, store=store, lazy_client=lazy_client)
        await store.migrate(ctx.chains)
        harness = Harness(app, ctx, loaded, clock)
        await stack.enter_async_context(harness.opened())
        if startup:
            await harness.run_startup()
        yield harness


def _loaded(app: App, config: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str | Path):
        document = open_document(find_file(config))
    else:
        document = Document(path=None, tables=dict(config or {}))
    return build(document, app.settings_classes, {})


def _paths(directory: Path) -> PathsConfig:
    return PathsConfig(
        state=directory, runtime=directory / "run", credentials=directory / "credentials"
    )


def _with_queries(app: App) -> App:
    """A copy of the application with the test queries; the original is not changed."""
    more = copy.copy(app)
    more.query_packages = [*app.query_packages, "cordata.testing.sql"]
    return more


class Harness:
    """An application in a test; `open_app` makes one."""

    def __init__(self, app: App, ctx: Context, config: Config, clock: Clock) -> None:
        self.app = app
        #: The context that the application's functions receive; `ctx.store` is the store.
        self.ctx = ctx
        #: All failed attempts, oldest first.
        self.failures: list[Failure] = []
        self._clock = clock
        self._delivery = Delivery(ctx, app, config.engine)
        self._subscriptions = SubscriptionRunner(ctx, app, config)
        self._mounted = Mounted(app.mounts, {"cordata": ctx})

    @property
    def now(self) -> datetime:
        """The test's time, aware, UTC. It changes only by `advance`, `move_to` and `drain`."""
        return self._clock.now

    def advance(self, **by: float) -> datetime:
        """Advance the clock; takes the arguments of `timedelta`: `advance(hours=1)`.

        Returns the new time. Nothing runs before `drain`. Raises: ValueError for a negative time.
        """
        self._clock.move_to(self._clock.now_us() + timedelta(**by) // _MICROSECOND)
        return self.now

    def move_to(self, at: datetime) -> None:
        """Advance the clock to `at` (aware). Raises: ValueError if that is in the past."""
        self._clock.move_to(wall.to_us(at))

    async def publish(self, type: str, payload: Mapping[str, Any], **options: Any) -> str:
        """Publish an event, in a transaction of its own; `options` are those of `Tx.publish`.

        Returns its id. `drain` runs its handlers.
        """
        return await self.ctx.run(lambda tx: tx.publish(type, payload, **options))

    async def drain(self, *, within: timedelta | None = None, raising: bool = True) -> int:
        """Handle all due events, also those that handlers publish meanwhile.

        Events due later (a retry, a scheduled event) stay. With `within`, events that become due in
        that time are handled, too: the clock advances from one due time to the next, in all by
        `within`. A group handles one message after another, a subscription to the event store one
        event after another, in order.

        Returns the number of attempts. Raises: what a handler raised, after its attempt is settled
        as in a worker (a later `drain` tries it again when it is due); nothing with
        `raising=False`: then see `failures` and `dead_letters()`.
        """
        count, until = 0, self._clock.now_us()
        if within is not None:
            until += within // _MICROSECOND
        while True:
            count += await self._drain_now(raising=raising)
            moments = (await self._delivery.next_at(), await self._subscriptions.next_at())
            due_at = min((at for at in moments if at is not None), default=until + 1)
            if not self._clock.now_us() < due_at <= until:
                break
            self._clock.move_to(due_at)
        self._clock.move_to(until)
        return count

    async def _drain_now(self, *, raising: bool) -> int:
        count, idle = 0, 0
        await self._subscriptions.refresh()
        while idle < 2:
            for step in (self._delivery.step, self._subscriptions.step):
                handled, failure = await step()
                count += handled
                idle = 0 if handled else idle + 1
                if failure is not None:
                    self.failures.append(failure)
                    if raising:
                        raise failure.error
        return count

    async def append(
        self, stream: str, type: str, payload: Mapping[str, Any], *, expected: int | None = None
    ) -> int:
        """Append an event to a stream of the event store, in a transaction of its own.

        Returns its version. `drain` runs subscriptions. Raises: WrongExpectedVersion.
        """
        event = NewEvent(type=type, payload=payload)
        return await self.ctx.run(
            lambda tx: EventStore(tx).append(stream, [event], expected=expected)
        )

    async def stream(self, name: str) -> Sequence[StoredEvent]:
        """The events of a stream, in order; the first 500."""
        page = await self.ctx.store.read(lambda tx: EventStore(tx).read(name, limit=500))
        return page.events

    async def subscription(self, name: str) -> SubscriptionStatus:
        """The progress of a subscription to the event store, and its errors.

        Raises: KeyError if there is none of this name.
        """
        status = await Subscriptions(self.ctx.store).status(name)
        if status is None:
            raise KeyError(name)
        return status

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        body: bytes = b"",
    ) -> Response:
        """Send one request to the mounted applications; `target` is `/path?query`, quoted.

        The mounted applications start (ASGI lifespan) at the first one and stop with the harness.
        Raises: what the application raised, which a worker answers with 500.
        """
        heads = dict(headers or {})
        if json is not None:
            heads.setdefault("content-type", "application/json")
            body = json_.dumps(json).encode()
        with in_request(new_id(self.ctx.now_us())):
            return await self._mounted.request(method, target, headers=heads, body=body)

    @property
    def asgi(self) -> AsgiApp:
        """The mounted applications as one ASGI application, for an HTTP client of your own:
        `httpx.AsyncClient(transport=httpx.ASGITransport(harness.asgi), base_url="http://test")`.
        """
        return self._mounted.serve

    async def run_startup(self) -> None:
        """Run the `@app.startup` functions. Raises: what they raise."""
        for startup in self.app.startups:
            await startup(self.ctx)

    async def run_job(
        self,
        name: str,
        *,
        scope: str | None = None,
        period: str | None = None,
        force: bool = False,
    ) -> JobResult:
        """Run a job for all that is due, as `cordata job NAME` does; with `scope` and `period` only
        that run, due or not. Returns the runs that `ran`, and those that were `done` before.

        Raises: what the job raised; its run is stored as failed, and due again at the next call.
        """
        task, errors = self.app.jobs[name], list[Exception]()

        async def watched(ctx: Context, scope: str, period: str) -> None:
            try:
                await task.run(ctx, scope, period)
            except Exception as error:
                error.add_note(f"in job {name}, scope {scope!r}, period {period!r}")
                errors.append(error)
                raise

        result = await run_job(
            self.ctx,
            msgspec.structs.replace(task, run=watched),
            scope=scope,
            period=period,
            force=force,
            now=self.now,
        )
        if errors:
            raise errors[0]
        return result

    async def run_backfill(self, name: str, *, steps: int | None = None) -> int:
        """Run a backfill from its stored cursor to its end, or `steps` steps of it.

        Returns the number of steps that ran. Raises: what a step raised.
        """
        task = self.app.backfills[name]
        service = BackfillService(self.ctx, {name: task})
        row = await stored_progress(self.ctx, name)
        if row is not None and row["done_at"] is not None:
            return 0
        cursor, taken = None if row is None else row["cursor"], 0
        while steps is None or taken < steps:
            cursor = await service.run_once(task, cursor)
            taken += 1
            if cursor is None:
                break
        return taken

    async def run_periodic(self, name: str) -> None:
        """Run an `@app.every` function once, by its name. Raises: what it raises."""
        tasks = {task.name: task for task in self.app.periodics}
        await tasks[name].run(self.ctx)

    def pool_crashes(self, command: str, *, times: int = 1) -> None:
        """In the next `times` calls of a pool command, simulate the crash of its process."""
        pool = self.ctx.pool
        assert isinstance(pool, InlinePool)
        pool.crash(command, times)

    async def run(self, unit: Unit[T]) -> T:
        """Run a unit of work, as `Context.run`."""
        return await self.ctx.run(unit)

    async def fetch_all(self, query: str, /, **params: object) -> list[Row]:
        """The rows of a named query of the application."""
        return await self.ctx.store.read(lambda tx: tx.fetch_all(query, **params))

    async def fetch_one(self, query: str, /, **params: object) -> Row | None:
        """The first row of a named query of the application, or None."""
        rows = await self.fetch_all(query, **params)
        return rows[0] if rows else None

    async def outbox(self, type: str | None = None) -> Sequence[OutboxEntry]:
        """All published events, or those of a type, in the order of publishing."""
        rows = await self.fetch_all("testing.outbox", type=type)
        return [OutboxEntry.from_row(row) for row in rows]

    async def mails(self) -> Sequence[Mail]:
        """All mails that the application wrote, in order; none is sent."""
        return [Mail.from_row(row) for row in await self.fetch_all("testing.mails")]

    async def dead_letters(self, group: str | None = None) -> Sequence[DeadLetter]:
        """The dead letters of all groups, or of one, oldest first."""
        letters = DeadLetters(self.ctx.store)
        page = await letters.page(Filter(group=group), limit=_PAGE)
        found = []
        for one in reversed(page.items):
            found += await letters.find(one.event_id, group=one.group)
        return [DeadLetter.of(letter) for letter in found]

    async def replay_dead_letters(self, group: str | None = None) -> int:
        """Return dead letters to their groups, as `cordata dlq replay`. Returns the number."""
        return await DeadLetters(self.ctx.store).replay(Filter(group=group))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Harness]:
        """Entered by `open_app`: registers groups; at the end stops the mounted applications."""
        await self._delivery.register()
        await self._subscriptions.register()
        async with background(self._mounted.live()):
            try:
                yield self
            finally:
                await self._mounted.close()
                self._subscriptions.close()


def async_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator: run a coroutine test on a new event loop of the kind that workers use.

    pytest's fixtures work. Not needed with pytest-asyncio or anyio.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from cordata.wiring.event_loop import uvloop_runner

        with uvloop_runner() as runner:
            runner.run(test(*args, **kwargs))

    return run
