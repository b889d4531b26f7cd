"""App: the registries that an application fills with decorators, and wiring reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, overload

from cordata.config.sections import Config
from cordata.core.naming import GROUP_CHARS, TYPE_CHARS
from cordata.errors import ConfigError
from cordata.registry import (
    MAX_CONCURRENCY,
    MAX_RETRIES,
    MAX_ROWS,
    AsgiApp,
    Backfill,
    BackfillTask,
    Check,
    CommandTask,
    Due,
    Handler,
    HandlerFunction,
    Job,
    JobTask,
    Mount,
    Periodic,
    PeriodicTask,
    Startup,
    check_function,
    check_place,
    place_of,
    wrong_count,
    wrong_seconds,
    wrong_text,
)
from cordata.subscription import Origin, Subscription, SubscriptionFunction

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
#: 200 characters is the longest name that the pool's protocol allows.
_COMMAND_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_.:/-]{0,199}\Z")
#: The runtime's own TOML sections, which an application cannot declare.
_RUNTIME_SECTIONS = frozenset(section.name for section in fields(Config))


class App:
    """One application: its HTTP mounts, event handlers, commands, jobs and tasks of the primary.

    Each registration is checked when it is made: a mistake raises at import and names its cause.
    """

    def __init__(self, name: str) -> None:
        """`name` is the component name of its migrations and the prefix of its consumer groups.

        Raises: ConfigError when the name is not valid.
        """
        if not _NAME.match(name) or name == "cordata":
            raise ConfigError(
                f"App({name!r}): not a name for an application",
                hint="use lower-case letters, digits, - and _; the name cordata is reserved",
            )
        self.name = name
        self.migration_package: str | None = None
        self.query_packages: list[str] = []
        self.handlers: list[Handler] = []
        #: Event types for other applications: this App may have no group for them.
        self.published: set[str] = set()
        self.startups: list[Startup] = []
        self.checks: list[Check] = []
        self.backfills: dict[str, BackfillTask] = {}
        self.jobs: dict[str, JobTask] = {}
        self.periodics: list[PeriodicTask] = []
        self.mounts: list[Mount] = []
        self.settings_classes: dict[str, type[Any]] = {}
        #: Subscriptions to the event store, by name.
        self.subscriptions: dict[str, Subscription] = {}
        #: Commands of the pool, by name.
        self.commands: dict[str, CommandTask] = {}
        #: `module:function` of each function that a child of the pool runs once before its first
        #: call, in this order.
        self.child_inits: list[str] = []

    def settings(self, section: str) -> Callable[[type[S]], type[S]]:
        """Declare a frozen dataclass as the type of the TOML section `[section]`.

        The loaded value is `ctx.settings[section]`. Unknown keys are errors, as in every section.
        """

        def register(cls: type[S]) -> type[S]:
            if section in self.settings_classes:
                raise ConfigError(f"section [{section}] is declared twice")
            if section in _RUNTIME_SECTIONS:
                raise ConfigError(f"section [{section}] is the runtime's own")
            if not is_dataclass(cls):
                raise ConfigError(f"section [{section}]: {cls.__name__} is not a dataclass")
            self.settings_classes[section] = cls
            return cls

        return register

    def publishes(self, *types: str) -> None:
        """Name event types that the App publishes for other applications.

        For any other type that no group handles, a worker logs a warning, once for each type: most
        often the name is misspelt.
        """
        self.published.update(types)

    def migrations(self, package: str) -> None:
        """Declare the App's migrations: `<package>/migrations/NNNN_name.sql`, from 0001 on, for
        both databases, or `<package>/<dialect>/migrations/` (see docs/develop/migrations.md).

        A migration only adds, since older code runs on the new tables during an upgrade. The number
        of one that removes something starts the next thousand (`1000_name.sql`): older code does
        not start on such tables.

        The primary applies pending migrations before it runs anything else of the App. Raises:
        ConfigError when the App has a chain already, since two files could have the same number.
        """
        if self.migration_package is not None:
            raise ConfigError(
                f"migrations({package!r}): the App has migrations in {self.migration_package!r}",
                hint="one App has one chain; put the files into one folder",
            )
        self.migration_package = package

    def queries(self, package: str) -> None:
        """Add named SQL: blocks that begin with a line `-- name: NAME`, parameters as `:parameter`.

        `<package>/*.sql` is for both stores, `<package>/<dialect>/*.sql` for statements that
        differ. A process reads the files when it opens the store; a name that occurs twice raises
        ConfigError then.
        """
        self.query_packages.append(package)

    def on(
        self,
        type: str,
        *,
        retries: int = 5,
        concurrency: int | None = None,
        timeout_s: float = 60.0,
        group: str | None = None,
        key: bool = False,
        batch: bool = False,
    ) -> Callable[[HandlerFunction], HandlerFunction]:
        """Handle each event of a type in one worker at a time, at least once.

        A handler that raises, or takes longer than `timeout_s` seconds, is called again after a
        growing delay, at most `retries` times. After the last attempt, or at once after a
        PermanentError, the message becomes a dead letter. An attempt that fails with
        StoreUnavailable is not counted.

        `concurrency`: how many handlers run at once in one worker (None: `[engine] concurrency`).
        Events with a priority below 0 use at most a quarter of these, but at least one, and only
        while no other event of the group waits.

        `key=True`: the group handles events that were published with the same `key` one at a time
        in the whole fleet, in the order in which they were written, whatever their priority. While
        one waits for its next attempt, the later ones of its key wait, too; when it becomes a dead
        letter, they go on. This applies to events published after the group was registered so.

        `batch=True`: units of work that the handler passes to `ctx.run` are batched (see
        `Context.run`).

        `group`: the consumer group, by default `<app>.<function>`. Its name is stored with every
        message: pass the old name when you rename the function. Raises: ConfigError.
        """

        def register(handler: HandlerFunction) -> HandlerFunction:
            check_function(handler, f"on({type!r})", "event", "ctx")
            name = group or f"{self.name}.{handler.__name__}"
            _refuse(
                f"on({type!r})",
                wrong_text("the type", type, TYPE_CHARS),
                wrong_text("group", name, GROUP_CHARS),
                wrong_count("retries", retries, 0, MAX_RETRIES),
                None
                if concurrency is None
                else wrong_count("concurrency", concurrency, 1, MAX_CONCURRENCY),
                wrong_seconds("timeout_s", timeout_s),
            )
            if any(s.group == name for s in self.handlers):
                raise ConfigError(f"consumer group {name!r} is declared twice", hint="pass group=")
            self.handlers.append(
                Handler(
                    type=type,
                    group=name,
                    function=handler,
                    retries=retries,
                    concurrency=concurrency,
                    timeout_s=timeout_s,
                    key=key,
                    batch=batch,
                )
            )
            return handler

        return register

    def subscribe(
        self,
        category: str,
        *,
        from_: Origin = "start",
        partitions: int = 16,
        batch: int | None = None,
        retries: int = 5,
        timeout_s: float = 60.0,
        on_error: Literal["block", "dead"] = "block",
        name: str | None = None,
    ) -> Callable[[SubscriptionFunction], Subscription]:
        """Handle every event of a category, each once, in the order of its stream.

        The workers share the `partitions`. All events of a stream are in one partition, which one
        worker handles at a time, one event after the other. A new subscription begins at `from_`.
        From then on its position is stored under `name`, by default `<app>.<function>`: pass the
        old name when you rename the function. `partitions` is stored with it: another number takes
        effect at the next reset.

        Effects written by `ctx.run()` or `ctx.transaction()` commit together with the position, so
        they happen once. Without them, the position is stored every half second; after a crash the
        events after the stored position are handled again.

        An event that fails, or takes longer than `timeout_s`, is tried again after a growing
        delay, `retries` times; the later events of its partition wait. After the last attempt (or
        at once after a PermanentError) the partition is blocked, with an alert, until
        `cordata subscriptions resume`: a projection that lacks an event would stay wrong. With
        `on_error="dead"` the event becomes a dead letter of the subscription instead, and the
        partition goes on. An attempt that fails with StoreUnavailable is not counted. Raises:
        ConfigError.
        """

        def register(handler: SubscriptionFunction) -> Subscription:
            check_function(handler, f"subscribe({category!r})", "event", "ctx")
            own_name = name or f"{self.name}.{handler.__name__}"
            if own_name in self.subscriptions:
                raise ConfigError(f"subscription {own_name!r} is declared twice", hint="pass name=")
            subscription = self.subscriptions[own_name] = Subscription(
                function=handler,
                name=own_name,
                category=category,
                origin=from_,
                partitions=partitions,
                batch=batch,
                retries=retries,
                timeout_s=timeout_s,
                on_error=on_error,
            )
            return subscription

        return register

    @overload
    def command(
        self,
        name: str,
        *,
        timeout: float | None = None,
        idempotent: bool = False,
        retries: int | None = None,
    ) -> Callable[[F], F]: ...

    @overload
    def command(
        self,
        name: str,
        *,
        at: str,
        timeout: float | None = None,
        idempotent: bool = False,
        retries: int | None = None,
    ) -> None: ...

    def command(
        self,
        name: str,
        *,
        at: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        retries: int | None = None,
    ) -> Callable[[F], F] | None:
        """Register a function that the pool's children run as the command `name`.

        `pool.execute(name, payload)` calls it with the payload, `pool.submit(name, 1, width=2)`
        with these arguments; they are plain values. A parameter named `session` gets the session of
        the call, or None. The return value is the result; a generator gives a stream. The function
        may be a plain one, which may block and compute, or an async one. It runs in a process that
        may be killed at any moment. `cordata.current_call()` returns the call that it handles.

        `timeout`: seconds until the deadline of a call that has none. `idempotent`: the function
        may run more than once; when its process dies, it runs again, up to `retries` times. These
        are the defaults of `ctx.pool`, before those of `[pool]`; a caller may override them.

        A child imports the modules of its commands, and nothing else of the application. So keep
        commands in modules of their own, and name them: with
        `app.command("render", at="shop.pdf:render")` only the children import `shop.pdf`. The
        decorator takes a function at the top level of a module. Raises: ConfigError.
        """
        if not isinstance(name, str):  # a decorator without its parentheses
            what = getattr(name, "__name__", type(name).__name__)
            hint = f'write @app.command("{what}"), with the name in parentheses'
            raise ConfigError(f"command: the first argument must be a name, not {what}", hint=hint)
        where = f"command({name!r})"
        if not _COMMAND_NAME.match(name):
            raise ConfigError(
                f"{where}: not a name for a command",
                hint="use a letter, then letters, digits and _ . : / -, at most 200 characters",
            )
        if timeout is not None:
            _refuse(where, wrong_seconds("timeout", timeout))
        if retries is not None:
            _refuse(where, wrong_count("retries", retries, 0, 100))

        def add(at: str, function: Callable[..., Any] | None) -> None:
            if name in self.commands:
                raise ConfigError(f"command {name!r} is declared twice")
            self.commands[name] = CommandTask(
                name=name,
                at=at,
                function=function,
                timeout_s=timeout,
                idempotent=idempotent,
                retries=retries,
            )

        if at is not None:
            add(check_place(at, where), None)
            return None

        def register(function: F) -> F:
            add(place_of(function, where, takes_arguments=True), function)
            return function

        return register

    @overload
    def child_init(self, function: F) -> F: ...

    @overload
    def child_init(self, *, at: str) -> None: ...

    def child_init(self, function: F | None = None, *, at: str | None = None) -> F | None:
        """Run a function without arguments, sync or async, once in each child before its first
        call: to load a model or open a connection. A child takes no call before all have returned.

        A decorator, or `app.child_init(at="shop.pdf:load_fonts")`, as for a command. When the
        function raises, the child ends, and another one is started after a pause. Raises:
        ConfigError.
        """
        if (function is None) == (at is None):
            raise ConfigError("child_init: pass either a function or at=")
        place = place_of(function, "child_init") if at is None else check_place(at, "child_init")
        if place in self.child_inits:
            raise ConfigError(f"child_init: {place} is declared twice")
        self.child_inits.append(place)
        return function

    def startup(self, function: Startup) -> Startup:
        """Run on the primary after the migrations and before READY; an error stops the start."""
        check_function(function, "startup", "ctx")
        self.startups.append(function)
        return function

    def check(self, function: Check) -> Check:
        """Register a check for `cordata doctor` and `cordata config check`, of what the file alone
        does not show.

        It is called if the store exists, only reads, and returns a sentence for each problem, with
        what to do behind a semicolon: "hotel X has no address; run `shop hotel set X`".
        """
        check_function(function, "check", "ctx")
        self.checks.append(function)
        return function

    def backfill(
        self, name: str, *, batch: int = 500, timeout_s: float = 300.0
    ) -> Callable[[Backfill], Backfill]:
        """Run on the primary after READY: called with the stored cursor (None at first) until it
        returns None. Each call is one small step of `batch` rows (`ctx.batch`). The cursor that it
        returns is stored, so that a restart resumes there. A finished backfill never runs again
        under its name. A step that fails, or takes longer than `timeout_s`, is tried again later.
        """
        _refuse(
            f"backfill({name!r})",
            wrong_text("the name", name, GROUP_CHARS),
            wrong_count("batch", batch, 1, MAX_ROWS),
            wrong_seconds("timeout_s", timeout_s),
        )

        def register(run: Backfill) -> Backfill:
            if name in self.backfills:
                raise ConfigError(f"backfill {name!r} is declared twice")
            check_function(run, f"backfill({name!r})", "ctx", "cursor")
            self.backfills[name] = BackfillTask(
                name=name, run=run, batch=batch, timeout_s=timeout_s
            )
            return run

        return register

    def job(
        self, name: str, *, due: Due | None = None, process_lease_s: float = 300.0
    ) -> Callable[[Job], Job]:
        """Run by `cordata job NAME`, once per (job, scope, period) in the whole fleet.

        `due` returns the (scope, period) pairs that are due. Without it the job is due once for
        each day in UTC, with scope "" and period YYYY-MM-DD, and days that it missed come first.
        `process_lease_s`, as that of `[engine]`: a process that has not renewed its process lease
        for this time counts as dead, and the next call takes over its run.
        """

        def register(run: Job) -> Job:
            if name in self.jobs:
                raise ConfigError(f"job {name!r} is declared twice")
            if not _NAME.match(name):
                raise ConfigError(f"job({name!r}): use lower-case letters, digits, - and _ only")
            _refuse(f"job({name!r})", wrong_seconds("process_lease_s", process_lease_s))
            check_function(run, f"job({name!r})", "ctx", "scope", "period")
            if due is not None:
                check_function(due, f"job({name!r}, due=)", "ctx", "now")
            self.jobs[name] = JobTask(name=name, run=run, due=due, process_lease_s=process_lease_s)
            return run

        return register

    def every(self, *, seconds: float, timeout_s: float = 300.0) -> Callable[[Periodic], Periodic]:
        """Run on the primary only, `seconds` after the end of the previous run.

        A run that takes longer than `timeout_s` is cancelled and logged; the next one is due as
        after any other.
        """
        _refuse(
            "every()",
            wrong_seconds("seconds", seconds),
            wrong_seconds("timeout_s", timeout_s),
        )

        def register(run: Periodic) -> Periodic:
            check_function(run, "every", "ctx")
            self.periodics.append(
                PeriodicTask(name=run.__name__, run=run, seconds=seconds, timeout_s=timeout_s)
            )
            return run

        return register

    def mount(
        self,
        prefix: str,
        app: AsgiApp,
        *,
        logged_segments: int | None = None,
        error_text: str | None = None,
    ) -> None:
        """Serve an ASGI application below `prefix` ("/api"; "" for everything).

        The longest prefix wins. The application finds the runtime's Context in
        `scope["state"]["cordata"]` (Starlette: `request.state.cordata`).

        `logged_segments`: for paths that contain secrets. The log shows this many segments below
        the prefix, and "..." for the rest. Without it, the log leaves out only segments of 20
        characters or more that contain a digit.

        `error_text`: for protocols with their own error format. The HTTP server's own errors (400,
        408, 413, 431, 500, 503, 504) are then a line of plain text that begins with it, not JSON.
        """
        if not callable(app):
            raise ConfigError(f"mount {prefix!r}: {type(app).__name__} is not an ASGI application")
        if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
            raise ConfigError(f"mount prefix {prefix!r} must start with / and not end with it")
        if any(m.prefix == prefix for m in self.mounts):
            raise ConfigError(f"mount prefix {prefix!r} is used twice")
        if logged_segments is not None and logged_segments < 0:
            raise ConfigError(f"mount {prefix!r}: logged_segments must not be negative")
        if error_text is not None and not error_text.isprintable():
            raise ConfigError(f"mount {prefix!r}: error_text must be printable")
        self.mounts.append(
            Mount(prefix=prefix, app=app, logged_segments=logged_segments, error_text=error_text)
        )

    def groups_of(self, type: str) -> list[str]:
        """The consumer groups that get events of a type."""
        return [s.group for s in self.handlers if s.type == type]


def _refuse(where: str, *problems: str | None) -> None:
    """Raises: ConfigError with all problems that are not None, if there are any."""
    if found := [problem for problem in problems if problem is not None]:
        raise ConfigError(f"{where}: {'; '.join(found)}")
