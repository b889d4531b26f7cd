"""Builds the role worker@N: HTTP, event handlers and subscriptions, children of the pool."""

from __future__ import annotations

import os
import platform
import socket
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from cordata import __version__, events, exit_codes
from cordata.config import Config
from cordata.config.pool import pool_of_command, pool_of_worker
from cordata.config.sections import HttpConfig
from cordata.context import Context
from cordata.context_factory import (
    broker_passwords,
    command_options,
    metrics_directory,
    pool_directory,
)
from cordata.errors import ConfigError
from cordata.log import fields, logger
from cordata.metrics.file import Series
from cordata.metrics.process import ProcessMetrics, outcomes_by
from cordata.metrics.series import (
    CONNECTIONS,
    HANDLERS,
    IN_FLIGHT,
    POOL_CHILDREN,
    POOL_CHILDREN_READY,
    REDIS_UP,
    context_series,
    http_series,
)
from cordata.registry import Mount
from cordata.runner import Layer, Runner, Service
from cordata.services.schema import SchemaGate
from cordata.services.unavailable import Problem, UnavailableService, open_context_with_retry
from cordata.systemd import Notifier, listen_fds, reexec
from cordata.wiring.role import Role, alerting, cut_off_of, metrics_of, reload_of

if TYPE_CHECKING:
    from cordata.broker import Broker
    from cordata.http import HttpServer
    from cordata.process import ProcessLease
    from cordata.services.pool_child import PoolChildService
    from cordata.services.process_lease import ProcessLeaseService
    from cordata.services.subscription import SubscriptionService

log = logger("cordata.wiring")


async def run_worker(role: Role) -> int:
    """Run a worker: HTTP, engine, pool children. Returns the exit code.

    In test mode it runs without HTTP, until all events are handled.
    """
    settings = role.config.worker_of(role.instance)
    if role.test_mode and "engine" not in settings.services:
        return exit_codes.OK  # no service that ends by itself
    sockets = _http_sockets("http" in settings.services and not role.test_mode)
    name = f"worker@{role.instance}"
    metrics = metrics_of(role.config, name, _series(role))
    with Notifier() as notifier, alerting(role.config, name) as alerts, _exporting(role, name):
        async with open_context_with_retry(
            role.config, role.app, notifier, sockets, metrics
        ) as ctx:
            intake: list[Service] = []
            delivery: list[Service] = [alerts.service(ctx.store)]
            gate = SchemaGate(ctx.store, ctx.chains, notifier)
            problems: list[Problem] = [lambda: gate.error]
            unavailable = UnavailableService(sockets, role.config.http, problems, metrics)
            with ExitStack() as stack:
                http = None
                if sockets:
                    http = _http_server(role, sockets, ctx, unavailable, metrics)
                    intake.append(http)
                membership: list[Service] = []
                if "engine" in settings.services:
                    process_lease = _add_engine(role, ctx, stack, intake, metrics)
                    membership.append(process_lease)
                    problems.append(lambda: process_lease.error)
                child = _pool_child(role) if "pool" in settings.services else None
                if child is not None:
                    if metrics is not None:
                        metrics.watch(POOL_CHILDREN.series(), lambda: child.count)
                        metrics.watch(POOL_CHILDREN_READY.series(), lambda: child.up)
                runner = Runner(
                    [
                        Layer("intake", intake),
                        Layer("children", [child] if child is not None else [], is_awaited=False),
                        Layer("delivery", delivery),
                        Layer("membership", membership),
                        Layer(
                            "stores",
                            [
                                gate,
                                unavailable,
                                *_metrics_services(role, ctx),
                                *role.observers(ctx),
                            ],
                        ),
                    ],
                    role=name,
                    notifier=notifier,
                    stop_timeout_s=settings.stop_timeout_s,
                    reload=reload_of(role, partial(_pass_on, http, child)),
                    tick=metrics.tick if metrics is not None else None,
                )
                code = await runner.run()
                if metrics is not None and code == exit_codes.OK:
                    metrics.end()
                return code


