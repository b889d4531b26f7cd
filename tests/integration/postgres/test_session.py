"""The session of a process: wake-ups, the server's clock, what idling costs."""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Any

import pytest
from tests.integration.postgres.parts import Wire, deposit, opened
from tests.raw import raw
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.waiting import until_async

from cordata import clock
from cordata.errors import StoreUnavailable
from cordata.store import Tx
from cordata.store.postgres.fault import ConnectionLost


async def test_waiters_are_woken_when_the_session_is_there_again(
    postgres: PostgresServer, database: str
) -> None:
    """What was told while nobody listened is not missed: everybody looks once."""
    name = database.rpartition("/")[2]
    async with opened(database) as one, opened(database) as two:
        for _ in range(3):
            waiting = asyncio.ensure_future(two.wait("t", 60.0))
            await asyncio.sleep(0.05)
            first = two._notifier.pid
            postgres.terminate_backends(database=name)
            one.notify("t")  # both sessions are gone: it is told later, and missed or not
            assert await waiting is True
            await until_async(lambda first=first: two._notifier.pid not in (0, first))  # type: ignore[misc]
        while await two.wait("t", 0.5):
            pass
        one.notify("t")
        assert await two.wait("t", 60.0) is True


async def test_wake_up_is_sent_by_the_next_session_when_the_one_that_had_it_is_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database) as one, opened(database) as two:
        while await two.wait("t", 0.5):
            pass
        session = one._notifier._connection
        assert session is not None

        async def be_lost(*_: object) -> None:
            raise ConnectionLost("cut")

        monkeypatch.setattr(session, "execute", be_lost)
        one.notify("t")
        assert await two.wait("t", 30.0) is True


