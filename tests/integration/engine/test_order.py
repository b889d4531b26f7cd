"""Key order with real worker processes: failures, back-off, kill -9, SIGTERM, dead letters."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path

from tests.integration.engine.children import Child, child
from tests.integration.engine.parts import opened, rows, until

from cordata import clock
from cordata.broker.inspection import DeadLetters, Filter
from cordata.store import Store, Tx

WORKER = "tests.integration.engine.engine"
Payloads = list[dict[str, object]]


async def publish(store: Store, payloads: dict[str, Payloads], **more: object) -> dict[str, str]:
    """Commit events, the keys taking turns. Returns event id -> `key:n`."""

    async def unit(tx: Tx) -> dict[str, str]:
        names: dict[str, str] = {}
        for n in range(max(map(len, payloads.values()))):
            for key, each in payloads.items():
                if n < len(each):
                    event_id = await tx.publish("thing.keyed", each[n], key=key, **more)  # type: ignore[arg-type]
                    names[event_id] = f"{key}:{n}"
        return names

    return await store.run(unit)


async def in_order(store: Store, names: dict[str, str]) -> dict[str, list[int]]:
    """What was handled of each key, in the order in which it was."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in await rows(store, "effects"):
        key, _, n = names[row["event_id"]].partition(":")
        found[key].append(int(n))
    return found


async def handled(store: Store, count: int) -> bool:
    return len(await rows(store, "effects")) >= count


def any_died(workers: list[Child]) -> bool:
    return any(one.returncode == -signal.SIGKILL for one in workers)


async def handled_or_dead(store: Store, count: int, workers: list[Child]) -> bool:
    return all(w.returncode is not None for w in workers) or await handled(store, count)


async def test_order_holds_when_handlers_fail_and_workers_die(state: Path) -> None:
    """Ten keys of twenty; of each a few fail, and in four one kills the worker that handles it."""
    payloads: dict[str, Payloads] = {
        f"k{k}": [
            {
                "slow_s": 0.002,
                "fail": 2 if n in (k, 17) else 0,
                "die": k < 4 and n == 5 + k,
            }
            for n in range(20)
        ]
        for k in range(10)
    }
    async with opened(state) as store:
        names: dict[str, str] = {}
        dead = 0
        async with child(WORKER, state) as one, child(WORKER, state) as two:
            workers = [one, two]
            assert [await one.line(), await two.line()] == ["up", "up"]
            names = await publish(store, payloads)
            await until(lambda: handled_or_dead(store, 200, workers))
            await until(lambda: any_died(workers))  # what dies with another's does not die again
            dead = sum(w.returncode == -signal.SIGKILL for w in workers)
        while not await handled(store, 200):
            async with child(WORKER, state) as next_one:
                assert await next_one.line() == "up"
                await until(lambda: handled_or_dead(store, 200, [next_one]))
        assert await in_order(store, names) == {key: list(range(20)) for key in payloads}
        assert dead >= 1
        assert not (state / "two-at-once").exists()


async def test_next_of_a_key_waits_for_the_end_of_the_handler(state: Path) -> None:
    """Not for its commit only: what it does after it is done, too, before the next one begins."""
    async with opened(state) as store, child(WORKER, state) as one, child(WORKER, state) as two:
        assert [await one.line(), await two.line()] == ["up", "up"]
        names = await publish(store, {"k": [{"slow_end_s": 0.5}, {}, {}]})
        await until(lambda: handled(store, 1))
        # Both look for messages now.
        names |= await publish(store, {f"other{n}": [{}] for n in range(20)})
        await until(lambda: handled(store, 23))
        assert (await in_order(store, names))["k"] == [0, 1, 2]
        assert not (state / "two-at-once").exists()
        assert [await one.stop(), await two.stop()] == [0, 0]
        assert not await rows(store, "messages")


