"""The parts that every role has: its configuration, alerts by mail, reload at SIGHUP."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from cordata import clock
from cordata.alert import RETRY_S, Alerter, AlertHandler, Buffer, Spool
from cordata.app import App
from cordata.config import Config, build, open_document
from cordata.context import Context
from cordata.context_factory import metrics_directory, smtp_login
from cordata.core.alert import AlertGroup
from cordata.errors import ConfigError
from cordata.log import handled_by, logger
from cordata.metrics.file import Series
from cordata.metrics.process import ProcessMetrics, open_metrics
from cordata.runner import Service
from cordata.services.alert import AlertService
from cordata.store import Store
from cordata.systemd import set_level

if TYPE_CHECKING:
    from cordata.app_loader import Loaded

log = logger("cordata.wiring")

#: Part of the stop timeout that is reserved after the handlers: to settle, to deliver, to close.
_SETTLE_S = 5.0
#: Pause before a failed mail is due again.
_RETRY_US = round((RETRY_S + 1.0) * 1e6)


class Role(Struct, frozen=True, kw_only=True):
    """The role that one process runs."""

    loaded: Loaded
    #: `0` of worker@0; "" for a role without instances.
    instance: str = ""
    #: Handle the events in the queue, then exit.
    test_mode: bool = False
    #: Services that look at the whole from outside: the status page.
    observers: Callable[[Context], list[Service]] = lambda ctx: []

    @property
    def config(self) -> Config:
        """The checked configuration."""
        return self.loaded.config

    @property
    def app(self) -> App:
        """The application."""
        return self.loaded.app


def metrics_of(config: Config, unit: str, series: Sequence[Series]) -> ProcessMetrics | None:
    """The counters of this process, of `unit` ("worker@0"); None: it counts nothing."""
    if not config.metrics.enabled:
        return None
    return open_metrics(metrics_directory(config), unit, series)


def cut_off_of(stop_timeout_s: float) -> float:
    """Seconds after a stop at which the application's functions that still run are cancelled."""
    return stop_timeout_s - min(_SETTLE_S, stop_timeout_s / 3)


class Alerts(Struct, frozen=True, kw_only=True):
    """The alerts of this process, on their way to the store or a mail."""

    alerter: Alerter
    buffer: Buffer
    #: The file of this host.
    spool: Spool

    def leave(self) -> None:
        """Write the counted alerts to the host's file, for the primary: needs no store."""
        if groups := self.buffer.take():
            with suppress(OSError):  # the journal has them
                self.spool.add(groups)

    def end(self) -> None:
        """As `leave`, also the alerts whose mails are not sent; before the process ends, or runs a
        new program.
        """
        self.alerter.end()
        self.leave()

    def service(self, store: Store, *, sweeps: bool = False) -> Service:
        """The service that stores the alerts; with `sweeps` also those in the host's file."""
        spool = self.spool if sweeps else None
        return AlertService(store, self.buffer, self.alerter, spool=spool)


@contextmanager
def alerting(config: Config, role: str, *, ends_soon: bool = False) -> Iterator[Alerts]:
    """Within the block, errors that this process logs are alerts of `role`.

    Alerts that are not in the store at the end wait in a file for the primary, and so do those
    whose mail is not sent yet. With `ends_soon` the process sends no mail itself: it would end
    before the mail is sent.
    """
    alert = replace(config.alert, to=()) if ends_soon else config.alert
    place = f"{socket.gethostname()} {role}"
    directories = [config.paths.state, config.paths.runtime]
    buffer, spool = Buffer(), Spool(directories)

    def postpone(group: AlertGroup) -> None:
        # It was counted when it came. It is not due before the cool-down lets it be mailed: a claim
        # within its pause is only counted.
        since_at = clock.now_us() + _RETRY_US
        buffer.add([msgspec.structs.replace(group, count=0, since_at=since_at)])

    alerter = Alerter(
        alert, config.mail, login=smtp_login(config), directories=directories, postpone=postpone
    )
    alerts = Alerts(alerter=alerter, buffer=buffer, spool=spool)
    try:
        with handled_by(AlertHandler(alerter, buffer, place=place)):
            yield alerts
    finally:
        alerts.end()


def reload_of(
    role: Role, pass_on: Callable[[Config], None] = lambda config: None
) -> Callable[[], Coroutine[Any, Any, str]]:
    """The function for SIGHUP: reads the file again, passes it on, sets the log level.

    Other settings need a restart.
    """

    async def reload() -> str:
        try:
            path, app = role.loaded.document.path, role.loaded.config.app.import_
            config = build(open_document(path, app), role.app.settings_classes)
            pass_on(config)
        except ConfigError as error:
            log.error("not reloaded, the old configuration stays: %s", error)
            return "reload refused: configuration invalid"
        set_level(config.log.level)
        log.info("reloaded")
        return ""

    return reload
