"""A dump of the database, restored in another cluster: everything goes on from there."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from tests.integration.engine.parts import publish, until
from tests.integration.engine.stores import use
from tests.integration.eventstore.ledger import (
    CHAINS,
    app,
    deposit,
    deposit_many,
    opened,
    rows,
    running,
)
from tests.servers.postgres import PostgresServer, find_programs

from cordata.eventstore import EventLog, EventStore, NewEvent
from cordata.store import Store


def run(program: str, *options: str) -> None:
    done = subprocess.run([find_programs() / program, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def dumped(database: str, state: Path, dump: Path) -> None:
    """20 events that are handled, 3 that are not, one that is not committed; 10 messages."""
    use(state, database)
    async with opened(state) as store:
        await deposit_many(store, 4, 5)
        async with running(store, state, app):
            await until(lambda: _handled(store, 20))
        await deposit(store, "account-0", 6, 7, 8)
        await publish(store, 10)
        async with store.transaction() as tx:
            late = NewEvent(type="deposited", payload={"amount": 1000})
            await EventStore(tx).append("account-1", [late], expected=5)
            await EventStore(tx).version("account-1")  # so that the server has it
            await asyncio.to_thread(run, "pg_dump", "-Fc", "-f", str(dump), "-d", database)


async def test_everything_goes_on_when_a_dump_is_restored_in_another_cluster(
    database: str, tmp_path: Path
) -> None:
    old, new, dump = tmp_path / "old", tmp_path / "new", tmp_path / "cordata.dump"
    old.mkdir()
    new.mkdir()
    await dumped(database, old, dump)
    with PostgresServer() as server:
        url = server.url(server.create_database())
        run("pg_restore", "--no-owner", "--exit-on-error", "-d", url, str(dump))
        use(new, url)
        async with opened(new, migrate=False) as store:
            assert await store.pending(CHAINS) == []
            highest = await EventLog(store).head()
            async with running(store, new, app):
                await until(lambda: _handled(store, 23))
                assert (
                    await deposit(store, "account-1", 6) == 6
                )  # what was not committed is not there
                await until(lambda: _handled(store, 24))
            handled = await rows(store, "ledger.handled")
            assert handled[-1]["position"] > highest
            assert len({row["position"] for row in handled}) == 24
            totals = {row["stream"]: row["total"] for row in await rows(store, "ledger.balances")}
            assert totals["account-0"] == 36 and totals["account-1"] == 21
            assert len(await publish(store, 5)) == 5  # with ids that no entry has


async def _handled(store: Store, count: int) -> bool:
    return len(await rows(store, "ledger.handled")) >= count
