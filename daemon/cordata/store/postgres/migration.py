"""Runs migration scripts on PostgreSQL: each in one transaction, one process at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cordata.errors import ConfigError, CordataError, StoreUnavailable
from cordata.store.fence import Fence, require_newest
from cordata.store.migrate import Migration, SchemaError, bootstrap_script
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ConnectionLost, ServerError, connection_lost, translate
from cordata.store.postgres.probe import LivenessProbe
from cordata.store.postgres.result import encode
from cordata.store.postgres.unit_runner import Resources
from cordata.store.queries import split

_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('cordata migration', 0))"
#: While a statement waits for a table's lock, all later users of the table wait behind it. So it
#: gives up after this time; the migration is tried again. If the process is killed, the server ends
#: its statement within a second: the next primary waits for it.
_SETTINGS = (
    "SELECT set_config('lock_timeout', '5s', true),"
    " set_config('client_connection_check_interval', '1s', true)"
)
#: A migration may have run for hours, so it is not given up for an attempt to connect that fails
#: since the server is busy, the network is interrupted, or the name is not resolved.
_PATIENCE_S = 60.0


class Migrator:
    """Runs scripts, each on a separate session, since they may change its settings.

    One may take hours, so it has no time limit, but it ends when the server accepts no connection
    for a minute.
    """

    def __init__(self, resources: Resources) -> None:
        self._connect = resources.connector.connect_session
        self._queries = resources.queries.by_name
        self._now_us = resources.clock.now_us
        self._liveness = LivenessProbe(resources, self._connect, patience_s=_PATIENCE_S)

    async def bootstrap(self) -> None:
        """Create the tables that come before all migrations, if they are missing."""
        script = bootstrap_script("postgres")
        await self._in_transaction("bootstrap", lambda connection: connection.run_script(script))

    async def apply_one(self, migration: Migration, fence: Fence | None) -> bool:
        """Apply one migration and record it. False: another process has applied it.

        Raises: SchemaError naming file and statement; LeaseLost; StoreUnavailable.
        """
        done = True

        async def work(connection: Connection) -> None:
            nonlocal done
            if fence is not None:
                rows = await self._fetch(connection, "lease.lock")
                require_newest(fence, rows[0]["term"] if rows else None)
            key = {"component": migration.component, "number": migration.number}
            if await self._fetch(connection, "migration.done", **key):
                done = False
                return
            await _run(connection, migration)
            await self._fetch(
                connection,
                "migration.add",
                **key,
                name=migration.name,
                digest=migration.digest,
                applied_at=self._now_us(),
            )

        await self._in_transaction(f"migration {migration}", work)
        return done

    async def _fetch(
        self, connection: Connection, name: str, /, **params: object
    ) -> list[dict[str, Any]]:
        query = self._queries[name]
        values = [encode(value) for value in query.values(params)]
        return (await connection.execute(query.sql, values)).rows()

    async def _in_transaction(
        self, what: str, work: Callable[[Connection], Awaitable[None]]
    ) -> None:
        connection = await self._connect()
        try:
            with self._liveness.watch(connection):
                connection.send("BEGIN ISOLATION LEVEL READ COMMITTED")
                connection.send(_ALONE)
                connection.send(_SETTINGS)
                await connection.sync()
                await work(connection)
                await connection.execute("COMMIT")
        except ServerError as error:
            raise _explained(error, what) from error
        except ConnectionLost as error:
            raise connection_lost(f"{what}: {error}") from None
        finally:
            connection.close()


async def _run(connection: Connection, migration: Migration) -> None:
    try:
        await connection.run_script(migration.script)
    except ServerError as error:
        explained = _explained(error, f"migration {migration}")
        if isinstance(explained, StoreUnavailable):
            raise explained from error
        statements = split(migration.script)
        first = " ".join(statements[error.position].split())[:120] if statements else ""
        raise SchemaError(str(explained), hint=f"the statement: {first}") from error
    if not connection.in_transaction:
        raise SchemaError(f"migration {migration}: a script must not commit or roll back")


def _explained(error: ServerError, what: str) -> CordataError:
    explained = translate(error.fault, what)
    if isinstance(explained, StoreUnavailable | ConfigError):
        return explained
    return SchemaError(str(explained))
