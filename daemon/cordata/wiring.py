"""Builds each role from the configuration: the only module that knows every class."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordata.alert import Alerter, AlertHandler
from cordata.app import App
from cordata.config import Config, build, open_document
from cordata.context import Context
from cordata.errors import ConfigError
from cordata.log import logger
from cordata.opening import broker_passwords, smtp_login
from cordata.runner import EXIT_OK, Layer, Runner, Service
from cordata.services.patience import patient_context
from cordata.services.refusal import RefusalService, Trouble
from cordata.services.schema import SchemaGate
from cordata.systemd import Notifier, listen_fds, set_level, watch_loop

if TYPE_CHECKING:
    from cordata.broker.redis.keeper import Keeper
    from cordata.loading import Loaded
    from cordata.services.http import HttpService
    from cordata.services.primary import Leadership
    from cordata.services.projection import ProjectionService
    from cordata.services.relay import RelayService
    from cordata.store import Store

log = logger("cordata.wiring")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one process is to run."""

    loaded: Loaded
    #: `0` of worker@0; "" where there is one only.
    instance: str = ""
    #: Process what is there, then exit.
    test_mode: bool = False

    @property
    def config(self) -> Config:
        """The checked configuration."""
        return self.loaded.config

    @property
    def app(self) -> App:
        """The application."""
        return self.loaded.app


async def run_worker(role: Role) -> int:
    """worker@N: HTTP and engine; waits for the schema. In test mode the engine only, to its end."""
    settings = role.config.worker_of(role.instance)
    if role.test_mode and "engine" not in settings.services:
        return EXIT_OK  # nothing that could come to an end
    sockets = _http_sockets("http" in settings.services and not role.test_mode)
    with Notifier() as notifier, _alerting(role.config):
        async with patient_context(role.config, role.app, notifier, sockets) as ctx:
            intake: list[Service] = []
            delivery: list[Service] = []
            gate = SchemaGate(ctx.store, ctx.chains, notifier)
            troubles: list[Trouble] = [lambda: gate.trouble]
            refusal = RefusalService(sockets, role.config.http, troubles)
            with ExitStack() as stack:
                http = _http_service(role, sockets, ctx, refusal) if sockets else None
                if http is not None:
                    intake.append(http)
                if "engine" in settings.services:
                    relay = _add_engine(role, ctx, stack, intake, delivery)
                    troubles.append(lambda: relay.trouble)
                runner = Runner(
                    [
                        Layer("intake", intake),
                        Layer("delivery", delivery),
                        Layer("stores", [gate, refusal]),
                    ],
                    role=f"worker@{role.instance}",
                    notifier=notifier,
                    stop_timeout_s=settings.stop_timeout_s,
                    reload=_reload(role, http),
                )
                return await runner.run()


def _http_service(
    role: Role, sockets: list[socket.socket], ctx: Context, refusal: RefusalService
) -> HttpService:
    from cordata.http import compose
    from cordata.services.http import HttpService

    return HttpService(
        compose(role.app.mounts),
        sockets,
        role.config.http,
        {"cordata": ctx},
        spread=role.config.paths.runtime / "http.spread",
        first=refusal.make_way,
    )


def _add_engine(
    role: Role, ctx: Context, stack: ExitStack, intake: list[Service], delivery: list[Service]
) -> RelayService:
    """Stream reads stop with the intake; the relay outlives them, for what they still write."""
    from cordata.broker import Owner, Owners
    from cordata.broker.opening import make_broker
    from cordata.services.drain import DrainService
    from cordata.services.reclaim import ReclaimService
    from cordata.services.relay import RelayService
    from cordata.services.subscription import SubscriptionService

    config, subscriptions = role.config.engine, role.app.subscriptions
    runtime = role.config.paths.runtime
    owner = Owner.register(runtime, name=f"worker-{role.instance}")
    stack.callback(owner.close)
    broker = make_broker(
        role.config.broker,
        ctx.store,
        owner=owner.id,
        claim_timeout_s=config.claim_timeout_s,
        passwords=broker_passwords(role.config),
    )
    stack.callback(broker.close)
    handling = SubscriptionService(
        ctx, broker, owner, subscriptions, config, hurried=role.test_mode
    )
    intake.append(handling)
    intake.append(ReclaimService(ctx.store, broker, owner, Owners(runtime), subscriptions, config))
    relay = RelayService(ctx.store, broker, subscriptions, config, turn=int(role.instance))
    delivery.append(relay)
    projections = _projections(role, ctx, stack) if role.app.projections else None
    if projections is not None:
        intake.append(projections)
    if role.test_mode:
        intake.append(DrainService(ctx.store, broker, subscriptions, handling, projections))
    return relay


