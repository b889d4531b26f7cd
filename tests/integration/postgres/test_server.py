"""The server goes away: stopped, killed, suspended, restarted under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.integration.postgres.parts import (
    Load,
    Wire,
    changes_in,
    deposit,
    notes_there,
    opened,
)
from tests.servers.postgres import USER, PostgresServer
from tests.waiting import until_async

from cordata.errors import StoreUnavailable, TransactionTimeout, Unclear
from cordata.store import Store, Tx

#: Whatever is bounded has come to its end by then.
HANG_S = 60.0


async def refusal(store: Store, note: str) -> StoreUnavailable:
    """What a deposit is refused with, in a bounded time."""
    with pytest.raises(StoreUnavailable) as caught:
        async with asyncio.timeout(HANG_S):
            await deposit(store, note)
    return caught.value


async def refused_at_once(store: Store, note: str) -> bool:
    """Whether a deposit is refused without waiting for anything."""
    task = asyncio.ensure_future(deposit(store, note))
    for _ in range(20):  # turns of the loop
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        return False
    return isinstance(task.exception(), StoreUnavailable)


async def test_store_refuses_at_once_and_heals_by_itself_when_the_server_was_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with PostgresServer() as server, server.database() as url:
        async with opened(url) as store:
            await deposit(store, "before")
            server.stop()
            assert (await refusal(store, "meanwhile")).retry_after_s > 0
            for number in range(5):
                assert await refused_at_once(store, f"{number}")
            with pytest.raises(StoreUnavailable):
                await store.read(lambda tx: tx.fetch_all("entry.notes"))
            assert store.stats().state == "unavailable"
            server.start()
            await until_async(lambda: store.stats().state == "ok")  # without traffic
            await deposit(store, "after")
            assert [state for state, _ in changes_in(caplog)] == ["unavailable", "ok"]
            why = changes_in(caplog)[0][1]
            assert "refused" in why or "terminat" in why
            assert sorted(notes_there(server, url)) == ["after", "before"]


async def test_store_heals_soon_when_none_of_many_connections_is_answered_any_more(
    postgres: PostgresServer, database: str
) -> None:
    """As after a failover from a host that hangs, whose kernel still acknowledges what it gets."""
    async with Wire(postgres.port) as wire:
        url = wire.url(database)
        async with opened(url, pool_size=30, write_timeout_s=1.0) as store:
            await deposit(store, "before")
            together = asyncio.Barrier(25)

            async def read() -> None:
                async with store.transaction() as tx:
                    await tx.fetch_all("account.get_to_share", id="a")
                    await together.wait()

            await asyncio.gather(*(read() for _ in range(20)), *(together.wait() for _ in range(5)))
            wire.freeze()
            await refusal(store, "meanwhile")
            await until_async(lambda: store.stats().state == "ok", 20.0)  # one each 2 s: 40 s
            await deposit(store, "after")


async def test_commit_does_not_wait_as_long_as_a_block_may_when_the_server_is_silent(
    postgres: PostgresServer, database: str
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(
            wire.url(database), write_timeout_s=0.5, transaction_timeout_s=3600.0
        ) as store:
            await deposit(store, "before")
            with pytest.raises(Unclear):
                async with asyncio.timeout(HANG_S), store.transaction() as tx:
                    await tx.execute("entry.add", account_id="a", amount=1, note="n")
                    wire.freeze()
            assert store.stats().state == "unavailable"


async def test_statement_does_not_wait_as_long_as_its_block_may_when_the_server_is_silent(
    postgres: PostgresServer, database: str
) -> None:
    async with Wire(postgres.port) as wire:
        async with opened(
            wire.url(database), write_timeout_s=0.5, transaction_timeout_s=3600.0
        ) as store:
            await deposit(store, "before")
            with pytest.raises(StoreUnavailable, match="no answer"):
                async with asyncio.timeout(HANG_S), store.transaction() as tx:
                    await tx.execute("entry.add", account_id="a", amount=1, note="n")
                    wire.freeze()
                    await tx.execute("entry.add", account_id="a", amount=1, note="m")
            assert store.stats().state == "unavailable"


@pytest.mark.parametrize("way", ["kill", "immediate", "fast"])
async def test_nothing_is_lost_and_nothing_is_done_twice_when_the_server_restarts_under_load(
    way: str,
) -> None:
    with PostgresServer() as server, server.database() as url:
        async with opened(url) as store:
            async with Load(store).running() as load:
                for _ in range(3):
                    await load.more()
                    if way == "kill":
                        server.kill()
                    elif way == "immediate":
                        server.stop(mode="immediate")
                    else:
                        server.stop(mode="fast")
                    await asyncio.sleep(0.05)
                    server.start()
                    await load.more()  # a store that flaps is tried less often
            there = notes_there(server, url)
        assert len(set(there)) == len(there)
        assert set(load.promised) <= set(there)


async def test_nobody_notices_when_connections_are_ended_under_load(
    postgres: PostgresServer, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with opened(database) as store:
        async with Load(store).running() as load:
            for _ in range(15):
                await load.more(20)
                postgres.terminate_backends(database=name)
        assert [str(error) for error in load.refused] == []
        assert sorted(notes_there(postgres, database)) == sorted(load.promised)


@contextmanager
def suspended(server: PostgresServer) -> Iterator[None]:
    """It answers nothing, and closes nothing."""
    server.suspend()
    try:
        yield
    finally:
        server.resume()


async def test_everything_is_bounded_when_the_server_is_suspended() -> None:
    with PostgresServer() as server, server.database() as url:
        async with opened(
            url,
            write_timeout_s=1.0,
            read_timeout_s=1.0,
            transaction_timeout_s=1.0,
            connect_timeout_s=2.0,
        ) as store:
            await deposit(store, "before")
            with pytest.raises(TransactionTimeout):
                async with store.transaction() as held:
                    await held.execute("entry.add", account_id="a", amount=1, note="held")
                    with suspended(server):
                        async with asyncio.timeout(HANG_S):
                            with pytest.raises(TransactionTimeout):
                                await held.fetch_all("entry.notes")
                            await refusal(store, "suspended")
                            assert await refused_at_once(store, "refused")
                            with pytest.raises((StoreUnavailable, TransactionTimeout)):
                                await store.read(lambda tx: tx.fetch_all("entry.notes"))
            await until_async(lambda: store.stats().state == "ok")
            await deposit(store, "after")
            there = notes_there(server, url)
            assert {"after", "before"} <= set(there) and "held" not in there


async def test_long_read_ends_early_only_when_the_server_is_gone() -> None:
    async def long(tx: Tx) -> object:
        return await tx.fetch_one("sleep", seconds=3)

    with PostgresServer() as server, server.database() as url:
        async with opened(url, read_timeout_s=600.0, connect_timeout_s=2.0) as store:
            row = await store.read(long)
            assert row is not None
            reading = asyncio.ensure_future(store.read(long))
            await asyncio.sleep(0.05)
            with suspended(server):
                async with asyncio.timeout(HANG_S):
                    with pytest.raises(StoreUnavailable):
                        await reading
            await until_async(lambda: store.stats().state == "ok")


async def test_closing_is_bounded_when_the_server_is_suspended() -> None:
    with PostgresServer() as server, server.database() as url:
        async with opened(url, write_timeout_s=1.0) as store:
            with suspended(server):
                waiting = asyncio.ensure_future(deposit(store, "x"))
                await asyncio.sleep(0.05)
                async with asyncio.timeout(HANG_S):
                    await store.close()
                with pytest.raises(StoreUnavailable):
                    await waiting


async def test_opening_says_why_when_the_server_cannot_be_used() -> None:
    with PostgresServer(password="secret") as server:
        url = server.url().replace(":secret@", "@")
        with pytest.raises(StoreUnavailable, match="password") as caught:
            async with opened(url, migrate=False):
                pass
        assert "store-password" in (caught.value.hint or "")
        server.stop()
        with pytest.raises(StoreUnavailable, match="refused"):
            async with opened(url, migrate=False):
                pass


@pytest.mark.parametrize(
    ("user", "name", "lacks", "next_step"),
    [
        (USER, "nowhere", 'database "nowhere" does not exist', "create the database"),
        ("nobody", "postgres", 'role "nobody" does not exist', "the url names must exist"),
    ],
)
async def test_error_has_the_next_step_when_the_server_lacks_what_the_url_names(
    postgres: PostgresServer, user: str, name: str, lacks: str, next_step: str
) -> None:
    url = postgres.url(name).replace(f"//{USER}@", f"//{user}@")
    with pytest.raises(StoreUnavailable, match=lacks) as caught:
        async with opened(url):
            pass
    assert next_step in (caught.value.hint or "")
