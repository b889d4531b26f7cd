"""One examination: what is to be checked, and all findings in order.

prepare   the configuration, or what is valid of it; the application, if it can be imported
examine   the host's checks at once; then, as the user of the service, those of its connections
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cordata.app import App
from cordata.app_loader import load, salvage
from cordata.broker.factory import is_store
from cordata.command_context import become_owner
from cordata.config import Config, find_file
from cordata.config.reader import drop_in_files
from cordata.context_factory import check_start
from cordata.doctor.finding import Finding, of_error, ok, run_checks
from cordata.doctor.host import Host, read_units
from cordata.doctor.service import Service, read_secrets
from cordata.errors import ConfigError
from cordata.store import store_class
from cordata.systemd import Credentials
from cordata.systemd.hint import has_units
from cordata.systemd.systemctl import Unit

_MASK = "********"
#: Shorter secrets would mask ordinary words.
_LEAST_CHARS = 6
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@\"']*):[^/\s@\"']+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined."""

    config: Config
    #: The configuration file and its drop-ins.
    files: Sequence[Path]
    #: None: it cannot be imported.
    app: App | None
    #: Of the configuration and of the application.
    findings: Sequence[Finding]


def prepare(config: str | None, app: str | None, *, place: Callable[[Config], Config]) -> Subject:
    """Load the configuration and the application, or what is valid of them.

    `place` puts in the directories that the command line names. Raises: ConfigError when a file was
    named and does not exist, or must not be read.
    """
    path = find_file(config)
    files = [] if path is None else [path]
    if path is not None:
        with suppress(ConfigError):  # `load` raises it, too
            files += drop_in_files(path)
    fix = f"correct {path or 'it'}, then `cordata config check`"
    try:
        loaded = load(path, app)
    except ConfigError as error:
        problems: list[str] = []
        salvaged = salvage(path, problems.append)
        return Subject(
            config=place(salvaged),
            files=files,
            app=None,
            findings=of_error("configuration", error, fix=fix),
        )
    placed = place(loaded.config)
    name = loaded.config.app.import_
    findings = [ok("configuration", str(path or "defaults (no file)"))]
    try:
        check_start(placed, loaded.app)
    except ConfigError as error:
        findings = of_error("configuration", error, fix=fix)
    return Subject(
        config=placed,
        files=files,
        app=loaded.app,
        findings=[*findings, ok("application", f"{name} can be imported")],
    )


async def examine(subject: Subject, *, units: Sequence[Unit] | None = None) -> list[Finding]:
    """All findings. A root process becomes the owner of the state directory for good: the store,
    Redis and the mail server are reached as the service reaches them.
    """
    # What the connections log is in the findings; without a handler Python prints it.
    logging.getLogger("cordata").addHandler(logging.NullHandler())
    config = subject.config
    known = await read_units() if units is None else units
    host = Host(config=config, files=subject.files, units=known)
    found = await run_checks(
        [
            ("systemd", host.check_systemd),
            ("units", host.check_units),
            ("limits", host.check_limits),
            ("sockets", host.check_sockets),
            ("network", host.check_network),
            ("permissions", host.check_permissions),
            ("clock", host.check_clock),
            ("disk", host.check_disk),
            ("backup", host.check_backup),
            ("zones", host.check_zones),
        ]
    )
    secrets = read_secrets(config)
    units_run_it = has_units(next(iter(subject.files), None))
    service = Service(config=config, app=subject.app, secrets=secrets, units=units_run_it)
    hidden = secret_values(config)
    _become_user(config)
    found += await run_checks(
        [
            ("secrets", service.check_secrets),
            ("store", service.check_store),
            ("broker", service.check_broker),
            ("mail", service.check_mail),
        ]
    )
    return [
        replace(one, text=mask(one.text, hidden), fix=mask(one.fix, hidden))
        for one in (*subject.findings, *found)
    ]


def _become_user(config: Config) -> None:
    """Give up root, after importing what comes next: the user may not be able to read it."""
    with suppress(ConfigError):  # of the url: the check of the store tells it
        store_class(config.store)
    if not is_store(config.broker):
        importlib.import_module("cordata.broker.redis.server")
    if config.mail.host:
        importlib.import_module("aiosmtplib")
    become_owner(config.paths.state)


def secret_values(config: Config) -> list[str]:
    """The credentials that this user may read; names of users are none."""
    credentials = Credentials(config.paths.credentials)
    values = []
    for name in credentials.names():
        if name.endswith("-user"):
            continue
        try:
            data = credentials.read(name)
        except ConfigError:
            continue
        text = (data or b"").decode(errors="replace").strip()
        if len(text) >= _LEAST_CHARS:
            values.append(text)
    return values


def mask(text: str, secrets: Iterable[str]) -> str:
    """A text without these secrets and without the passwords of URLs."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(secret, _MASK)
    return _URL_PASSWORD.sub(rf"\1:{_MASK}@", text)
