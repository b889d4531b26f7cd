"""Builds the role primary: the lease, and the services that run in one process only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordata import exit_codes
from cordata.config import Config
from cordata.context import runtime_store
from cordata.context_factory import broker_passwords, smtp_login
from cordata.metrics.series import MAILS, context_series
from cordata.runner import Layer, Runner, Service
from cordata.services.unavailable import open_context_with_retry
from cordata.systemd import Notifier
from cordata.wiring.role import Role, alerting, cut_off_of, metrics_of, reload_of

if TYPE_CHECKING:
    from cordata.broker.redis.reconciler import Reconciler
    from cordata.services.leadership import Leadership
    from cordata.store import Store


async def run_primary(role: Role) -> int:
    """Run the primary; its other services wait for the lease. Returns the exit code."""
    from cordata.context_factory import groups_of
    from cordata.services.alert_mail import AlertMailService
    from cordata.services.backfill import BackfillService
    from cordata.services.checkpoint import CheckpointService
    from cordata.services.leadership import Leadership
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
            leadership = Leadership()
            holder = holder_name()
            lease = runtime_store(ctx).lease(holder=holder)
            intake: list[Service] = [
                PeriodicService(leadership, app.periodics, cut_off_s=cut_off_s),
                BackfillService(leadership, app.backfills, cut_off_s=cut_off_s),
                RetentionService(leadership, config.engine, config.mail),
                AbsentGroupService(leadership),
                *_reconcilers(config, leadership, holder),
                AlertMailService(leadership, config.alert, config.mail),
            ]
            mail = MailService(
                leadership,
                config.mail,
                login=smtp_login(config),
                metrics=metrics.outcomes(MAILS) if metrics is not None else None,
            )
            primary = PrimaryService(
                *(ctx, app, lease, leadership, groups_of(config.broker, app.handlers)),
                *(ctx.chains, notifier, config.primary),
                holder=holder,
                hand_over=lambda: runner.stop(),
            )
            runner = Runner(
                [
                    Layer("intake", intake),
                    Layer("delivery", [mail, alerts.service(ctx.store, sweeps=True)]),
                    Layer("lease", [primary]),
                    Layer("stores", [CheckpointService(ctx.store, leadership)]),
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


def _reconcilers(config: Config, leadership: Leadership, holder: str) -> list[Service]:
    """With Redis, the service that reconciles it with the store; without, the one that returns
    messages of an earlier Redis to the store.
    """
    from cordata.broker.factory import is_store, make_reconciler

    if is_store(config.broker):
        from cordata.services.leftover import LeftoverService

        return [LeftoverService(leadership)]
    from cordata.services.reconciler import ReconcilerService

    passwords = broker_passwords(config)

    def make(store: Store) -> Reconciler:
        name = f"primary@{holder}"
        return make_reconciler(config.broker, store, name=name, passwords=passwords)

    return [ReconcilerService(leadership, make)]
