"""Builds the role primary: the lease, and the services that run in one process only.

A standby has the lease service, and no other has begun: each is made when this process leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cordata import exit_codes
from cordata.config import Config
from cordata.context import Context, runtime_store
from cordata.context_factory import broker_passwords, smtp_login
from cordata.heartbeat import Heartbeat
from cordata.metrics.series import MAILS, context_series
from cordata.runner import Layer, Runner, Service, first_of
from cordata.services.unavailable import open_context_with_retry
from cordata.systemd import Notifier
from cordata.wiring.role import Role, alerting, cut_off_of, metrics_of, reload_of

if TYPE_CHECKING:
    from cordata.services.primary import PrimaryService


class WhenLeading:
    """A service that is made, with the primary's Context, when this process begins to lead."""

    def __init__(
        self, primary: PrimaryService, name: str, make: Callable[[Context], Service]
    ) -> None:
        self.name = name
        self._make = make
        self._primary = primary
        self._service: Service | None = None

    @property
    def heartbeat(self) -> Heartbeat | None:
        """That of the service; None: it has none, or is not made yet."""
        return getattr(self._service, "heartbeat", None)

    def status(self) -> str:
        """For STATUS=: that of the service."""
        status: Callable[[], str] | None = getattr(self._service, "status", None)
        return status() if status is not None else ""

    async def run(self, stop: asyncio.Event) -> None:
        """Run the service, once this process leads, until `stop`."""
        await first_of(self._primary.led, stop)
        if self._primary.leading is not None and not stop.is_set():
            self._service = self._make(self._primary.leading)
            await self._service.run(stop)
        else:  # it may lead no more: a layer that stops later than the lease has no stop yet
            await stop.wait()


async def run_primary(role: Role) -> int:
    """Run the primary. Returns the exit code."""
    from cordata.context_factory import groups_of
    from cordata.services.alert_mail import AlertMailService
    from cordata.services.backfill import BackfillService
    from cordata.services.mail import MailService
    from cordata.services.periodic import PeriodicService
    from cordata.services.primary import PrimaryService, holder_name
    from cordata.services.retention import RetentionService
    from cordata.services.unhandled_event import AbsentGroupService

    config, app = role.config, role.app
    cut_off_s = cut_off_of(config.primary.stop_timeout_s)
    counted = [*context_series(app.commands), *MAILS.series()]
    metrics = metrics_of(config, "primary", counted)
    with Notifier() as notifier, alerting(config, "primary") as alerts:
        async with open_context_with_retry(config, app, notifier, metrics=metrics) as ctx:
            holder = holder_name()
            primary = PrimaryService(
                ctx,
                app,
                runtime_store(ctx).lease(holder=holder),
                groups_of(config.broker, app.handlers),
                ctx.chains,
                notifier,
                holder=holder,
                hand_over=lambda: runner.stop(),
            )
            led = partial(WhenLeading, primary)
            intake = [
                led(
                    PeriodicService.name,
                    lambda ctx: PeriodicService(ctx, app.periodics, cut_off_s=cut_off_s),
                ),
                led(
                    BackfillService.name,
                    lambda ctx: BackfillService(ctx, app.backfills, cut_off_s=cut_off_s),
                ),
                led(
                    RetentionService.name,
                    lambda ctx: RetentionService(ctx.store, config.engine, config.mail),
                ),
                led(AbsentGroupService.name, lambda ctx: AbsentGroupService(ctx.store)),
                led(*_reconciler(config, holder)),
            ]
            delivery = [alerts.service(ctx.store, sweeps=True)]
            if config.mail.host:
                intake.append(
                    led(
                        AlertMailService.name,
                        lambda ctx: AlertMailService(ctx.store, config.alert),
                    )
                )
                login = smtp_login(config)
                sent = metrics.outcomes(MAILS) if metrics is not None else None
                delivery.append(
                    led(
                        MailService.name,
                        lambda ctx: MailService(ctx.store, config.mail, login=login, metrics=sent),
                    )
                )
            runner = Runner(
                [
                    Layer("intake", intake),
                    Layer("delivery", delivery),
                    Layer("lease", [primary]),
                ],
                role="primary",
                notifier=notifier,
                stop_timeout_s=config.primary.stop_timeout_s,
                reload=reload_of(role),
                tick=metrics.tick if metrics is not None else None,
            )
            code = await runner.run()
            if metrics is not None and code == exit_codes.OK:
                metrics.end()
            return code


def _reconciler(config: Config, holder: str) -> tuple[str, Callable[[Context], Service]]:
    """Name and factory of a service. With Redis, the one that reconciles it with the store;
    without, the one that returns messages of an earlier Redis to the store.
    """
    from cordata.broker.factory import is_store, make_reconciler

    if is_store(config.broker):
        from cordata.services.leftover import LeftoverService

        return LeftoverService.name, lambda ctx: LeftoverService(ctx.store)
    from cordata.services.reconciler import ReconcilerService

    passwords = broker_passwords(config)

    def make(ctx: Context) -> Service:
        name = f"primary@{holder}"
        reconciler = make_reconciler(config.broker, ctx.store, name=name, passwords=passwords)
        return ReconcilerService(ctx.store, reconciler)

    return ReconcilerService.name, make
