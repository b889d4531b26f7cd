"""The connection of this process to the Redis server, by redis-py, and whether it is available.

                 connected, logged in, the master, new enough
    unavailable ───────────────────────────────────────────────> available
         ^                                                           │
         └─ no connection, no answer in time, demoted, wrong password┘
            the next attempt at once, then after a pause that grows from 0.1 to 2 s

It uses redis-py's pool, TLS, Sentinel and hiredis. Retries of redis-py are off: a command whose
answer was lost may have been executed, and repeating it would add or claim a second time. Instead,
a relay adds the entries again, marked `again`, and a consumer reads its pending entries.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from weakref import WeakSet

from redis._parsers import _AsyncHiredisParser
from redis._parsers.base import AsyncBaseParser
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.utils import HIREDIS_AVAILABLE

from cordata import clock, events
from cordata.broker.redis.address import RedisAddress
from cordata.core.retry import Backoff
from cordata.errors import BrokerUnavailable
from cordata.log import LogThrottle, fields, logger

log = logger("cordata.redis")

#: How long a blocking read lasts without an answer.
BLOCK_S = 30.0
#: Idle connections are checked with PING before use after this long.
_HEALTH_CHECK_S = 30
#: A host that vanished is noticed within this, though nothing is sent while a read blocks.
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 10_000,
}
#: XTRIM MINID and XPENDING IDLE came with it; Valkey reports a version of Redis, too.
_OLDEST = (6, 2)
#: While Redis is unavailable. Without shortest pauses many processes would call a server that has
#: just started.
_BACKOFF = Backoff(0.1, 2.0, least=0.25)
_LOGIN_HINT = (
    "is the credential redis-password there and right, and the user in [broker] url?"
    " a unit reads it when it starts: restart it then"
)
_SENTINEL_HINT = _LOGIN_HINT.replace("redis-password", "sentinel-password")
#: The same refusal is logged again after this long.
_REFUSED_S = 300.0
#: A key of another type is where a stream should be.
WRONG_TYPE = "WRONGTYPE"
_REFUSAL_HINTS = {
    WRONG_TYPE: "something else uses this key: rename or delete it (TYPE shows what it is), or"
    " choose another [broker] prefix",
    "NOPERM": "the user in [broker] url needs the commands and the keys of [broker] prefix",
}
#: redis-py strips the code from the text of these.
_CODES = {OutOfMemoryError: "OOM", NoPermissionError: "NOPERM"}


class _Parser(_AsyncHiredisParser):
    """redis-py's hiredis parser, with two differences.

    What only a demoted master replies ends the connection, as LOADING does: the next one reaches
    the new master. And it takes hiredis 2, which Debian 13 has. redis-py itself takes hiredis 3,
    for RESP3 only; its Python parser costs 26 us of CPU per message read instead of less than 1 us.
    """

    EXCEPTION_CLASSES = _AsyncHiredisParser.EXCEPTION_CLASSES | {
        "READONLY": RedisConnectionError,
        "MASTERDOWN": RedisConnectionError,
    }

    def __init__(self, socket_read_size: int) -> None:
        if HIREDIS_AVAILABLE:
            super().__init__(socket_read_size)
        else:
            AsyncBaseParser.__init__(self, socket_read_size=socket_read_size)
            self._reader = None


class _Sentinels(Sentinel):
    """redis-py's Sentinel client; its error also has what each Sentinel answered."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """The master's address, from the first Sentinel that has it; it is asked first next time.

        Raises: MasterNotFoundError, caused by an AuthenticationError if a Sentinel raised one.
        """
        reasons: list[str] = []
        cause: AuthenticationError | None = None
        for sentinel in tuple(self.sentinels):
            options = sentinel.connection_pool.connection_kwargs
            where = f"{options['host']}:{options['port']}"
            try:
                masters: Any = await sentinel.sentinel_masters()
            except RedisError as error:
                reasons.append(f"{where}: {error}")
                cause = error if isinstance(error, AuthenticationError) else cause
                continue
            state = masters.get(service_name)
            if state and self.check_master_state(state, service_name):
                self.sentinels.remove(sentinel)
                self.sentinels.insert(0, sentinel)
                return state["ip"], state["port"]
            reasons.append(f"{where} knows no {service_name} that is up")
        raise MasterNotFoundError(f"no Sentinel names the master: {'; '.join(reasons)}") from cause


def code_of(error: ResponseError) -> str:
    """The code of an error reply, such as NOGROUP or OOM."""
    return _CODES.get(type(error), "") or str(error).partition(" ")[0]


def describe(error: ResponseError) -> str:
    """An error reply as Redis sent it."""
    code = _CODES.get(type(error), "")
    return f"{code} {error}" if code else str(error)


class RedisServer:
    """The master at an address; clients connect when they are first used."""

    def __init__(
        self,
        address: RedisAddress,
        *,
        password: str | None = None,
        sentinel_password: str | None = None,
        timeout_s: float,
        name: str = "cordata",
    ) -> None:
        """`timeout_s`: for an answer. `name`: what CLIENT LIST shows."""
        self.address = address
        #: Why it is unavailable; "" while it is available.
        self.reason = ""
        #: Identifies the server process that the newest connection reached; "" before the first.
        self.run_id = ""
        #: Grows when an answer may have been lost: with each failure, and each new connection.
        self.generation = 0
        self._since = 0.0
        self._failures = 0
        self._next_deadline = 0.0
        self._connections = WeakSet[AbstractConnection]()
        self._throttle = LogThrottle(again_s=_REFUSED_S)
        self._sentinel = self._make_sentinel(sentinel_password, timeout_s=timeout_s)
        options = {
            **_options(timeout_s),
            "db": address.database,
            "username": address.user or None,
            "password": password,
            "client_name": "".join(c if "!" <= c <= "~" else "-" for c in name),
            "parser_class": _Parser,
            "redis_connect_func": self._connected,
        }
        self._commands = self._client(options)
        self._waiting = self._client({**options, "socket_timeout": BLOCK_S + timeout_s})

    def _client(self, options: dict[str, Any]) -> Redis:
        if self._sentinel is not None:
            tls = {"ssl": True, **_tls(self.address)} if self.address.tls else {}
            service = self.address.service
            make: Any = SentinelConnectionPool  # redis-py does not annotate it
            pool: ConnectionPool = make(service, self._sentinel, **tls, **options)
        else:
            kind = SSLConnection if self.address.tls else Connection
            host, port = self.address.hosts[0]
            more = {"host": host, "port": port, **_tls(self.address)}
            pool = ConnectionPool(connection_class=kind, **more, **options)
        return Redis(connection_pool=pool)

    def _make_sentinel(self, password: str | None, *, timeout_s: float) -> _Sentinels | None:
        address = self.address
        if not address.service:
            return None
        options = {
            **_options(timeout_s / len(address.hosts)),
            **_tls(address),
            "password": password,
            "ssl": address.tls,
            "redis_connect_func": self._sentinel_connected,
        }
        make: Any = _Sentinels  # redis-py does not annotate it
        sentinel: _Sentinels = make(address.hosts, sentinel_kwargs=options)
        return sentinel

    async def _sentinel_connected(self, connection: AbstractConnection) -> None:
        await connection.on_connect()
        self._connections.add(connection)

    async def _connected(self, connection: AbstractConnection) -> None:
        """Called by redis-py for each new connection: log in, check the role and the version."""
        await connection.on_connect()
        await connection.send_command("ROLE")
        role = (await connection.read_response())[0].decode()
        await connection.send_command("INFO", "server")
        info = bytes(await connection.read_response()).decode(errors="replace")
        facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        version = facts.get("redis_version", "0")
        if tuple(map(int, version.split(".")[:2])) < _OLDEST:
            text = f"Redis {version} is too old: cordata needs 6.2 or newer"
            raise RedisConnectionError(text)
        if role != "master":
            raise RedisConnectionError(f"{self.address}: a {role}, not the master")
        self._connections.add(connection)
        self.run_id = facts["run_id"]
        self.generation += 1

    @property
    def pause_s(self) -> float:
        """Seconds until the next attempt is made; 0 while it is available."""
        return max(0.0, self._next_deadline - clock.monotonic())

    @property
    def is_available(self) -> bool:
        """Whether the last command got through."""
        return bool(self.run_id) and not self.reason

    async def connect(self) -> None:
        """Connect and send PING, unless it is available. Raises: BrokerUnavailable."""
        if not self.is_available:
            pipe = self.pipeline()
            pipe.ping()
            await self.execute(pipe)

    def pipeline(self) -> Pipeline:
        """Collects commands for `execute`."""
        return self._commands.pipeline(transaction=False)

    async def execute(self, pipeline: Pipeline) -> list[Any]:
        """Send commands in one round trip; error replies are in the list as ResponseError.

        Cancelling is safe; the connection is closed then. Raises: BrokerUnavailable, and then
        it is unknown which of the commands were carried out.
        """
        if not len(pipeline):
            return []
        if self.pause_s:
            raise BrokerUnavailable(self.reason)
        try:
            replies = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            raise self._failed(error) from error
        finally:
            _raise_if_cancelled()
        self._succeeded()
        return replies

    async def wait_for_entries(self, key: str, after: bytes) -> list[tuple[bytes, Any]]:
        """Entries of one stream behind an id, as soon as there are some; [] after BLOCK_S.

        Raises: BrokerUnavailable.
        """
        try:
            found: Any = await self._waiting.xread({key: after}, block=int(BLOCK_S * 1000))
        except (RedisError, OSError) as error:
            raise self._failed(error) from error
        finally:
            _raise_if_cancelled()
        return list(found[0][1]) if found else []

    def log_refusal(self, what: str, error: ResponseError) -> None:
        """Log that Redis refuses a command. `what`: the key, or the purpose of the command."""
        hint = _REFUSAL_HINTS.get(code_of(error), "")
        self.log_error(f"Redis refuses {what}: {describe(error)}", hint=hint)

    def log_error(self, text: str, *, hint: str = "") -> None:
        """Log an error with the next step, unless the same was logged not long ago."""
        if self._throttle.is_due(text):
            extra = fields(events.BROKER_FAILED, hint=hint)
            log.error("%s%s", text, f" ({hint})" if hint else "", extra=extra)

    def _failed(self, error: Exception) -> BrokerUnavailable:
        text, hint = _reason(error)
        if not self.reason:
            self._since = clock.monotonic()
            log.error(
                "Redis is unavailable: %s%s",
                text,
                f" ({hint})" if hint else "",
                extra=fields(events.BROKER_FAILED, hint=hint),
            )
        else:
            self._failures += 1  # the first attempt after a lost connection is made at once
        self.reason = text
        self.generation += 1
        if self._failures:
            self._next_deadline = clock.monotonic() + _BACKOFF.delay_s(self._failures)
        if self._sentinel is not None:  # the first Sentinel may be cut off from the others
            self._sentinel.sentinels.append(self._sentinel.sentinels.pop(0))
        return BrokerUnavailable(text, hint=hint or None)

    def _succeeded(self) -> None:
        if self.reason:
            lasted_s = clock.monotonic() - self._since
            extra = fields(events.BROKER_HEALED)
            log.warning("Redis is available again after %.1f s", lasted_s, extra=extra)
        self.reason = ""
        self._failures = 0
        self._next_deadline = 0.0

    def close(self) -> None:
        """Close all connections; the next command makes a new one.

        No other task may use one meanwhile: redis-py would raise AttributeError there.
        """
        for connection in tuple(self._connections):
            close: Any = connection._close  # redis-py's public way is asynchronous, and waits
            close()


def _raise_if_cancelled() -> None:
    """Raise CancelledError if this task is cancelled: before Python 3.12 asyncio.wait_for, which
    redis-py uses, swallows a cancellation if what it waits for ends just then.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _options(timeout_s: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "socket_keepalive_options": _KEEPALIVE,
        "health_check_interval": _HEALTH_CHECK_S,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _tls(address: RedisAddress) -> dict[str, Any]:
    files = {
        "ssl_ca_certs": address.ca,
        "ssl_certfile": address.certificate,
        "ssl_keyfile": address.key,
    }
    return {name: str(file) for name, file in files.items() if file and address.tls}


def _reason(error: Exception) -> tuple[str, str]:
    """The text of an error for the log, and the next step."""
    if isinstance(error, MasterNotFoundError):
        return str(error), _SENTINEL_HINT if error.__cause__ else ""
    if isinstance(error, ResponseError):
        return describe(error), ""
    text = str(error) or type(error).__name__
    return text, _LOGIN_HINT if isinstance(error, AuthenticationError) else ""