async def test_no_commit_is_missed_when_sessions_are_lost_again_and_again(
    postgres: PostgresServer, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with opened(database) as one, opened(database) as two:
        seen = 0

        async def watch() -> None:
            nonlocal seen
            while seen < 150:
                row = await two.read(lambda tx: tx.fetch_one("entry.count"))
                assert row is not None
                seen = row["count"]
                if seen < 150:
                    assert await two.wait("t", 60.0), f"lost the wake-up at {seen}"

        async def add(number: int) -> None:
            async def unit(tx: Tx) -> None:
                await tx.execute("account.add_once", id="a", balance=0)
                await tx.execute("entry.add", account_id="a", amount=1, note=f"{number}")
                tx.notify("t")

            await one.run(unit)

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            for number in range(150):
                await add(number)
                if number % 25 == 24:
                    postgres.terminate_backends(database=name)


async def test_wake_up_is_told_when_the_process_closes_its_store_at_once(database: str) -> None:
    async with opened(database) as one:
        await one.run(lambda tx: tx.fetch_one("entry.count"))
        async with opened(database) as two:
            two.notify("t")
            two.notify("t")
        assert await one.wait("t", 60.0) is True


async def test_each_wake_up_arrives_when_the_system_idles(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        for _ in range(50):
            waiting = asyncio.ensure_future(two.wait("t", 60.0))
            await asyncio.sleep(0.02)
            one.notify("t")
            assert await waiting is True


async def test_time_of_a_unit_is_that_of_the_server(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as store:
        off = store.now_us() - clock.now_us()
        assert abs(off) < 2_000_000  # one machine, one clock; half a round trip may be wrong
        seen: list[int] = []
        await store.run(lambda tx: _note(tx, seen))
        (told,) = postgres.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint")
        assert 0 <= told[0] - seen[0] + 2_000_000 < 60_000_000


async def _note(tx: Tx, seen: list[int]) -> None:
    seen.append(tx.now_us)


async def test_idle_stores_cost_nearly_nothing(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    # Not its statistics: an idle backend reports its transactions up to ten seconds later.
    ask = (
        "SELECT pid, query_start, query FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND backend_type = 'client backend' ORDER BY pid"
    )
    async with opened(database) as one, opened(database) as two:
        lease = one.lease(holder="one")
        assert await lease.try_acquire() is not None
        waiting = [asyncio.ensure_future(store.wait("t", 60.0)) for store in (one, two)]

        async def is_settled() -> bool:
            found = postgres.execute(ask)
            await asyncio.sleep(1)
            return postgres.execute(ask) == found

        await until_async(is_settled)
        before = postgres.execute(ask)
        used = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(6)
        spent = resource.getrusage(resource.RUSAGE_SELF)
        after = postgres.execute(ask)
        for task in waiting:
            task.cancel()
        cpu_s = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
        sys.stderr.write(f"\n2 idle stores, 6 s: {cpu_s:.3f} s\n")
        assert len(before) >= 3 and after == before  # no session was asked for anything
        assert cpu_s < 0.15
        assert lease.held
        await lease.release()


async def test_everything_works_through_a_proxy_that_shares_its_sessions_out() -> None:
    with PostgresServer() as server, PgBouncer(server, pool_size=3) as proxy:
        with server.database() as url:
            settings: Any = {"session_url": url, "prepared_statements": False}
            settings["write_timeout_s"] = 60.0  # all of them change one row
            through = proxy.url(url.rpartition("/")[2])
            async with opened(through, **settings) as one, opened(through, **settings) as two:
                await asyncio.gather(
                    *(
                        deposit(store, f"{store is one}{n}")
                        for n in range(60)
                        for store in (one, two)
                    )
                )
                async with one.transaction() as tx:
                    await tx.execute("entry.add", account_id="a", amount=1, note="solo")
                    tx.notify("t")
                assert await two.wait("t", 60.0) is True
                row = await two.read(lambda tx: tx.fetch_one("entry.count"))
                assert row is not None and row["count"] == 121
                lease, other = one.lease(holder="one"), two.lease(holder="two")
                fence = await lease.try_acquire()
                assert fence is not None and await other.try_acquire() is None
                await one.run(
                    lambda tx: tx.execute("account.add_once", id="f", balance=0), fence=fence
                )
                await lease.release()
                # No setting of ours stays behind in a session that others get.
                import psycopg

                for _ in range(6):
                    with psycopg.connect(through, prepare_threshold=None) as other_client:
                        found = other_client.execute(
                            "SELECT current_setting('statement_timeout'),"
                            " current_setting('idle_in_transaction_session_timeout')"
                        ).fetchone()
                        assert found == ("0", "0")


async def test_store_heals_when_the_proxy_was_restarted() -> None:
    with PostgresServer() as server, PgBouncer(server) as proxy, server.database() as url:
        through = proxy.url(url.rpartition("/")[2])
        async with opened(through, session_url=url, prepared_statements=False) as store:
            await deposit(store, "before")
            proxy.restart()
            await until_async(lambda: store.stats().state == "ok")
            await deposit(store, "after")
            server.terminate_backends()
            await deposit(store, "behind the proxy")


async def test_session_notices_a_server_that_is_silent_behind_a_wire_that_is_cut(
    postgres: PostgresServer, database: str
) -> None:
    async with Wire(postgres.port) as wire, opened(database) as one:
        async with opened(wire.url(database), write_timeout_s=2.0, connect_timeout_s=5.0) as store:
            await deposit(store, "before")
            wire.cut()
            async with asyncio.timeout(60):
                with pytest.raises(StoreUnavailable, match="no answer"):
                    await deposit(store, "cut off")
            assert store.stats().state == "unavailable"
            wire.mend()
            await until_async(lambda: store.stats().state == "ok")
            await deposit(store, "after")
        await deposit(one, "one")


async def test_connection_is_replaced_when_it_has_too_many_prepared_statements(
    database: str,
) -> None:
    """Each costs the server memory; a program may make ever new ones, by sets of columns."""
    most = 0

    async def unit(tx: Tx) -> int:
        for number in numbers:
            await raw(tx, f"SELECT {number} AS number")
        [row] = await raw(tx, "SELECT count(*) AS count FROM pg_prepared_statements")
        return int(row["count"])

    async with opened(database, pool_size=2) as store:
        for start in range(0, 3000, 200):
            numbers = range(start, start + 200)
            most = max(most, await store.run(unit))
    assert 400 < most < 1300
