"""Workers as processes that are killed, stopped and continued: each effect once, in order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tests.integration.engine.children import Child, child
from tests.integration.engine.parts import until
from tests.integration.eventstore.ledger import (
    deposit,
    deposit_many,
    ledger,
    opened,
    rows,
)
from tests.servers.process import process_state

from cordata.eventstore.inspection import Subscriptions
from cordata.store import Store

WORKER = "tests.integration.eventstore.ledger"
NAME = "t.ledger"


async def handled(store: Store) -> list[tuple[str, int]]:
    return [(row["stream"], row["version"]) for row in await rows(store, "ledger.handled")]


async def count(store: Store) -> int:
    return int((await rows(store, "ledger.count"))[0]["count"])


async def count_is(store: Store, wanted: int) -> bool:
    return await count(store) >= wanted


async def state_is(store: Store, state: str) -> bool:
    status = await Subscriptions(store).status(NAME)
    return status is not None and status.state == state


async def dead_or_blocked(worker: Child, store: Store, count: int) -> bool:
    """Whether a worker has died, or has handled so many and stands still at one."""
    if worker.returncode is not None:
        return True
    return await state_is(store, "blocked") and await count_is(store, count)


async def goes_on(store: Store, count: int, *workers: Child) -> bool:
    """Whether so many are handled. Who has stopped itself goes on: a lease that ended meanwhile
    has made it, or another one, stop at the same event once more.
    """
    for one in workers:
        if process_state(one.pid) == "T":
            os.kill(one.pid, signal.SIGCONT)
    return await count_is(store, count)


async def shared_by(store: Store, processes: int) -> bool:
    owners = Counter(row["owner"] for row in await rows(store, "ledger.partitions"))
    return None not in owners and len(owners) == processes


async def handled_by(store: Store, processes: int) -> bool:
    return len({row["owner"] for row in await rows(store, "ledger.handled")}) >= processes


def each_once_in_order(seen: list[tuple[str, int]], streams: int, each: int) -> bool:
    last: Counter[str] = Counter()
    for stream, version in seen:
        if version != last[stream] + 1:
            return False
        last[stream] = version
    return last == Counter({f"account-{number}": each for number in range(streams)})


async def up(stack: AsyncExitStack, state: Path, *args: object) -> Child:
    one = await stack.enter_async_context(child(WORKER, state, *args))
    assert await one.line() == "up"
    return one


async def stops_itself(one: Child) -> None:
    """Until it has: in the handler of an event that says so, before its write."""
    assert await one.line() == "stopping"
    await until(lambda: process_state(one.pid) == "T")


async def test_each_event_is_handled_once_when_workers_are_killed_at_random(state: Path) -> None:
    rng = random.Random(7)
    async with opened(state) as store, AsyncExitStack() as stack:
        workers = [await up(stack, state) for _ in range(3)]
        await until(lambda: shared_by(store, 3))
        total = await deposit_many(store, 24, 25, slow_s=0.03)
        await until(lambda: handled_by(store, 3))  # or those that are killed first have no part
        for _ in range(4):
            await asyncio.sleep(rng.random() * 0.4)
            victim = workers.pop(rng.randrange(len(workers)))
            victim.kill()
            await victim.ended()
            workers.append(await up(stack, state))
        await until(lambda: count_is(store, total), timeout_s=120)
        await until(lambda: state_is(store, "current"))
        assert each_once_in_order(await handled(store), 24, 25)
        balances = await rows(store, "ledger.balances")
        assert [(row["total"], row["count"]) for row in balances] == [(325, 25)] * 24
        assert len({row["owner"] for row in await rows(store, "ledger.handled")}) > 2
        for worker in workers:
            assert await worker.stop() == 0


async def test_partitions_move_at_once_when_their_worker_dies(state: Path) -> None:
    async with opened(state) as store, AsyncExitStack() as stack:
        one, two = await up(stack, state), await up(stack, state)
        await until(lambda: shared_by(store, 2))
        await asyncio.sleep(0.3)  # they know each other now
        one.kill()
        await deposit_many(store, 16, 1)
        await until(lambda: count_is(store, 16))
        assert await two.stop() == 0


async def test_write_is_refused_when_a_worker_was_stopped_for_longer_than_its_lease(
    state: Path,
) -> None:
    lease_s = 1.0
    async with opened(state) as store, AsyncExitStack() as stack:
        stopped = await up(stack, state, lease_s)
        await deposit(store, "account-0", 1)
        await until(lambda: count_is(store, 1))
        await deposit(store, "account-0", 2, stop=True)
        await stops_itself(stopped)
        await deposit(store, "account-0", 3)
        other = await up(stack, state, lease_s)
        await stops_itself(other)  # which took over, at the same event
        os.kill(stopped.pid, signal.SIGCONT)
        # It goes on where it was, and its write is refused; then the partition is its own again,
        # under a new term, once the lease of the other one is over, too. It stops once more.
        await stops_itself(stopped)
        assert await handled(store) == [("account-0", 1)]
        await deposit(store, "account-0", 4)
        await until(lambda: goes_on(store, 4, other, stopped))
        await until(lambda: state_is(store, "current"))
        assert await handled(store) == [("account-0", version) for version in (1, 2, 3, 4)]
        (row,) = await rows(store, "ledger.balances")
        assert (row["total"], row["count"]) == (10, 4)
        terms = [row["term"] for row in await rows(store, "ledger.partitions")]
        assert max(terms) >= 2
        assert [await stopped.stop(), await other.stop()] == [0, 0]


async def test_old_owner_moves_nothing_when_the_new_one_is_further(state: Path) -> None:
    """Stopped before its write, continued after another worker has handled that event and more."""
    lease_s = 1.0
    async with opened(state) as store, AsyncExitStack() as stack:
        stopped = await up(stack, state, lease_s)
        await deposit(store, "account-0", 1, stop=True)
        await stops_itself(stopped)
        await deposit(store, "account-0", 2)
        other = await up(stack, state, lease_s)
        await stops_itself(other)
        await until(lambda: goes_on(store, 2, other))
        pid = str(other.pid)
        assert {row["owner"] for row in await rows(store, "ledger.handled")} == {pid}
        before = {row["partition"]: dict(row) for row in await rows(store, "ledger.partitions")}
        os.kill(stopped.pid, signal.SIGCONT)
        await until(lambda: shared_by(store, 2))  # it lives, and gets its share of the others
        await asyncio.sleep(0.3)
        assert {row["owner"] for row in await rows(store, "ledger.handled")} == {pid}
        assert len(await handled(store)) == 2
        for row in await rows(store, "ledger.partitions"):
            assert row["position"] >= before[row["partition"]]["position"]
            assert row["term"] >= before[row["partition"]]["term"]
        assert [await stopped.stop(), await other.stop()] == [0, 0]


async def test_partition_is_blocked_when_its_event_kills_every_worker(state: Path) -> None:
    async with opened(state) as store:
        await deposit_many(store, 8, 1)
        # What runs beside it fails with it, and would be blocked at the fourth time, too: it waits.
        await deposit(store, "account-0", 2, kill=True, slow_s=0.5)
        await deposit(store, "account-0", 3)
        await deposit(store, "account-1", 2, kill_once=True)
        for _ in range(12):
            async with child(WORKER, state) as worker:
                assert await worker.line() == "up"
                await until(lambda one=worker: dead_or_blocked(one, store, 9))  # type: ignore[misc]
                if worker.returncode is None:
                    assert await worker.stop() == 0
                    break
        status = await Subscriptions(store).status(NAME)
        assert status is not None and (status.blocked, status.state) == (1, "blocked")
        (stuck,) = [one for one in status.partitions if one.blocked_at is not None]
        assert [entry["attempt"] for entry in stuck.history] == [1, 2, 3, 4]
        assert stuck.error is not None and stuck.error.startswith("ProcessDied")
        seen = Counter(await handled(store))
        assert set(seen.values()) == {1} and ("account-1", 2) in seen
        assert ("account-0", 2) not in seen and ("account-0", 3) not in seen


async def test_nothing_is_stranded_when_a_worker_stops_under_load(state: Path) -> None:
    async with opened(state) as store, AsyncExitStack() as stack:
        one = await up(stack, state)
        # 8 s of work for this one, however late it is seen what it has done.
        total = await deposit_many(store, 16, 20, slow_s=0.2, slow_in=one.pid)
        await until(lambda: count_is(store, 20))
        assert await one.stop() == 0
        assert not await count_is(store, total)  # it did not go on to the end
        assert all(row["owner"] is None for row in await rows(store, "ledger.partitions"))
        assert await rows(store, "ledger.workers") == []
        two = await up(stack, state)
        await until(lambda: count_is(store, total), timeout_s=120)
        assert each_once_in_order(await handled(store), 16, 20)
        assert await two.stop() == 0


async def test_rebuilt_subscription_is_the_incremental_one_when_workers_die_meanwhile(
    state: Path,
) -> None:
    async with opened(state) as store, AsyncExitStack() as stack:
        one, two = await up(stack, state), await up(stack, state)
        total = await deposit_many(store, 20, 20)
        await until(lambda: count_is(store, total), timeout_s=120)
        await until(lambda: state_is(store, "current"))
        incremental = [dict(row) for row in await rows(store, "ledger.balances")]
        assert await Subscriptions(store).reset(NAME, "start", clear=ledger.clear) == 0
        await until(lambda: count_is(store, total + 50))
        one.kill()
        three = await up(stack, state)
        await until(lambda: state_is(store, "current"), timeout_s=120)
        assert [dict(row) for row in await rows(store, "ledger.balances")] == incremental
        seen = await handled(store)
        assert each_once_in_order(seen[-total:], 20, 20) or len(seen) > 2 * total
        assert [await two.stop(), await three.stop()] == [0, 0]


async def test_history_of_a_death_names_the_process(state: Path) -> None:
    async with opened(state) as store, AsyncExitStack() as stack:
        await deposit(store, "account-0", 1, kill_once=True)
        async with child(WORKER, state) as worker:
            await worker.ended()
        two = await up(stack, state)
        await until(lambda: count_is(store, 1))
        (row,) = await rows(store, "ledger.handled")
        assert row["owner"] == str(two.pid)
        assert await two.stop() == 0