async def run_without_config(config: Config, instance: str, error: ConfigError) -> int:
    """Run a worker whose configuration is invalid: it answers 503, and starts again at a reload.

    While another worker serves, with the configuration from before the mistake, it accepts no
    connections. `config`: the valid sections. Raises: `error` when no socket was passed.
    """
    from cordata.http import ConnectionCounts

    sockets = [entry.sock for entry in listen_fds() if entry.name == "http"]
    if not sockets:
        raise error
    role = f"worker@{instance}"
    counts = ConnectionCounts.open(config.paths.runtime / "http.connections", sockets)
    unavailable = UnavailableService(
        sockets, HttpConfig(), [lambda: None if counts and counts.is_served() else error]
    )
    with Notifier() as notifier, ExitStack() as stack:
        try:
            alerts = stack.enter_context(alerting(config, role))
        except ConfigError as unusable:  # the login of the mail server
            log.error("no alert by mail: %s", unusable)
            alerts = None
        # One record for all mistakes, so that they are one alert.
        text = "\n".join(["the configuration is invalid, requests get 503:", *error.problems])
        hint = error.hint or ""
        log.error("%s", text, extra=fields(events.CONFIG_INVALID, code=error.code, hint=hint))
        if alerts is not None:
            alerts.leave()

        async def reload() -> str:
            await unavailable.release()
            if alerts is not None:
                alerts.end()
            notifier.watchdog()  # the new program sends the next one
            reexec()

        runner = Runner(
            [Layer("intake", [unavailable])],
            role=role,
            notifier=notifier,
            reload=reload,
            state=f"answering 503, the configuration is invalid: {'; '.join(error.problems)}",
        )
        return await runner.run()


def _series(role: Role) -> list[Series]:
    """What this worker counts."""
    app, services = role.app, role.config.worker_of(role.instance).services
    series = context_series(app.commands)
    if "http" in services:
        series += http_series()
    if "engine" in services:
        from cordata.broker.factory import is_store

        for group in (*(one.group for one in app.handlers), *app.subscriptions):
            series += HANDLERS.series(group=group)
        if not is_store(role.config.broker):
            series.append(REDIS_UP.series())
    if "pool" in services and app.commands:
        series += [POOL_CHILDREN.series(), POOL_CHILDREN_READY.series()]
    return series


def _metrics_services(role: Role, ctx: Context) -> list[Service]:
    """The service that Prometheus asks, if it is configured."""
    listen = role.config.metrics.listen
    if not listen or role.test_mode:
        return []
    from cordata.services.local_http import LocalHttpService
    from cordata.services.metrics import MetricsPage

    directory = metrics_directory(role.config)
    build = {
        "version": __version__,
        "python": platform.python_version(),
        "app": role.app.name,
    }
    page = MetricsPage(ctx.store, directory, state=role.config.paths.state, build=build)
    return [LocalHttpService("metrics", page, listen, lock=directory / "lock")]


def _http_server(
    role: Role,
    sockets: list[socket.socket],
    ctx: Context,
    unavailable: UnavailableService,
    metrics: ProcessMetrics | None,
) -> HttpServer:
    from cordata.http import HttpServer, compose

    mounts = _mounts(role)
    server = HttpServer(
        compose({mount.prefix: mount.app for mount in mounts}),
        sockets,
        role.config.http,
        {"cordata": ctx},
        counts_path=role.config.paths.runtime / "http.connections",
        logged_segments={
            mount.prefix: mount.logged_segments
            for mount in mounts
            if mount.logged_segments is not None
        },
        error_texts={
            mount.prefix: mount.error_text for mount in mounts if mount.error_text is not None
        },
        metrics=metrics.http() if metrics is not None else None,
        before=unavailable.release,
        cut_off_s=_cut_off_s(role),
    )
    if metrics is not None:
        metrics.watch(IN_FLIGHT.series(), lambda: server.state.in_flight)
        metrics.watch(CONNECTIONS.series(), lambda: server.state.connection_count)
    return server


def _mounts(role: Role) -> list[Mount]:
    """The mounts to serve: those of the application, and the pool if `[pool] http` lists commands.

    Raises: ConfigError when both have the same prefix.
    """
    mounts, commands = list(role.app.mounts), role.config.pool.http
    if commands:
        from cordata.pool.route import PREFIX, PoolRoute

        if any(mount.prefix == PREFIX for mount in mounts):
            raise ConfigError(f"[pool] http: the application serves {PREFIX} itself")
        mounts.append(Mount(prefix=PREFIX, app=PoolRoute(commands)))
    return mounts


def _pool_child(role: Role) -> PoolChildService | None:
    """The service of the pool's children; None, without an import, if the App has no commands.

    A child has only the commands of its pool, so that clients find the pool by the command.
    """
    if not role.app.commands:
        return None
    from cordata.pool.shared.paths import Place
    from cordata.pool.shared.sessions import SessionStore
    from cordata.pool.shared.spec import ChildSpec
    from cordata.services.pool_child import PoolChildService, limits_of

    config, pool = role.config, role.config.pool
    name = pool_of_worker(config.pools, role.instance)
    commands = {
        command: task
        for command, task in role.app.commands.items()
        if pool_of_command(config.pools, command) == name
    }
    limits, options = limits_of(pool), command_options(role.app)
    sessions = config.paths.state / "pool" / "sessions.db"
    spec = ChildSpec(
        place=Place(role.instance),
        pool=name,
        pools={one: of for of, pool in config.pools.items() for one in pool.workers},
        directory=os.fspath(pool_directory(config) / name),
        path=tuple(sys.path),
        commands={command: task.at for command, task in commands.items()},
        options={command: options[command] for command in commands},
        inits=tuple(role.app.child_inits),
        max_frame_bytes=pool.max_frame_bytes,
        unread_timeout_s=pool.unread_timeout_s,
        sessions=os.fspath(sessions),
        session_limits=limits,
        log_level=config.log.level.upper(),
    )
    return PoolChildService(spec, pool, SessionStore(sessions, limits))