def _projections(role: Role, ctx: Context, stack: ExitStack) -> ProjectionService:
    """The subscriptions to the event store; their owners' files are apart from the streams'."""
    from cordata.broker import Owner, Owners
    from cordata.services.projection import ProjectionService

    runtime = role.config.paths.runtime / "projection"
    owner = Owner.register(runtime, name=f"worker-{role.instance}")
    stack.callback(owner.close)
    return ProjectionService(
        ctx,
        owner,
        Owners(runtime),
        role.app.projections,
        role.config.engine,
        hurried=role.test_mode,
    )


async def run_primary(role: Role) -> int:
    """primary: the lease first; what only one may do waits for it."""
    from cordata.broker import StoreBroker
    from cordata.services.backfill import BackfillService
    from cordata.services.checkpoint import CheckpointService
    from cordata.services.handover import HandoverService, holder_name
    from cordata.services.mail import MailService
    from cordata.services.periodic import PeriodicService
    from cordata.services.primary import Leadership, PrimaryService
    from cordata.services.retention import RetentionService

    config, app = role.config, role.app
    with Notifier() as notifier, _alerting(config):
        async with patient_context(config, app, notifier) as ctx:
            leadership = Leadership()
            broker = StoreBroker(ctx.store, claim_timeout_s=config.engine.claim_timeout_s)
            holder = holder_name()
            lease = ctx.store.lease(holder=holder)
            intake: list[Service] = [
                PeriodicService(leadership, app.periodics),
                BackfillService(leadership, app.backfills),
                RetentionService(leadership, app.subscriptions, config.engine, config.mail),
                *_keepers(config, leadership, holder),
                HandoverService(ctx.store, leadership, holder=holder),
            ]
            mail = MailService(leadership, config.mail, login=smtp_login(config))
            primary = PrimaryService(
                *(ctx, app, lease, leadership, broker, ctx.chains, notifier, config.primary),
                holder=holder,
            )
            runner = Runner(
                [
                    Layer("intake", intake),
                    Layer("delivery", [mail]),
                    Layer("lease", [primary]),
                    Layer("stores", [CheckpointService(ctx.store, leadership)]),
                ],
                role="primary",
                notifier=notifier,
                stop_timeout_s=config.primary.stop_timeout_s,
                reload=_reload(role),
            )
            return await runner.run()


def _keepers(config: Config, leadership: Leadership, holder: str) -> list[Service]:
    """What looks after Redis, if that is the broker, or else after what was left in it."""
    from cordata.broker.opening import is_store, make_keeper

    if is_store(config.broker):
        from cordata.services.leftover import LeftoverService

        return [LeftoverService(leadership)]
    from cordata.services.keeper import KeeperService

    passwords = broker_passwords(config)

    def make(store: Store) -> Keeper:
        return make_keeper(config.broker, store, name=f"primary@{holder}", passwords=passwords)

    return [KeeperService(leadership, make)]


@contextmanager
def _alerting(config: Config) -> Iterator[None]:
    """While inside, some of this process's log events are mailed too."""
    alerter = Alerter(
        config.alert,
        config.mail,
        login=smtp_login(config),
        directories=[config.paths.state, config.paths.runtime],
    )
    handler = AlertHandler(alerter)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


#: Every long-running role by its command.
ROLES: dict[str, Callable[[Role], Awaitable[int]]] = {
    "worker": run_worker,
    "primary": run_primary,
}


def run_role(name: str, role: Role) -> int:
    """Run a role on uvloop until it ends. Returns its exit code."""
    import uvloop

    async def main() -> int:
        watch_loop(asyncio.get_running_loop())
        return await ROLES[name](role)

    debug = bool(os.environ.get("PYTHONASYNCIODEBUG"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop, debug=debug or None) as runner:
        return runner.run(main())


def _http_sockets(wanted: bool) -> list[socket.socket]:
    """The sockets named `http`. Raises: ConfigError when they are due and there are none."""
    inherited = listen_fds()
    sockets = [entry.sock for entry in inherited if entry.name == "http"]
    if wanted and not sockets:
        names = ", ".join(entry.name for entry in inherited) or "none at all"
        raise ConfigError(
            f"no listening socket named http was passed (passed: {names})",
            hint="start through worker@.service with http.socket, or use `cordata server`",
        )
    return sockets if wanted else []


def _reload(role: Role, http: HttpService | None = None) -> Callable[[], Coroutine[Any, Any, str]]:
    """SIGHUP: read the file again; log level and limits take effect, the rest needs a restart."""

    async def reload() -> str:
        try:
            path = role.loaded.document.path
            config = build(open_document(path), role.app.settings_classes)
            if http is not None:
                http.reload(config.http)
        except ConfigError as error:
            log.error("not reloaded, the old configuration stays: %s", error)
            return "reload refused: configuration invalid"
        set_level(config.log.level)
        log.info("reloaded")
        return ""

    return reload
