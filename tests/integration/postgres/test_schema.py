"""Migrations while others are at work: two that migrate at once, old code on the new schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.parts import Wire, child
from tests.raw import raw
from tests.servers.postgres import PostgresServer
from tests.waiting import until_async

from cordata.config.sections import StoreConfig
from cordata.errors import StatementError, StoreUnavailable
from cordata.store import Chain, Queries, SchemaError, Tx
from cordata.store.postgres import migration
from cordata.store.postgres.store import PostgresStore

QUERIES = """
-- name: shop.add
INSERT INTO shop (name) VALUES (:name);
-- name: shop.all
SELECT * FROM shop WHERE name <> :name;
-- name: shop.rename
UPDATE shop SET name = :name WHERE name = :old RETURNING *;
"""


class Shop:
    """An application whose migrations the test writes."""

    def __init__(self, folder: Path) -> None:
        self.chain = Chain("shop", folder.name)
        self._migrations = folder / "postgres" / "migrations"
        self._migrations.mkdir(parents=True)
        (folder / "postgres" / "shop.sql").write_text(QUERIES)
        self.write("0001_shop.sql", "CREATE TABLE shop (name TEXT NOT NULL UNIQUE);")

    def write(self, name: str, script: str) -> None:
        """Add a migration."""
        (self._migrations / name).write_text(script)

    @asynccontextmanager
    async def opened(self, url: str, **settings: Any) -> AsyncIterator[PostgresStore]:
        """A store of the application."""
        queries = Queries.load([self.chain.package], "postgres")
        config = StoreConfig(url=url, **settings)
        async with await PostgresStore.open(config, queries=queries) as store:
            yield store


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The application."""
    folder = tmp_path / "code" / f"shop_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(folder.parent))
    return Shop(folder)


async def test_each_migration_is_applied_once_when_two_processes_migrate_at_once(
    postgres: PostgresServer, database: str
) -> None:
    async with child("migrate", database, "one") as one, child("migrate", database, "two") as two:
        one.go()
        two.go()
        said = [await one.line(), await two.line()]
    assert all(words[0] == "applied" for words in said)
    name = database.rpartition("/")[2]
    (count,) = postgres.execute("SELECT count(*) FROM migration", database=name)
    assert sum(int(words[1]) for words in said) == count[0] > 0


async def test_old_code_goes_on_when_the_schema_grows_under_it(database: str, shop: Shop) -> None:
    """Also statements that are prepared already and whose columns are not the same any more."""
    added: list[str] = []
    stop = False

    async def work(store: PostgresStore, number: int) -> None:
        count = 0
        while not stop:
            count += 1
            name = f"{number}-{count}"

            async def unit(tx: Tx, name: str = name) -> None:
                await tx.execute("shop.add", name=name)
                assert await tx.fetch_one("shop.rename", old=name, name=f"{name}!") is not None

            await store.run(unit)
            added.append(f"{name}!")
            rows = await store.read(lambda tx: tx.fetch_all("shop.all", name="x"))
            assert len(rows) >= count
            async with store.transaction() as tx:
                await tx.fetch_one("shop.rename", old=f"{name}!", name=f"{name}?")
                await asyncio.sleep(0.001)
                found = await tx.fetch_all("shop.all", name="x")
                assert len(found) >= count
            added[added.index(f"{name}!")] = f"{name}?"

    async with shop.opened(database) as old, shop.opened(database) as new:
        await new.migrate([shop.chain])
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(work(old, number))
            await until_async(lambda: len(added) > 40)
            for number, script in enumerate(
                (
                    "ALTER TABLE shop ADD COLUMN city TEXT;",
                    "ALTER TABLE shop ADD COLUMN stars BIGINT NOT NULL DEFAULT 3;\n"
                    "CREATE INDEX shop_city ON shop (city);",
                ),
                start=2,
            ):
                shop.write(f"{number:04d}_more.sql", script)
                async with shop.opened(database) as newer:
                    applied = await newer.migrate([shop.chain])
                assert [entry.number for entry in applied] == [number]
                before = len(added)
                await until_async(lambda before=before: len(added) > before + 40)  # type: ignore[misc]
            stop = True
        rows = await new.read(lambda tx: tx.fetch_all("shop.all", name="x"))
        assert sorted(row["name"] for row in rows) == sorted(added)
        assert {row["stars"] for row in rows} == {3}


