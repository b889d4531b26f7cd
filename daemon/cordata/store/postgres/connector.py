"""Makes connections: finds the server, checks its version, sends our settings."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg

from cordata import clock
from cordata.config.sections import StoreConfig
from cordata.errors import CordataError, StoreUnavailable
from cordata.store.health import Busy
from cordata.store.postgres.address import Address
from cordata.store.postgres.clock import ASK, FleetClock
from cordata.store.postgres.connection import Connection, OnNotify
from cordata.store.postgres.fault import (
    ConnectionLost,
    Fault,
    ServerError,
    server_unreachable,
    translate,
)
from cordata.store.postgres.transaction import HISTORY, Settings

_LOOK = (
    f"SELECT {ASK} AS now_us, current_setting('server_version_num')::int AS version,"
    f" CASE WHEN pg_is_in_recovery() THEN '' ELSE {HISTORY} END AS history"
)
#: `idle_session_timeout` came with 14, and older versions are no longer maintained.
_OLDEST = 140_000
#: Part of libpq's error -> SQLSTATE, which libpq does not give for a refused connection.
_TEXTS = {
    "too many clients": "53300",
    "remaining connection slots": "53300",
    "too many connections": "53300",
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    'FATAL: role "': "28000",  # it does not exist, or has no LOGIN
    "does not exist": "3D000",
}


class Connector:
    """Makes connections of both kinds."""

    def __init__(
        self, transactions: Address, sessions: Address, config: StoreConfig, clock: FleetClock
    ) -> None:
        self._transactions = transactions
        self._sessions = sessions
        self._config = config
        self._clock = clock
        self.settings = Settings(config, proxied=transactions.proxied)

    async def connect(self) -> Connection:
        """A connection for transactions, perhaps through a proxy. Raises: StoreUnavailable."""
        return await self._connect(
            self._transactions,
            prepare=self._config.prepared_statements,
            own=not self.settings.proxied,
        )

    async def connect_session(self, on_notify: OnNotify | None = None) -> Connection:
        """A separate session, never through a proxy. Raises: StoreUnavailable."""
        return await self._connect(self._sessions, prepare=False, own=False, on_notify=on_notify)

    async def measure(self, connection: Connection) -> None:
        """Query the server's time, for the clock."""
        sent = clock.monotonic()
        row = (await connection.execute(f"SELECT {ASK} AS now_us")).rows()[0]
        self._clock.measured(row["now_us"], sent=sent, received=clock.monotonic())

    async def _connect(
        self,
        address: Address,
        *,
        prepare: bool,
        own: bool,
        on_notify: OnNotify | None = None,
    ) -> Connection:
        """Connect, at most twice: a server that shuts down may end a new session at once."""
        with suppress(ConnectionLost):
            return await self._connect_once(address, prepare, own, on_notify)
        try:
            return await self._connect_once(address, prepare, own, on_notify)
        except ConnectionLost as error:
            raise server_unreachable(str(error)) from None

    async def _connect_once(
        self, address: Address, prepare: bool, own: bool, on_notify: OnNotify | None
    ) -> Connection:
        hosts = str(address.params.get("host", "")).count(",") + 1
        limit_s = float(address.params["connect_timeout"]) * hosts + 1
        raw: psycopg.AsyncConnection[Any] | None = None
        try:
            async with asyncio.timeout(limit_s):
                raw = await psycopg.AsyncConnection.connect(
                    autocommit=True, prepare_threshold=None, **address.params
                )
                connection = Connection(raw, prepare=prepare, on_notify=on_notify)
                try:
                    await self._look(connection, own=own)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise server_unreachable(f"no answer within {limit_s:g} s") from None
        except ServerError as error:
            if error.fault.session_ended:
                raise ConnectionLost(error.fault.message) from None
            raise store_unavailable(translate(error.fault, "connecting")) from None
        except psycopg.Error as error:
            raise connect_error(error) from None
        except OSError as error:
            raise server_unreachable(f"{error.strerror or error}") from None
        return connection

    async def _look(self, connection: Connection, *, own: bool) -> None:
        if own:
            self.settings.send_session(connection)
        connection.send(_LOOK)
        sent = clock.monotonic()
        row = (await connection.sync())[-1].rows()[0]
        self._clock.measured(row["now_us"], sent=sent, received=clock.monotonic())
        connection.history = row["history"]
        if row["version"] < _OLDEST:
            raise StoreUnavailable(
                f"the database server is PostgreSQL {row['version'] // 10_000}",
                hint="PostgreSQL 14 or newer is needed",
            )


def store_unavailable(error: CordataError) -> StoreUnavailable:
    """The error for a connection that could not be made, as StoreUnavailable and never as Busy."""
    if isinstance(error, StoreUnavailable) and not isinstance(error, Busy):
        return error
    return StoreUnavailable(str(error), hint=error.hint)


def connect_error(error: psycopg.Error) -> Exception:
    """The caller's error for a connection that could not be made; ConnectionLost: try again."""
    text = " ".join(str(error).split())
    if "terminating connection due to administrator command" in text:
        return ConnectionLost(text)
    for words, sqlstate in _TEXTS.items():
        if words in text:
            return store_unavailable(translate(Fault(sqlstate, text), "connecting"))
    return server_unreachable(text)
