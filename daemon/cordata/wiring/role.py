"""What every role is built with: its configuration, alerts by mail, reload at SIGHUP."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordata.alert import Alerter, AlertHandler
from cordata.app import App
from cordata.config import Config, build, open_document
from cordata.errors import ConfigError
from cordata.log import handled_by, logger
from cordata.opening import smtp_login
from cordata.systemd import set_level

if TYPE_CHECKING:
    from cordata.loading import Loaded

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


@contextmanager
def alerting(config: Config) -> Iterator[None]:
    """While inside, some of this process's log events are mailed too."""
    alerter = Alerter(
        config.alert,
        config.mail,
        login=smtp_login(config),
        directories=[config.paths.state, config.paths.runtime],
    )
    with handled_by(AlertHandler(alerter)):
        yield


def reload_of(
    role: Role, *takers: Callable[[Config], None]
) -> Callable[[], Coroutine[Any, Any, str]]:
    """SIGHUP: read the file again; the log level and what `takers` take, the rest needs a restart.

    A taker raises ConfigError when it cannot use what it gets; then nothing after it changes.
    """

    async def reload() -> str:
        try:
            path = role.loaded.document.path
            config = build(open_document(path), role.app.settings_classes)
            for take in takers:
                take(config)
        except ConfigError as error:
            log.error("not reloaded, the old configuration stays: %s", error)
            return "reload refused: configuration invalid"
        set_level(config.log.level)
        log.info("reloaded")
        return ""

    return reload
