"""What every broker promises when several processes use it at the same moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.contract.broker.brokers import BROKERS, Parts
from tests.contract.broker.test_broker import Open, outcome
from tests.integration.engine.parts import publish, rows
from tests.integration.redis.stores import prepared

from cordata.broker import Held, Message, Outcome, Want
from cordata.core.delivery import Verdict


@pytest.fixture(params=sorted(BROKERS))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """One of the brokers, on a store of its own; each call is one more process' view."""
    state = prepared(request.param, request, tmp_path)
    return lambda: BROKERS[request.param](state)


async def opened(stack: AsyncExitStack, broker: Open, count: int) -> list[Parts]:
    """As many processes' views, one group `a` and one `b` registered."""
    parts = [await stack.enter_async_context(broker()) for _ in range(count)]
    await parts[0].broker.register({"a": "thing.done", "b": "thing.done"})
    return parts


async def claim_all(parts: Parts, owner: str, *, limit: int = 7) -> list[Message]:
    """Claim in small batches until nothing is left."""
    found: list[Message] = []
    while messages := await parts.claim("a", limit, owner):
        found += messages
    return found


async def test_event_is_fanned_out_once_when_several_relay(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 4)
        ids = await publish(parts[0].store, 300)

        async def relay(one: Parts) -> int:
            count = 0
            while (relayed := await one.broker.relay(20)).next_at is not None:
                count += relayed.published
            return count + relayed.published

        counts = await asyncio.gather(*map(relay, parts))
        assert sum(counts) == 300
        for group in ("a", "b"):
            messages = await parts[0].claim(group, 1000)
            assert Counter(message.event_id for message in messages) == Counter(ids)


async def test_message_has_one_owner_when_several_claim(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 4)
        ids = await publish(parts[0].store, 200)
        await parts[0].relay_all()
        shares = await asyncio.gather(
            *(claim_all(one, f"owner-{n}") for n, one in enumerate(parts))
        )
        # One that met others at the end of the queue may have seen nothing where they let go.
        shares.append(await claim_all(parts[0], "owner-0"))
        assert Counter(m.event_id for share in shares for m in share) == Counter(ids)


async def test_nothing_is_lost_or_doubled_when_all_settle_and_claim(broker: Open) -> None:
    """Three workers on one stream, while two others publish and relay."""
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 3)
        handled = Counter[str]()
        published: list[str] = []
        ended = False

        async def work(one: Parts, owner: str) -> None:
            settled: list[Outcome] = []
            while not (ended and len(handled) == 300):
                claimed = await one.broker.exchange(
                    owner, settled, {"a": Want(live=10), "b": Want(live=1)}
                )
                messages = [m for m in claimed.messages if m.group == "a"]
                handled.update(m.event_id for m in messages)
                settled = [outcome(m, Verdict.DONE) for m in claimed.messages]
                if not claimed.messages:
                    await asyncio.sleep(0.005)
            await one.broker.exchange(owner, settled, {})

        async def feed(one: Parts) -> None:
            nonlocal ended
            for _ in range(15):
                published.extend(await publish(one.store, 20))
                await one.relay_all()
            ended = True

        async with asyncio.timeout(60):
            await asyncio.gather(
                feed(parts[0]), *(work(one, f"owner-{n}") for n, one in enumerate(parts))
            )
        assert handled == Counter(published)
        left = await rows(parts[0].store, "messages")
        assert {row["group"] for row in left} <= {"b"}


async def test_dead_owner_is_relieved_once_when_two_take_over(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 2)
        ids = await publish(parts[0].store, 200)
        await parts[0].relay_all()
        for group in ("a", "b"):
            await parts[0].claim(group, 1000, "dead")

        async def relieve(one: Parts) -> None:
            held = await one.broker.held("dead", limit=1000)
            held = sorted(held, key=lambda m: (m.group, m.id))
            outcomes = [taken(m, running=n % 3 == 0) for n, m in enumerate(held)]
            await one.broker.exchange("dead", outcomes, {})

        await asyncio.gather(*map(relieve, parts))
        assert await parts[0].broker.owners() == {}
        again = await parts[1].claim("a", 1000)
        assert Counter(message.event_id for message in again) == Counter(ids)
        # Every third had its handler running: one attempt, however many took it back.
        assert Counter(m.attempts for m in again) == {0: 133, 1: 67}


def taken(held: Held, *, running: bool) -> Outcome:
    """As the reclaim service decides."""
    if not running:
        return Outcome(group=held.group, id=held.id, verdict=Verdict.BACK)
    return Outcome(
        group=held.group,
        id=held.id,
        verdict=Verdict.RETRY,
        attempts=held.attempts + 1,
        history="[]",
    )


@pytest.mark.parametrize("first", ["owner", "others"])
async def test_handled_message_is_seen_when_its_slow_owner_was_relieved(
    broker: Open, first: str
) -> None:
    """Whoever comes first: it is gone, or comes back marked, and never stays in dead hands."""
    async with AsyncExitStack() as stack:
        slow, other = await opened(stack, broker, 2)
        ids = await publish(slow.store, 100)
        await slow.relay_all()
        messages = await slow.claim("a", 1000, "slow")
        held = await other.broker.held("slow", limit=1000)
        back = [Outcome(group=h.group, id=h.id, verdict=Verdict.BACK) for h in reversed(held)]
        done = [outcome(m, Verdict.DONE) for m in messages]
        both = [
            slow.broker.exchange("slow", done, {}),
            other.broker.exchange("slow", back, {}),
        ]
        await asyncio.gather(*(both if first == "owner" else reversed(both)))
        assert await slow.broker.owners() == {}
        again = await other.claim("a", 1000)
        assert all(message.seen for message in again)
        seen = (await rows(slow.store, "seen_count"))[0]["count"]
        assert seen == len(ids) or (not again and not slow.in_store)


async def test_marks_are_written_once_when_two_mark_the_same(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        one, two = await opened(stack, broker, 2)
        await publish(one.store, 200)
        await one.relay_all()
        messages = await one.claim("a", 1000, "gone")
        done = [outcome(m, Verdict.DONE) for m in messages]
        await asyncio.gather(
            one.broker.exchange("one", done, {}), two.broker.exchange("two", done[::-1], {})
        )
        assert (await rows(one.store, "seen_count"))[0]["count"] == 200


async def test_groups_are_known_when_several_processes_start_at_once(broker: Open) -> None:
    async with AsyncExitStack() as stack:
        parts = await opened(stack, broker, 3)
        names = [f"group-{n}" for n in range(20)]
        orders: Sequence[list[str]] = [names, names[::-1], names[10:] + names[:10]]
        await asyncio.gather(
            *(
                one.broker.register(dict.fromkeys(order, "other"))
                for one, order in zip(parts, orders, strict=True)
            )
        )
        await publish(parts[0].store, 1, type_="other")
        await parts[0].relay_all()
        assert (await parts[0].broker.due_at(names)).keys() == set(names)
