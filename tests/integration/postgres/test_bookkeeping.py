"""What need not wait for the disk, and whose plans the server keeps."""

from __future__ import annotations

from tests.queries import queries_of
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

from cordata.config.sections import StoreConfig
from cordata.store import Bookkeeping, Chain, Tx
from cordata.store.postgres.store import PostgresStore

_SQL = "tests.integration.postgres.sql"
_SETTINGS = ("synchronous_commit", "plan_cache_mode", "enable_seqscan")


async def settings_of(
    store: PostgresStore, *, bookkeeping: Bookkeeping | None, outlive_crash: bool = False
) -> list[str]:
    async def unit(tx: Tx) -> list[str]:
        found = []
        if outlive_crash:
            await tx.write("stream.outlive_crash")
        for name in _SETTINGS:
            row = await tx.fetch_one("setting", name=name)
            assert row is not None
            found.append(str(row["value"]))
        await tx.execute("kv.raise_all", by=1)  # nothing that could share a transaction
        return found

    return await store.run(unit, bookkeeping=bookkeeping)


async def check(url: str, session_url: str = "", *, commit: str = "on") -> None:
    config = StoreConfig(
        url=url, session_url=session_url, prepared_statements=not session_url, pool_size=2
    )
    queries = queries_of("postgres", _SQL)
    async with await PostgresStore.open(config, queries=queries) as store:
        await store.migrate([Chain("serial", _SQL)])
        for _ in range(3):  # no setting stays behind
            assert await settings_of(store, bookkeeping="fleeting") == ["off", "auto", "off"]
            assert await settings_of(store, bookkeeping="lasting") == [commit, "auto", "off"]
            assert (await settings_of(store, bookkeeping=None))[0] == commit
            for kind in ("fleeting", "lasting", None):  # a unit that finds that it has to last
                found = await settings_of(store, bookkeeping=kind, outlive_crash=True)
                assert found[0] == commit


async def test_only_bookkeeping_need_not_wait_for_the_disk(database: str) -> None:
    await check(database)


async def test_unit_waits_as_long_as_the_server_was_told_to(database: str) -> None:
    await check(f"{database}?options=-c%20synchronous_commit%3Dlocal", commit="local")


async def test_only_bookkeeping_keeps_the_plan_of_a_statement_without_parameters(
    database: str,
) -> None:
    queries = queries_of("postgres", _SQL)
    statement = queries.by_name["kv.all"].sql

    async def unit(tx: Tx) -> int:
        await tx.fetch_all("kv.all")
        row = await tx.fetch_one("kept", statement=statement)
        await tx.execute("kv.raise_all", by=1)  # nothing that could share a transaction
        assert row is not None
        return int(row["count"])

    config = StoreConfig(url=database, pool_size=2)
    async with await PostgresStore.open(config, queries=queries) as store:
        await store.migrate([Chain("serial", _SQL)])
        assert [await store.run(unit) for _ in range(3)] == [0, 0, 0]
        assert await store.read(lambda tx: tx.fetch_all("kv.all")) == []
        assert await store.run(unit, bookkeeping="fleeting") == 1


async def test_read_keeps_its_plan_when_its_statement_says_so(database: str) -> None:
    queries = queries_of("postgres", _SQL)
    config = StoreConfig(url=database, pool_size=2)  # one for reads

    async def plans(store: PostgresStore, name: str) -> tuple[int, str]:
        statement = queries.by_name[name].sql
        row = await store.read(lambda tx: tx.fetch_one("plans", statement=statement))
        assert row is not None
        return int(row["kept"]), str(row["seqscan"])

    async with await PostgresStore.open(config, queries=queries) as store:
        await store.migrate([Chain("serial", _SQL)])
        await store.run(lambda tx: tx.execute("kv.add", k="a", v=1))
        for _ in range(10):
            row = await store.read(lambda tx: tx.fetch_one("kv.look", k="a"))
            assert row is not None and dict(row) == {"v": 1, "seqscan": "off"}
            assert await store.read(lambda tx: tx.fetch_one("kv.get", k="a"))
        assert await plans(store, "kv.look") == (5, "on")  # the server tries five others first
        assert await plans(store, "kv.get") == (0, "on")


async def test_the_same_is_true_behind_a_proxy_that_shares_sessions_out() -> None:
    with PostgresServer() as server, PgBouncer(server) as proxy, server.database() as url:
        await check(proxy.url(url.rpartition("/")[2]), session_url=url)
