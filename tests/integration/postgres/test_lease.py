"""The lease, when its holder is killed, suspended or cut off."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest
from tests.integration.postgres.parts import (
    Wire,
    child,
    deposit,
    notes_there,
    opened,
)
from tests.servers.postgres import PostgresServer
from tests.waiting import until_async

from cordata.clock import monotonic
from cordata.errors import LeaseLost, StoreUnavailable
from cordata.store import Lease, Tx
from cordata.store.postgres.lease import SILENT_S


def terms(notes: list[str]) -> list[int]:
    """The terms of the writes, in the order of the writes."""
    return [int(note.split()[0]) for note in notes if note.startswith("0")]


async def taken(lease: Lease) -> bool:
    """Try once."""
    return await lease.try_acquire() is not None


async def test_lease_is_free_at_once_when_its_holder_is_killed(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as store:
        await deposit(store, "account")
        lease = store.lease(holder="standby")
        for _ in range(3):
            async with child("hold", database, "killed") as holder:
                assert (await holder.line())[0] == "held"
                assert not await taken(lease)
                await asyncio.sleep(0.2)
                holder.send(signal.SIGKILL)
                await until_async(
                    lambda: taken(lease), SILENT_S
                )  # silent, it would have it for longer
                await lease.release()
        found = terms(notes_there(postgres, database))
        assert found == sorted(found) and len(set(found)) == 3


async def test_suspended_holder_is_succeeded_and_cannot_write_when_it_wakes_up(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as store:
        await deposit(store, "account")
        lease = store.lease(holder="standby")
        async with child("hold", database, "suspended") as holder:
            assert (await holder.line())[0] == "held"
            await asyncio.sleep(0.3)
            holder.send(signal.SIGSTOP)
            stopped = monotonic()
            await until_async(lambda: taken(lease))
            took = monotonic() - stopped
            sys.stderr.write(f"\na suspended holder was succeeded after {took:.1f} s\n")
            fence = await lease.try_acquire()
            assert fence is not None

            async def write(tx: Tx) -> None:
                note = f"{fence.term:06d} standby"
                await tx.execute("entry.add", account_id="a", amount=1, note=note)

            await store.run(write, fence=fence)
            holder.send(signal.SIGCONT)
            said = [(await holder.line())[0]]
            if said == ["refused"]:
                said = [(await holder.line())[0]]
            assert said == ["over"]
        found = terms(notes_there(postgres, database))
        assert found == sorted(found) and found[-1] == fence.term
        await lease.release()


async def test_holder_that_is_cut_off_knows_before_another_can_hold_the_lease(
    postgres: PostgresServer, database: str
) -> None:
    """The wire keeps both sockets open and answers for the dead side, as proxies do."""
    async with Wire(postgres.port) as wire, opened(database) as near:
        async with opened(wire.url(database), write_timeout_s=1.0) as far:
            cut_off, standby = far.lease(holder="cut off"), near.lease(holder="standby")
            stale = await cut_off.try_acquire()
            assert stale is not None
            await asyncio.sleep(2.2)
            assert cut_off.held and not await taken(standby)
            wire.cut()
            began = monotonic()
            await until_async(lambda: not cut_off.held)
            unheld = monotonic() - began
            assert not await taken(standby)  # nobody holds it for a while
            await until_async(lambda: taken(standby))
            succeeded = monotonic() - began
            sys.stderr.write(
                f"\ncut off: let go after {unheld:.1f} s, succeeded after {succeeded:.1f} s\n"
            )
            assert not cut_off.held
            wire.mend()
            with pytest.raises(LeaseLost):
                await cut_off.check()
            await until_async(lambda: far.stats().state == "ok")
            with pytest.raises(LeaseLost):
                await far.run(lambda tx: tx.execute("account.all"), fence=stale)
            assert not await taken(cut_off)
            await standby.release()
            await until_async(lambda: taken(cut_off))
            fence = await cut_off.try_acquire()
            assert fence is not None and fence.term == stale.term + 2
            await cut_off.release()


async def test_lease_is_held_when_the_holder_is_idle_for_long(database: str) -> None:
    async with opened(database) as one, opened(database) as two:
        lease, other = one.lease(holder="one"), two.lease(holder="two")
        assert await taken(lease)
        for _ in range(18):  # longer than the server waits for a word
            await asyncio.sleep(0.5)
            assert lease.held and not await taken(other)
        await lease.check()
        await lease.release()
        await until_async(lambda: taken(other))  # once the server has said that it is there
        await other.release()


async def test_takeover_waits_for_what_the_old_term_has_under_way(
    postgres: PostgresServer, database: str
) -> None:
    async with opened(database) as one, opened(database) as two:
        await deposit(one, "account")
        lease, other = one.lease(holder="one"), two.lease(holder="two")
        fence = await lease.try_acquire()
        assert fence is not None
        async with one.transaction(fence=fence) as tx:
            await tx.execute("entry.add", account_id="a", amount=1, note="000001 one")
            # The lock is gone, as when the session of the lease is lost, and only that.
            postgres.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory'"
            )
            taking = asyncio.ensure_future(other.try_acquire())
            await asyncio.sleep(0.5)
            assert not taking.done()
        newer = await taking
        assert newer is not None and newer.term == fence.term + 1
        assert "000001 one" in notes_there(postgres, database)
        with pytest.raises(LeaseLost):
            async with one.transaction(fence=fence) as tx:
                await tx.execute("entry.add", account_id="a", amount=1, note="late")
        await other.release()


async def test_lease_is_lost_and_taken_again_when_the_server_restarts() -> None:
    with PostgresServer() as server, server.database() as url:
        async with opened(url) as store:
            lease = store.lease(holder="one")
            first = await lease.try_acquire()
            assert first is not None
            server.restart()
            await until_async(lambda: not lease.held)
            with pytest.raises(LeaseLost):
                await lease.check()

            async def again() -> bool:
                try:
                    return await lease.try_acquire() is not None
                except StoreUnavailable:
                    return False

            await until_async(again)
            fence = await lease.try_acquire()
            assert fence is not None and fence.term == first.term + 1
            await lease.release()