async def test_migration_gives_way_when_somebody_uses_the_table(database: str, shop: Shop) -> None:
    """Waiting behind a long reader, it would keep all others waiting as well."""
    async with shop.opened(database) as store:
        await store.migrate([shop.chain])
        shop.write("0002_more.sql", "ALTER TABLE shop ADD COLUMN city TEXT;")
        with psycopg.connect(database) as reader:
            reader.execute("SELECT * FROM shop")
            async with asyncio.timeout(60):
                with pytest.raises(StoreUnavailable, match="lock"):
                    async with shop.opened(database) as newer:
                        await newer.migrate([shop.chain])
            assert store.stats().state == "ok"
        async with shop.opened(database) as newer:
            assert len(await newer.migrate([shop.chain])) == 1


async def test_error_of_a_script_names_the_statement_and_no_value(
    database: str, shop: Shop
) -> None:
    shop.write(
        "0002_bad.sql",
        "CREATE FUNCTION f() RETURNS INTEGER LANGUAGE sql AS $$ SELECT 1; SELECT 2; $$;\n"
        "-- a comment; with a semicolon\n"
        "INSERT INTO shop VALUES ('a;b');\n"
        "INSERT INTO shop VALUES ('secret'), ('secret'); -- twice\n"
        "SELECT 1;",
    )
    async with shop.opened(database) as store:
        with pytest.raises(SchemaError, match="unique constraint") as caught:
            await store.migrate([shop.chain])
        assert "secret" not in str(caught.value)
        assert "INSERT INTO shop VALUES ('secret'), ('secret')" in (caught.value.hint or "")
        assert not await store.schema_current([shop.chain])


async def test_copy_from_or_to_the_client_is_refused(database: str, shop: Shop) -> None:
    """libpq would say for ever that the server waits for rows, or has some."""
    async with shop.opened(database) as store:
        await store.migrate([shop.chain])
        shop.write("0002_rows.sql", "SELECT 1; COPY shop FROM stdin;")
        async with shop.opened(database) as newer:
            with pytest.raises(SchemaError, match="0002_rows: COPY FROM STDIN") as caught:
                await newer.migrate([shop.chain])
            assert caught.value.hint == "the statement: COPY shop FROM stdin;"
        runs: list[str] = []

        async def copy(tx: Tx) -> None:
            runs.append("copy")
            await raw(tx, "COPY shop TO stdout")

        batched = partial(store.run, batch=True)
        for run, expected in ((store.run, 1), (store.read, 1), (batched, 2)):  # 2: also alone
            runs.clear()
            with pytest.raises(StatementError, match="COPY TO STDOUT"):
                await run(copy)
            assert len(runs) == expected
        assert store.stats().state == "ok"


async def test_migration_ends_when_the_server_does_not_answer_any_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time limit would do: a migration may take hours."""
    monkeypatch.setattr(migration, "_PATIENCE_S", 1.0)
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    shop.write("0002_slow.sql", "SELECT pg_sleep(3600);")
    with PostgresServer() as server, server.database() as url:
        async with shop.opened(url, connect_timeout_s=2.0) as store:
            migrating = asyncio.ensure_future(store.migrate([shop.chain]))
            await until_async(lambda: server.execute(asleep) == [(1,)])
            server.suspend()
            try:
                async with asyncio.timeout(60):
                    with pytest.raises(StoreUnavailable, match="0002_slow: the server accepts no"):
                        await migrating
            finally:
                server.resume()
            await until_async(lambda: store.stats().state == "ok")


async def test_migration_goes_on_when_the_server_accepts_no_connection_for_a_moment(
    postgres: PostgresServer, database: str, shop: Shop
) -> None:
    """It may have run for hours. The proxy is not asked at all: its session goes past it."""
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    wait = "WHILE NOT EXISTS (SELECT FROM go) LOOP PERFORM pg_sleep(0.1); END LOOP;"
    shop.write("0002_slow.sql", f"DO $$ BEGIN {wait} END $$;")
    accepts, refused, accepted = False, 0, 0

    def look(data: bytes) -> bool | None:
        nonlocal refused, accepted
        refused, accepted = refused + (not accepts), accepted + accepts
        return None if accepts else False

    with psycopg.connect(database, autocommit=True) as other:
        other.execute("CREATE TABLE go ()")
        async with Wire(postgres.port) as proxy, Wire(postgres.port) as wire:
            async with shop.opened(
                proxy.url(database), session_url=wire.url(database), pool_size=4
            ) as store:
                migrating = asyncio.ensure_future(store.migrate([shop.chain]))
                await until_async(lambda: postgres.execute(asleep) == [(1,)])
                proxy.look, wire.look = lambda data: False, look
                await until_async(lambda: refused > 0)
                accepts = True
                await until_async(lambda: accepted > 0)
                proxy.look = lambda data: None
                other.execute("INSERT INTO go DEFAULT VALUES")
                await migrating
                assert store.stats().state == "ok"
