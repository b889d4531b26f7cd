"""Finds the master, connects, logs in; tells once when Redis is away and when it is back."""

from __future__ import annotations

from typing import Any

from cordata import clock, events
from cordata.broker.redis.address import Host, RedisAddress
from cordata.broker.redis.connection import Command, Connection, Refused
from cordata.errors import BrokerUnavailable
from cordata.log import fields, logger

log = logger("cordata.redis")

#: XTRIM MINID and XPENDING IDLE came with it; valkey tells a version of Redis, too.
_OLDEST = (6, 2)
_LOGIN_HINT = (
    "is the credential redis-password there and right, and the user in [broker] url?"
    " a unit reads it when it starts: restart it then"
)
_SENTINEL_HINT = _LOGIN_HINT.replace("redis-password", "sentinel-password")


class Reach:
    """Whether Redis answers this process."""

    def __init__(self) -> None:
        #: Why it does not; "" while it does.
        self.reason = ""
        self._since = 0.0

    def failed(self, error: BrokerUnavailable) -> None:
        """It does not."""
        if not self.reason:
            self._since = clock.monotonic()
            log.error(
                "Redis is away: %s%s",
                error,
                f" ({error.hint})" if error.hint else "",
                extra=fields(events.BROKER_FAILED, hint=error.hint or ""),
            )
        self.reason = str(error)

    def succeeded(self) -> None:
        """It does."""
        if self.reason:
            lasted_s = clock.monotonic() - self._since
            log.warning("Redis is back after %.1f s", lasted_s, extra=fields(events.BROKER_HEALED))
        self.reason = ""


class Dialer:
    """Makes connections to the master, whoever that is at the moment."""

    def __init__(
        self,
        address: RedisAddress,
        *,
        password: str | None = None,
        sentinel_password: str | None = None,
        timeout_s: float,
        name: str = "cordata",
    ) -> None:
        """`name`: what CLIENT LIST shows. Raises: ConfigError for an unusable TLS file."""
        self.address = address
        self.timeout_s = timeout_s
        self._password = password
        self._sentinel_password = sentinel_password
        self._name = "".join(c if "!" <= c <= "~" else "-" for c in name)
        self._tls = address.tls_context()
        #: The server, or the Sentinels, the first the one whose master could be reached.
        self._hosts = list(address.hosts)

    async def connect(self) -> Connection:
        """A connection to the master, logged in. Raises: BrokerUnavailable."""
        if not self.address.service:
            return await self._open(*self._hosts[0])
        sentinel, master = await self._find()
        try:
            connection = await self._open(*master)
        except BaseException:
            self._place(sentinel, len(self._hosts))  # it may be cut off from all the others
            raise
        self._place(sentinel, 0)
        return connection

    def _place(self, sentinel: Host, at: int) -> None:
        self._hosts.remove(sentinel)
        self._hosts.insert(at, sentinel)

    async def _open(self, host: str, port: int) -> Connection:
        connection = await Connection.open(host, port, tls=self._tls, timeout_s=self.timeout_s)
        try:
            await self._log_in(connection, self.address.user, self._password)
            await self._introduce(connection)
        except Refused as error:
            connection.abort(str(error))
            raise BrokerUnavailable(f"{host}:{port}: {error}") from error
        except BaseException as error:
            connection.abort(str(error))
            if connection.lost.startswith("NOAUTH"):
                text = f"{host}:{port}: {connection.lost}"
                raise BrokerUnavailable(text, hint=_LOGIN_HINT) from error
            raise
        return connection

    async def _log_in(
        self, connection: Connection, user: str, password: str | None, hint: str = _LOGIN_HINT
    ) -> None:
        if password is None:
            return
        words: Command = ("AUTH", user, password) if user else ("AUTH", password)
        try:
            await connection.run(words, timeout_s=self.timeout_s)
        except Refused as error:
            raise BrokerUnavailable(str(error), hint=hint) from error

    async def _introduce(self, connection: Connection) -> None:
        select: list[Command] = []
        if self.address.database:
            select = [("SELECT", self.address.database)]
        *_, client_id, role, info = await connection.run(
            *select,
            ("CLIENT", "SETNAME", self._name),
            ("CLIENT", "ID"),
            ("ROLE",),
            ("INFO", "server"),
            timeout_s=self.timeout_s,
        )
        facts = _facts(info)
        version = facts.get("redis_version", "0")
        if tuple(map(int, version.split(".")[:2])) < _OLDEST:
            raise BrokerUnavailable(f"Redis {version} is too old: 6.2 is the oldest that will do")
        if role[0] != b"master":
            raise BrokerUnavailable(f"{self.address}: a {role[0].decode()}, not the master")
        connection.client_id = int(client_id)
        connection.run_id = facts["run_id"]

    async def _find(self) -> tuple[Host, Host]:
        """A Sentinel that knows the master, and the master."""
        reasons, hint = [], None
        for host in tuple(self._hosts):
            try:
                found = await self._ask(host)
            except BrokerUnavailable as error:
                reasons.append(str(error))
                hint = hint or error.hint
                continue
            if found is not None:
                return host, found
            reasons.append(f"{host[0]}:{host[1]} knows no {self.address.service}")
        raise BrokerUnavailable(f"no Sentinel names the master: {'; '.join(reasons)}", hint=hint)

    async def _ask(self, host: Host) -> Host | None:
        timeout_s = self.timeout_s / len(self.address.hosts)
        sentinel = await Connection.open(*host, tls=self._tls, timeout_s=timeout_s)
        try:
            await self._log_in(sentinel, "", self._sentinel_password, _SENTINEL_HINT)
            words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.service)
            (reply,) = await sentinel.run(words, timeout_s=timeout_s)
        except Refused as error:
            hint = _SENTINEL_HINT if error.kind == "NOAUTH" else None
            raise BrokerUnavailable(f"{host[0]}:{host[1]}: {error}", hint=hint) from error
        finally:
            sentinel.abort("done")
        return (reply[0].decode(), int(reply[1])) if reply else None


def _facts(info: Any) -> dict[str, str]:
    lines = bytes(info).decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