def _pass_on(http: HttpServer | None, child: PoolChildService | None, config: Config) -> None:
    """Pass a reloaded configuration to the parts of this role that use it."""
    if http is not None:
        http.reload(config.http)
    if child is not None:
        child.reload(config.pool, log_level=config.log.level.upper())


def _add_engine(
    role: Role,
    ctx: Context,
    stack: ExitStack,
    intake: list[Service],
    metrics: ProcessMetrics | None,
) -> ProcessLeaseService:
    """Add the services of the engine, which stop with the intake.

    Returns the service of the process lease, which stops after them.
    """
    from cordata.broker.factory import is_store, make_redis_broker
    from cordata.context_factory import groups_of, make_queue
    from cordata.process import ProcessLease, this_process
    from cordata.services.consumer import ConsumerService
    from cordata.services.idle_exit import IdleExitService
    from cordata.services.process_lease import ProcessLeaseService
    from cordata.services.unhandled_event import UnhandledTypeService

    config, handlers = role.config, role.app.handlers
    process = this_process(f"worker-{role.instance}")
    lease = ProcessLease(ctx.store, process, lease_s=config.engine.process_lease_s)
    queue = make_queue(ctx.store, handlers, config.engine, owner=process.id)
    broker: Broker = queue
    prepare = None
    if not is_store(config.broker):
        redis = broker = make_redis_broker(
            config.broker, ctx.store, queue, process, passwords=broker_passwords(config)
        )
        if metrics is not None:
            metrics.watch(REDIS_UP.series(), lambda: float(not redis.status()))
        streamed = {one.group: one.type for one in handlers if not one.key}
        prepare = partial(redis.prepare, streamed)
    stack.callback(broker.close)
    consumer = ConsumerService(
        ctx,
        broker,
        handlers,
        config.engine,
        owner=process.id,
        cut_off_s=_cut_off_s(role),
        metrics=outcomes_by("group", (one.group for one in handlers), HANDLERS, metrics),
    )
    expected = {one.type for one in handlers} | role.app.published
    intake += [consumer, UnhandledTypeService(ctx.store, expected)]
    subscriptions = _subscriptions(role, ctx, lease, metrics) if role.app.subscriptions else None
    if subscriptions is not None:
        intake.append(subscriptions)
    if role.test_mode:
        intake.append(IdleExitService(ctx.store, handlers, consumer, subscriptions))
    return ProcessLeaseService(
        ctx.store,
        broker,
        lease,
        groups_of(config.broker, handlers),
        config.engine,
        held=consumer.held_ids,
        prepare=prepare,
    )


def _subscriptions(
    role: Role, ctx: Context, lease: ProcessLease, metrics: ProcessMetrics | None
) -> SubscriptionService:
    from cordata.services.subscription import SubscriptionService

    return SubscriptionService(
        ctx,
        lease,
        role.config.paths.runtime,
        role.app.subscriptions,
        role.config.engine,
        retry_at_once=role.test_mode,
        cut_off_s=_cut_off_s(role),
        metrics=outcomes_by("group", role.app.subscriptions, HANDLERS, metrics),
    )


def _cut_off_s(role: Role) -> float:
    return cut_off_of(role.config.worker_of(role.instance).stop_timeout_s)


def _exporting(role: Role, name: str) -> AbstractContextManager[None]:
    """Within the block, spans are exported, if so configured. Raises: ConfigError."""
    if not role.config.trace.export:
        return nullcontext()
    from cordata.otel import exporting  # the SDK need not be installed

    return exporting(role.app.name, f"{socket.gethostname()}/{name}")


def _http_sockets(wanted: bool) -> list[socket.socket]:
    """The inherited sockets named `http`, if `wanted`. Raises: ConfigError when there are none."""
    inherited = listen_fds()
    sockets = [entry.sock for entry in inherited if entry.name == "http"]
    if wanted and not sockets:
        names = ", ".join(entry.name for entry in inherited) or "none at all"
        raise ConfigError(
            f"no listening socket named http was passed (passed: {names})",
            hint="start through worker@.service with http.socket, or use `cordata server`",
        )
    return sockets if wanted else []
