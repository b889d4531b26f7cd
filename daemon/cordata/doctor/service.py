"""Collects what the store, Redis and the mail server say: each is reached as the services do it.

Nothing is written, no mail is sent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cordata.app import App
from cordata.broker.factory import Passwords, is_store, make_server
from cordata.config import Config
from cordata.context import Context
from cordata.context_factory import (
    broker_passwords,
    missing_state,
    open_context,
    read_vault,
    smtp_login,
    store_password,
)
from cordata.doctor import judge
from cordata.doctor.finding import Finding, failed, of_error, ok, run_checks, skipped, warning
from cordata.errors import BrokerUnavailable, ConfigError, CordataError
from cordata.mail.smtp import SmtpUnavailable, connected, next_step
from cordata.process import all_processes
from cordata.registry import Check
from cordata.store import dialect_of, missing_file
from cordata.store.migrate import SchemaError
from cordata.systemd import Credentials
from cordata.systemd.hint import log_hint, start_hint
from cordata.vault import MASTER_KEY, Vault

_AS_ROOT = "run it as root"
#: Whole conversation with the mail server: the check itself ends a little later.
_MAIL_S = 10.0
#: One check of the application: less than the check of the store, which waits for it.
_APPLICATION_S = 8.0
#: Processes of a host that has none yet: a primary, four workers.
_USUAL_PROCESSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The credentials, read before the process changes its user."""

    #: Whether this user may read them.
    readable: bool
    names: Sequence[str]
    vault: Vault
    store: str | None
    smtp: tuple[str, str] | None
    broker: Passwords | None


