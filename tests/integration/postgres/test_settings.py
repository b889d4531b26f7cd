"""Settings of transactions: what waits for the disk, and whose plans the server keeps."""

from __future__ import annotations

from tests.queries import queries_of
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

from cordata.config.sections import StoreConfig
from cordata.store import Chain, Tx
from cordata.store.postgres.store import PostgresStore

_SQL = "tests.integration.postgres.sql"
_SETTINGS = ("synchronous_commit", "plan_cache_mode", "enable_seqscan")


async def settings_of(store: PostgresStore, *, unsynced: bool = False) -> list[str]:
    async def unit(tx: Tx) -> list[str]:
        found = []
        if unsynced:
            await tx.write("commit.unsynced")
        for name in _SETTINGS:
            row = await tx.fetch_one("setting", name=name)
            assert row is not None
            found.append(str(row["value"]))
        return found

    return await store.run(unit)


async def check(url: str, session_url: str = "", *, commit: str = "on") -> None:
    config = StoreConfig(
        url=url, session_url=session_url, prepared_statements=not session_url, pool_size=2
    )
    queries = queries_of("postgres", _SQL)
    async with await PostgresStore.open(config, queries=queries) as store:
        await store.migrate([Chain("serial", _SQL)])
        for _ in range(3):  # no setting stays behind
            assert await settings_of(store, unsynced=True) == ["off", "auto", "off"]
            assert await settings_of(store) == [commit, "auto", "off"]


async def test_only_a_unit_that_says_so_need_not_wait_for_the_disk(database: str) -> None:
    await check(database)


async def test_unit_waits_as_long_as_the_server_was_told_to(database: str) -> None:
    await check(f"{database}?options=-c%20synchronous_commit%3Dlocal", commit="local")


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
