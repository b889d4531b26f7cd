"""Two servers: one takes writes, the other follows it and takes over."""

from __future__ import annotations

import pytest
from tests.integration.postgres.parts import Load, deposit, notes_there, opened
from tests.servers.postgres import PostgresServer
from tests.waiting import until_async

from cordata.errors import StoreUnavailable


def both(one: PostgresServer, other: PostgresServer, database: str) -> str:
    """The url that names two servers."""
    return f"postgresql://cordata@127.0.0.1:{one.port},127.0.0.1:{other.port}/{database}"


def waits_for_the_standby(primary: PostgresServer) -> bool:
    """Whether some commit waits to be confirmed: the server has read its settings."""
    ask = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return primary.execute(ask) != [(0,)]


async def test_store_goes_on_with_the_standby_when_that_is_promoted() -> None:
    with PostgresServer() as primary, PostgresServer(standby_of=primary) as standby:
        name = primary.create_database()
        async with opened(both(primary, standby, name)) as store:
            async with Load(store).running() as load:
                await load.more(100)
                primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                primary.execute("SELECT pg_reload_conf()")
                standby.suspend()  # or a look would have to meet a wait of a millisecond
                await until_async(lambda: waits_for_the_standby(primary))
                standby.resume()
                await load.more(50)
                promised = set(load.promised)
                primary.kill()
                standby.promote()
                await load.more(100)
            there = notes_there(standby, standby.url(name))
            # Whatever was promised after the standby had to confirm it; the earlier ones it had.
            assert promised <= set(there) and set(load.promised) <= set(there)
            assert len(set(there)) == len(there)


async def test_store_leaves_a_server_that_takes_no_writes_any_more() -> None:
    """As when two of them change roles and the old one comes back as a standby."""
    with PostgresServer() as primary, PostgresServer(standby_of=primary) as standby:
        name = primary.create_database()
        async with opened(both(standby, primary, name)) as store:
            await deposit(store, "before")
            primary.wait_for_standby(standby)
            # No connection is lost: the server merely refuses from now on.
            primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            primary.execute("SELECT pg_reload_conf()")
            standby.promote()

            async def taken() -> bool:
                try:
                    await deposit(store, "after")
                except StoreUnavailable:
                    return False
                return True

            await until_async(taken)
            assert "after" in notes_there(standby, standby.url(name))


async def test_store_is_not_opened_when_its_only_server_takes_no_writes() -> None:
    with PostgresServer() as primary, PostgresServer(standby_of=primary) as standby:
        name = primary.create_database()
        async with opened(primary.url(name)) as store:
            await deposit(store, "before")
        primary.wait_for_standby(standby)
        with pytest.raises(StoreUnavailable) as caught:
            async with opened(standby.url(name), migrate=False):
                pass
        assert "standby" in (caught.value.hint or "")
        standby.promote()
        async with opened(standby.url(name)) as store:
            await deposit(store, "after")


async def test_store_heals_when_its_only_server_takes_writes_again(
    postgres: PostgresServer, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with opened(database) as store:
        await deposit(store, "before")
        postgres.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        postgres.terminate_backends(database=name)
        with pytest.raises(StoreUnavailable) as caught:
            await deposit(store, "refused")
        assert "standby" in (caught.value.hint or "")
        assert store.stats().state == "unavailable"
        postgres.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = off')
        await until_async(lambda: store.stats().state == "ok")
        await deposit(store, "after")