def read_secrets(config: Config) -> Secrets:
    """The credentials that can be used; `check_start` says what is wrong with the others."""

    def each(read: Any) -> Any:
        try:
            return read(config)
        except ConfigError:
            return None

    directory = config.paths.credentials
    readable = not directory.exists() or os.access(directory, os.R_OK | os.X_OK)
    return Secrets(
        readable=readable,
        names=Credentials(directory).names(),
        vault=each(read_vault) or Vault(None),
        store=each(store_password),
        smtp=each(smtp_login),
        broker=each(broker_passwords),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The checks of what the service is connected to."""

    config: Config
    #: None: it cannot be imported.
    app: App | None
    secrets: Secrets
    #: Whether units of systemd run it.
    units: bool

    async def check_store(self) -> list[Finding]:
        """The store: reachable, current, durable, with room; then what is in it."""
        config = self.config
        dialect = dialect_of(config.store)
        reason = self._hidden(dialect)
        if reason is not None:
            return [skipped("store", reason, _AS_ROOT)]
        if (
            missing_state(config) is not None
            or missing_file(config.store, config.paths.state) is not None
        ):
            text = f"there is no store in {config.paths.state} yet: the primary creates it"
            return [skipped("store", text, start_hint(units=self.units))]
        try:
            async with open_context(
                config,
                self.app or App("doctor"),
                vault=self.secrets.vault,
                password=self.secrets.store,
                make=False,
            ) as ctx:
                return [finding async for finding in self._look(ctx, dialect)]
        except CordataError as error:
            fix = (
                "is [store] url right, and does the server run? `systemctl status postgresql` there"
            )
            if dialect == "sqlite":
                look = log_hint("-u primary -n 50", units=self.units)
                fix = f"ls -l {config.paths.state}; the primary may say more: {look}"
            return of_error("store", error, fix=fix)

    def _hidden(self, dialect: str) -> str | None:
        """Why this user cannot open the store; None: they can."""
        state = self.config.paths.state
        if dialect == "postgres":
            return None if self.secrets.readable else "this user may not read the credentials"
        may = not state.exists() or os.access(state, os.R_OK | os.X_OK)
        return None if may else f"this user may not look into {state}"

    async def _look(self, ctx: Context, dialect: str) -> AsyncIterator[Finding]:
        row = await ctx.store.read(lambda tx: tx.fetch_one("server.facts"))
        assert row is not None
        facts: dict[str, Any] = dict(row)
        name = "PostgreSQL" if dialect == "postgres" else "SQLite"
        yield ok("store", f"{name} {facts['version']}")
        try:
            pending = await ctx.store.pending(ctx.chains)
        except SchemaError as error:
            for finding in of_error(
                "schema", error, fix="install the version of cordata that made it"
            ):
                yield finding
            return
        if dialect == "postgres":
            for finding in judge.judge_durability(facts):
                yield finding
            yield await self._connections(ctx, facts, is_new=bool(pending))
        else:
            limit = self.config.store.wal_limit_bytes
            yield judge.judge_wal(ctx.store.stats().wal_bytes, limit)
        if pending:
            text = f"{len(pending)} migrations are pending, the first is {pending[0]}"
            restart = "systemctl restart primary" if self.units else "restart `cordata server`"
            fix = f"{restart}, or `cordata migrate` while no primary runs"
            yield failed("schema", text, fix)
            return
        yield ok("schema", "current")
        for finding in await self._ask_application(ctx):
            yield finding

    async def _connections(self, ctx: Context, facts: dict[str, Any], *, is_new: bool) -> Finding:
        processes = [] if is_new else await all_processes(ctx.store)
        running = sum(one.expires_at > ctx.store.now_us() for one in processes)
        return judge.judge_connections(
            limit=facts["connection_limit"],
            used_by_others=facts["others"],
            processes=max(running, _USUAL_PROCESSES),
            pool_size=self.config.store.pool_size,
        )

    async def _ask_application(self, ctx: Context) -> list[Finding]:
        """What the application's own checks say: "what is wrong; what to do"."""
        if self.app is None:
            return []
        if not self.secrets.readable:
            return [skipped("data", "this user may not read the credentials", _AS_ROOT)]

        async def ask(check: Check) -> list[Finding]:
            parts = [text.partition("; ") for text in await check(ctx)]
            return [failed("data", problem, fix) for problem, _, fix in parts]

        checks = [(one.__name__, partial(ask, one)) for one in self.app.checks]
        text = f"{len(checks)} checks of {self.app.name} find nothing wrong"
        return await run_checks(checks, limit_s=_APPLICATION_S) or [ok("data", text)]

    async def check_secrets(self) -> list[Finding]:
        """The master key and halves of logins. Which sealed secrets open is in `data`."""
        directory = self.config.paths.credentials
        if not self.secrets.readable:
            reason = f"this user may not look into {directory}"
            return [skipped("secrets", reason, _AS_ROOT)]
        names = self.secrets.names
        found = [
            warning(
                "secrets", f"{one} is set without {other}: no login", f"write {directory / other}"
            )
            for one, other in (("smtp-user", "smtp-password"), ("smtp-password", "smtp-user"))
            if one in names and other not in names
        ]
        if not self.secrets.vault.usable:
            # `init` never replaces one that is there.
            first = "remove the file, then " if MASTER_KEY in names else ""
            fix = f"if you have a copy of it, put it back; else {first}`cordata credentials init`"
            found.append(warning("secrets", "there is no usable master-key", fix))
        return found or [ok("secrets", f"{len(names)} credentials, with a master-key")]

    async def check_broker(self) -> list[Finding]:
        """Redis: reachable, what it keeps in a restart, and whether it drops keys."""
        config = self.config.broker
        if is_store(config):
            return [ok("broker", "the store")]
        if self.secrets.broker is None or not self.secrets.readable:
            return [skipped("broker", "this user may not read the credentials", _AS_ROOT)]
        server = make_server(config, self.secrets.broker, name="doctor")
        try:
            await server.connect()
            pipe = server.pipeline()
            for section in ("server", "persistence", "memory"):
                pipe.info(section)
            pipe.config_get("appendfsync")
            *sections, settings = await server.execute(pipe)
        except BrokerUnavailable as error:
            fix = "is [broker] url right, and does it run? `systemctl status redis-server` there"
            return of_error("broker", error, fix=fix)
        finally:
            server.close()
        info = {name: value for one in sections for name, value in one.items()}
        fsync = settings.get("appendfsync") if isinstance(settings, dict) else None  # refused
        return list(
            judge.judge_redis(
                version=str(info.get("redis_version")),
                appendonly=str(info.get("aof_enabled")),
                appendfsync=fsync,
                policy=str(info.get("maxmemory_policy", "noeviction")),
            )
        )

    async def check_mail(self) -> list[Finding]:
        """The mail server, up to the login; no mail is sent."""
        return [*await self._mail_server(), *self._recipients()]

    async def _mail_server(self) -> list[Finding]:
        mail = self.config.mail
        if not mail.host:
            text = "no mail server: reports and alerts wait in the store"
            return [warning("mail", text, '[mail] host = "..." in cordata.toml')]
        if not self.secrets.readable:
            return [skipped("mail", "this user may not read the credentials", _AS_ROOT)]
        limited = replace(mail, timeout_s=min(mail.timeout_s, _MAIL_S))
        where = f"{mail.host}:{mail.port} (security {mail.security})"
        try:
            async with connected(limited, self.secrets.smtp):
                pass
        except SmtpUnavailable as error:
            return [failed("mail", f"{where}: {error}", next_step(str(error)))]
        login = "logged in" if self.secrets.smtp else "without a login"
        return [ok("mail", f"{where}, {login}")]

    def _recipients(self) -> Iterator[Finding]:
        if not self.config.alert.to:
            text = "alerts go to the journal only: no address gets them by mail"
            yield warning("mail", text, '[alert] to = ["..."] in cordata.toml')