async def test_message_without_an_effect_does_not_come_again_after_a_later_one(
    state: Path,
) -> None:
    """It was handled, and settled with the commit of the next one of its key."""
    payloads: dict[str, Payloads] = {"k": [{"no_effect": True}, {}, {"die": True}, {}]}
    async with opened(state) as store:
        async with child(WORKER, state) as one:
            assert await one.line() == "up"
            # It claims the messages of a key together when it knows that they take little time.
            await publish(store, {f"other{n}": [{}] for n in range(50)})
            await until(lambda: handled(store, 50))
            names = await publish(store, payloads)
            assert await one.ended() == -signal.SIGKILL
        # If it had claimed the last two together, either may have killed it: no attempt is counted,
        # and the same message kills the next one. On a busy machine it may have claimed one alone.
        async with child(WORKER, state) as two:
            await until(lambda: handled_or_dead(store, 53, [two]))
            assert two.returncode == -signal.SIGKILL or await two.stop() == 0
        async with child(WORKER, state) as three:
            assert await three.line() == "up"
            await until(lambda: handled(store, 53))
            assert await three.stop() == 0
        delivered = (state / "deliveries").read_text().split()
        of_key = [names[id] for id in delivered if id in names]
        assert of_key in (
            ["k:0", "k:1", "k:2", "k:2", "k:2", "k:3"],
            ["k:0", "k:1", "k:2", "k:2", "k:3"],
        )
        assert not await rows(store, "messages")


async def test_order_holds_when_a_worker_stops_within_runs(state: Path) -> None:
    async with opened(state) as store:
        async with child(WORKER, state) as one:
            assert await one.line() == "up"
            # What is behind the first hundred would take this worker 18 s more.
            slow: dict[str, object] = {"slow_s": 0.3, "slow_in": one.pid}
            each: Payloads = [{"slow_s": 0.004} if n < 20 else slow for n in range(60)]
            payloads = {f"k{k}": each for k in range(6)}
            names = await publish(store, payloads)
            await until(lambda: handled(store, 100))
            assert await one.stop() == 0
        left = await rows(store, "messages")
        assert {row["attempts"] for row in left} == {0}
        assert {row["state"] for row in left} == {"ready"}
        async with child(WORKER, state) as two:
            await until(lambda: handled(store, 360))
            assert await two.stop() == 0
        assert await in_order(store, names) == {key: list(range(60)) for key in payloads}


async def test_dead_letter_lets_its_key_go_on_and_is_handled_when_replayed(state: Path) -> None:
    payloads: dict[str, Payloads] = {
        "k": [{"fail": 1, "dead": True, "n": 0}, {"slow_s": 0.01}, {}],
        "l": [{}, {}],
    }
    async with opened(state) as store, child(WORKER, state) as one:
        assert await one.line() == "up"
        names = await publish(store, payloads)
        await until(lambda: handled(store, 4))
        assert await in_order(store, names) == {"k": [1, 2], "l": [0, 1]}
        assert await DeadLetters(store).replay(Filter()) == 1
        await until(lambda: only_dead(store))  # it fails again, and stays first in nobody's way
        later = await publish(store, {"k": [{}]})
        await until(lambda: handled(store, 5))
        assert [row["event_id"] for row in await rows(store, "effects")][-1] in later
        assert await one.stop() == 0


async def only_dead(store: Store) -> bool:
    return [row["state"] for row in await rows(store, "messages")] == ["dead"]


async def test_restarted_worker_takes_over_at_once_what_its_predecessor_held(
    state: Path,
) -> None:
    """The only worker of its host, killed with handlers running: its successor waits for no
    claim to expire."""
    payloads: dict[str, Payloads] = {f"k{k}": [{"slow_s": 600.0}, {}] for k in range(3)}
    async with opened(state) as store:
        async with child(WORKER, state) as one:
            assert await one.line() == "up"
            names = await publish(store, {"hot": [{}] * 50, **payloads})
            await until(lambda: handled(store, 50))
            await until(lambda: claimed(store, 3))
            first = {row["owner"] for row in await rows(store, "messages")}
            one.kill()
            await one.ended()
        async with child(WORKER, state) as two:
            assert await two.line() == "up"
            begun = clock.monotonic()
            await until(lambda: taken_from(store, first))
            print(f"taken over after {(clock.monotonic() - begun) * 1000:.0f} ms")
            two.kill()
        done = await in_order(store, names)
        assert done == {"hot": list(range(50))}
        assert not (state / "two-at-once").exists()


async def claimed(store: Store, count: int) -> bool:
    return [row["state"] for row in await rows(store, "messages")].count("claimed") == count


async def taken_from(store: Store, owners: set[str]) -> bool:
    """Whether another process has begun with what these held; one at a time, since one killed."""
    found = {row["owner"] for row in await rows(store, "messages")} - {None}
    return bool(found) and not found & owners
