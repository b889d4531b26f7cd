"""What there is too little of: connections, places on the server, room on its disk."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.contract.store.stores import balance
from tests.integration.postgres.parts import Wire, changes_in, deposit, deposit_solo, opened
from tests.integration.store.parts import needs_root
from tests.servers.postgres import PostgresServer
from tests.servers.process import as_user
from tests.waiting import until_async

from cordata.errors import StoreFull, StoreUnavailable
from cordata.store import Tx, UnitMisuse
from cordata.store.postgres.fault import ServerFull


async def test_units_wait_their_turn_when_there_are_more_than_connections(database: str) -> None:
    async with opened(database, pool_size=2, write_timeout_s=60.0) as store:
        await asyncio.gather(
            *(deposit(store, f"u{n}") for n in range(200)),
            *(deposit_solo(store, f"s{n}") for n in range(50)),
            *(store.read(lambda tx: tx.fetch_one("entry.count")) for _ in range(200)),
        )
        row = await store.read(lambda tx: tx.fetch_one("entry.count"))
        assert row is not None and row["count"] == 250


async def test_transactions_leave_a_connection_to_others_when_many_are_open(database: str) -> None:
    async with opened(
        database, pool_size=3, write_timeout_s=5.0, transaction_timeout_s=120.0
    ) as store:
        await deposit(store, "first")
        inside = asyncio.Semaphore(0)
        stop = asyncio.Event()

        async def hold(number: int) -> None:
            async with store.transaction() as tx:
                await tx.execute("account.add", id=f"h{number}", balance=0)
                inside.release()
                await stop.wait()
                # What they do inside needs a second connection each.
                assert await store.read(lambda tx: tx.fetch_one("entry.count")) is not None

        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(hold(number))
                await inside.acquire()
            await deposit(store, "meanwhile")
            with pytest.raises(StoreUnavailable, match="too many transactions"):
                await deposit_solo(store, "one too many")
            assert store.stats().state == "ok"
            stop.set()
        await deposit_solo(store, "after")


async def test_first_write_is_refused_when_its_block_was_left_while_it_waited(
    database: str,
) -> None:
    async with opened(database, pool_size=2) as store:
        async with store.transaction() as holder:  # has the only slot
            await holder.execute("account.add", id="held", balance=0)
            async with store.transaction() as tx:
                write = asyncio.ensure_future(tx.execute("account.add", id="late", balance=0))
                await asyncio.sleep(0)  # it waits for the slot now
        with pytest.raises(UnitMisuse, match="after its block"):
            await write
        await deposit_solo(store, "after")
        assert await balance(store, "late") is None


async def test_transaction_is_refused_when_it_waits_too_long_for_a_connection(
    postgres: PostgresServer, database: str
) -> None:
    """It holds no locks yet, so it must not be told that it held them for too long."""
    busy = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with opened(
        database, pool_size=2, write_timeout_s=0.5, transaction_timeout_s=0.05
    ) as store:
        reads = [
            asyncio.ensure_future(store.read(lambda tx: tx.fetch_all("forever"))) for _ in range(2)
        ]
        await until_async(lambda: postgres.execute(busy) == [(2,)])
        with pytest.raises(StoreUnavailable, match="connections are in use"):
            await deposit_solo(store, "no connection")
        assert store.stats().state == "ok"
        for read in reads:
            read.cancel()
        await asyncio.wait(reads)


async def test_store_makes_do_with_what_it_has_when_the_server_is_full() -> None:
    # One of them is the server's own, which makes databases.
    settings = {"max_connections": "9", "superuser_reserved_connections": "0"}
    with PostgresServer(settings=settings) as server, server.database() as url:
        async with opened(url, pool_size=6) as store:
            await deposit(store, "before")
            others = [psycopg.connect(url) for _ in range(6)]  # the listening one is ours, too
            try:
                with pytest.raises(psycopg.OperationalError):
                    psycopg.connect(url)
                await asyncio.gather(*(deposit_solo(store, f"n{n}") for n in range(40)))
                assert store.stats().state == "ok"
                with pytest.raises(StoreUnavailable, match=r"clients|slots") as caught:
                    async with opened(url):
                        pass
                assert "max_connections" in (caught.value.hint or "")
            finally:
                for other in others:
                    other.close()


async def test_all_are_told_at_once_when_the_server_is_full_and_the_pool_has_no_connection() -> (
    None
):
    """Also those that wait for a connection of the others: none will be released to them. They do
    not try it one after the other, which would keep a full server busy.
    """
    tries: list[bytes] = []

    def look(data: bytes) -> None:
        if b"user\0" in data:
            tries.append(data)

    settings = {"max_connections": "6", "superuser_reserved_connections": "0"}
    with PostgresServer(settings=settings) as server, server.database() as url:
        async with (
            Wire(server.port) as wire,
            opened(wire.url(url), migrate=False, pool_size=2, read_timeout_s=3600.0) as store,
        ):
            wire.look = look
            with ExitStack() as others:
                with pytest.raises(psycopg.OperationalError):
                    while True:
                        others.enter_context(psycopg.connect(url))
                reads = (store.read(lambda tx: tx.fetch_one("migration.table")) for _ in range(20))
                async with asyncio.timeout(60):
                    told = await asyncio.gather(*reads, return_exceptions=True)
            assert {type(error) for error in told} == {ServerFull}
            assert len(tries) == 2


@contextmanager
def small_disk(server: PostgresServer) -> Iterator[tuple[str, Path]]:
    """URL of a database on a file system of its own, and a file there to fill it with.

    In the server's own directory: every pytest that starts takes away others' right to pass
    through the directory that has the tests'.
    """
    disk = server.directory / "disk"
    disk.mkdir()
    user = as_user().get("user", 0)
    options = f"size=24m,mode=0700,uid={user}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=True)
    try:
        where = disk / "space"
        where.mkdir()
        shutil.chown(where, user)
        server.execute(f"CREATE TABLESPACE small LOCATION '{where}'")
        server.execute("CREATE DATABASE small TEMPLATE template0 TABLESPACE small")
        yield server.url("small"), disk / "filler"
        (disk / "filler").unlink(missing_ok=True)
        server.drop_database("small")
        server.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@needs_root
async def test_store_is_full_and_heals_by_itself_when_the_disk_of_the_server_is_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fill(tx: Tx) -> None:
        for number in range(300):
            await tx.write("entry.add", account_id="a", amount=1, note=f"{number}" + "." * 2000)

    settings = {"autovacuum": "off"}  # it would make room of what was undone
    with PostgresServer(settings=settings) as server, small_disk(server) as (url, filler):
        async with opened(url) as store:
            await deposit(store, "before")
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
                while True:
                    file.write(b"x" * 4096)
            with pytest.raises(StoreFull) as caught:
                for _ in range(10):
                    await store.run(fill)
            assert "space" in (caught.value.hint or "")
            with pytest.raises(StoreFull):
                await deposit(store, "refused at once")
            # Whoever only reads is not concerned.
            row = await store.read(lambda tx: tx.fetch_one("entry.count"))
            assert row is not None and row["count"] == 1
            await asyncio.sleep(2)  # some probes
            assert {state for state, _ in changes_in(caplog)} == {"full"}
            filler.unlink()
            await until_async(lambda: store.stats().state == "ok")
            await store.run(fill)
            assert [state for state, _ in changes_in(caplog)] == ["full", "ok"]
