"""What every broker promises when several processes use it at the same moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain

import pytest
from tests.contract.broker.brokers import Parts, outcome
from tests.contract.broker.conftest import Open
from tests.integration.engine.parts import publish, rows, until

from cordata.broker import ClaimLimit, Message, Outcome
from cordata.core.message_state import Verdict

BOTH = {"a": ClaimLimit(count=10, low=10), "b": ClaimLimit(count=1, low=1)}


async def opened(stack: AsyncExitStack, broker: Open, count: int) -> list[Parts]:
    """As many hosts' views, one group `a` and one `b` registered."""
    parts = [await stack.enter_async_context(broker()) for _ in range(count)]
    for one in parts:
        one.relays = True
        await one.register({"a": "thing.done", "b": "thing.done"})
    return parts


async def claim_all(parts: Parts, owner: str, *, limit: int = 7) -> list[Message]:
    """Claim in small batches until nothing is left."""
    found: list[Message] = []
    while messages := await parts.claim("a", limit, owner):
        found += messages
    return found


async def is_registered(parts: Parts, group: str, type_: str) -> bool:
    """Whether others see a group with this type; its registration may go on."""
    row = await parts.store.read(lambda tx: tx.fetch_one("queue.group", group=group))
    return row is not None and row["type"] == type_


async def test_event_reaches_each_group_once_when_several_publish(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 4)
        published = await asyncio.gather(*(publish(one.store, 75) for one in parts))
        for group in ("a", "b"):
            messages = await parts[0].claim(group, 1000)
            assert Counter(m.event_id for m in messages) == Counter(chain(*published))


async def test_message_has_one_owner_when_several_claim(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 4)
        ids = await publish(parts[0].store, 200)
        shares = await asyncio.gather(
            *(claim_all(one, f"owner-{n}") for n, one in enumerate(parts))
        )
        # One that met others at the end of the queue may have seen nothing where they let go.
        shares.append(await claim_all(parts[0], "owner-0"))
        assert Counter(m.event_id for share in shares for m in share) == Counter(ids)


async def test_nothing_is_lost_or_doubled_when_all_settle_and_claim(broker: Open) -> None:
    """Three workers on one group, while events are published."""
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 3)
        handled = Counter[str]()
        published: list[str] = []
        ended = False

        async def work(one: Parts, owner: str) -> None:
            settled: list[Outcome] = []
            while not (ended and len(handled) == 300):
                await one.arrive()
                claimed = await one.process(owner).settle_and_claim(settled, BOTH)
                handled.update(m.event_id for m in claimed.messages if m.group == "a")
                settled = [outcome(m, Verdict.DONE) for m in claimed.messages]
                if not claimed.messages:
                    await asyncio.sleep(0.005)
            await one.process(owner).settle_and_claim(settled, {})

        async def feed(one: Parts) -> None:
            nonlocal ended
            for _ in range(15):
                published.extend(await publish(one.store, 20))
            ended = True

        async with asyncio.timeout(300):
            await asyncio.gather(
                feed(parts[0]), *(work(one, f"owner-{n}") for n, one in enumerate(parts))
            )
        assert handled == Counter(published)
        left = await rows(parts[0].store, "messages")
        assert {row["group"] for row in left} <= {"b"}


async def test_dead_process_is_relieved_once_when_two_take_over(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 2)
        ids = await publish(parts[0].store, 100)
        for group in ("a", "b"):
            assert len(await parts[0].claim(group, 1000, "dead")) == 100
        counts = await asyncio.gather(
            *(
                one.process(f"owner-{n}").reclaim("dead", is_dead=True)
                for n, one in enumerate(parts)
            )
        )
        assert sum(counts) == 200
        again: list[Message] = []
        while messages := await parts[1].claim("a", 1000, suspect_allowed=True):
            again += messages
            await parts[1].settle(messages, Verdict.DONE)
        assert Counter(message.event_id for message in again) == Counter(ids)
        assert {message.attempt for message in again} == {1}


@pytest.mark.parametrize("first", ["owner", "others"])
async def test_slow_process_and_the_one_that_relieves_it_handle_each_message_once(
    broker: Open, first: str
) -> None:
    """Whichever is first: each message is handled, or can be claimed again.

    With Redis one may be both, since a stream knows no claims: it was marked after it was moved to
    the store. Then a handler that writes finds the mark; one that writes nothing runs again.
    """
    async with AsyncExitStack() as stack:
        slow, other = await opened(stack, broker, 2)
        ids = await publish(slow.store, 100)
        messages = await slow.claim("a", 1000, "slow")
        both = [
            slow.settle(messages, Verdict.DONE, "slow"),
            other.process().reclaim("slow", is_dead=True),
        ]
        await asyncio.gather(*(both if first == "owner" else reversed(both)))
        left = [row for row in await rows(slow.store, "messages") if row["group"] == "a"]
        assert {row["state"] for row in left} <= {"ready"}
        ready = {row["event_id"] for row in left}
        marked = {row["event_id"] for row in await rows(slow.store, "handled")}
        assert ready | marked == set(ids)
        assert slow.kind == "redis" or not ready & marked


async def test_marks_are_written_once_when_two_settle_the_same(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        one, two = await opened(stack, broker, 2)
        await publish(one.store, 200)
        messages = await one.claim("a", 1000)
        done = [outcome(m, Verdict.DONE) for m in messages]
        await asyncio.gather(
            one.process().settle_and_claim(done, {}), two.process().settle_and_claim(done[::-1], {})
        )
        assert (await rows(one.store, "handled_count"))[0]["count"] == 200


async def test_groups_are_known_when_several_processes_start_at_once(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 3)
        names = [f"group-{n}" for n in range(20)]
        orders: Sequence[list[str]] = [names, names[::-1], names[10:] + names[:10]]
        await asyncio.gather(
            *(
                one.register(dict.fromkeys(order, "other"))
                for one, order in zip(parts, orders, strict=True)
            )
        )
        (event_id,) = await publish(parts[0].store, 1, type_="other")
        for name in names:
            assert [m.event_id for m in await parts[0].claim(name)] == [event_id]


async def test_event_of_a_transaction_that_began_before_its_group_reaches_it(broker: Open) -> None:
    """It commits after the group was registered, which it does not see."""
    async with AsyncExitStack() as stack:
        one, two = await opened(stack, broker, 2)
        if "sqlite" in type(one.store).__module__:
            pytest.skip("one process writes at a time")
        async with one.store.transaction() as tx:
            await tx.publish("first", {})
            await tx.fetch_all("messages")  # its snapshot is that of its first write
            registering = asyncio.create_task(two.register({"late": "other"}))
            await until(lambda: is_registered(two, "late", "other"))
            event_id = await tx.publish("other", {})
        await registering
        assert [m.event_id for m in await two.claim("late")] == [event_id]


async def test_event_of_a_transaction_that_began_before_its_group_changed_reaches_it(
    broker: Open,
) -> None:
    """And none of its new type that was published before."""
    async with AsyncExitStack() as stack:
        one, two = await opened(stack, broker, 2)
        if "sqlite" in type(one.store).__module__:
            pytest.skip("one process writes at a time")
        await two.register({"moving": "first"})
        await publish(one.store, 1, type_="other")
        async with one.store.transaction() as tx:
            await tx.publish("unrelated", {})
            await tx.fetch_all("messages")
            registering = asyncio.create_task(two.register({"moving": "other"}))
            await until(lambda: is_registered(two, "moving", "other"))
            event_id = await tx.publish("other", {})
        await registering
        assert [m.event_id for m in await two.claim("moving")] == [event_id]
