"""Key order: of each key one message at a time, in the order of the outbox, whatever happens."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from tests.contract.broker.brokers import Parts
from tests.contract.broker.test_broker import Open, broker
from tests.integration.engine.parts import rows
from tests.raw import raw

from cordata import clock
from cordata.broker import Held, Message, Outcome, StoreBroker, Want
from cordata.broker.inspection import DeadLetters, Filter, publish_again
from cordata.broker.message import back
from cordata.core.delivery import Verdict
from cordata.store import Store, Tx

__all__ = ["broker"]

GROUPS = {"a": "thing.done"}


async def publish(parts: Parts, *events: tuple[int, str | None], **more: object) -> None:
    """Commit events (n, key), and relay what is due."""

    async def unit(tx: Tx) -> None:
        for n, key in events:
            await tx.publish("thing.done", {"n": n}, key=key, **more)  # type: ignore[arg-type]

    await parts.store.run(unit)
    await parts.relay_all()


async def publish_live(parts: Parts, count: int) -> None:
    """Commit events that nobody relays yet."""
    async with parts.store.transaction() as tx:
        for n in range(count):
            await tx.publish("thing.done", {"n": n})


async def claim(
    parts: Parts, limit: int = 100, *, owner: str = "me", run: int = 1
) -> list[Message]:
    wanted = {"a": Want(live=limit, backfill=limit, run=run)}
    return list((await parts.broker.exchange(owner, [], wanted)).messages)


async def settle(
    parts: Parts,
    messages: Sequence[Message],
    verdict: Verdict,
    *,
    owner: str = "me",
    delay_us: int = 0,
) -> None:
    outcomes = [outcome(message, verdict, delay_us=delay_us) for message in messages]
    await parts.broker.exchange(owner, outcomes, {})


def outcome(message: Message, verdict: Verdict, *, delay_us: int = 0) -> Outcome:
    return Outcome(
        group=message.group,
        id=message.id,
        verdict=verdict,
        event_id=message.event_id,
        attempts=message.attempts + 1,
        order_key=message.order_key,
        delay_us=delay_us,
    )


def numbers(messages: Sequence[Message]) -> list[int]:
    return [json.loads(message.payload)["n"] for message in messages]


async def handle_all(parts: Parts, *, run: int = 1) -> list[int]:
    """Claim and finish until nothing can be claimed."""
    handled: list[int] = []
    while messages := await claim(parts, run=run):
        handled += numbers(messages)
        await settle(parts, messages, Verdict.DONE)
    assert await rows(parts.store, "messages") == []
    return handled


async def test_key_has_one_message_in_hand_and_others_do_not_wait(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "l"), (4, None), (5, None), (6, "k"))
        first = await claim(parts)
        assert numbers(first) == [1, 3, 4, 5]
        assert await claim(parts, owner="other") == []
        await settle(parts, first[1:], Verdict.DONE)
        assert await claim(parts, owner="other") == []
        await settle(parts, first[:1], Verdict.DONE)
        assert numbers(await claim(parts, owner="other")) == [2]


async def test_key_is_the_longest_that_can_be_when_it_does_not_compress(broker: Open) -> None:
    letters = random.Random(1)
    key = "".join(chr(letters.randrange(0x10000, 0x20000)) for _ in range(256))
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, key), (2, key))
        first = await claim(parts)
        assert [message.key for message in first] == [key]
        await settle(parts, first, Verdict.DONE)
        assert numbers(await claim(parts)) == [2]


async def test_order_is_that_of_events_when_the_group_did_not_ask_for_keys(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "k"))
        messages = await claim(parts)
        assert numbers(messages) == [1, 2, 3]
        assert {message.order_key for message in messages} == {None}
        assert {message.key for message in messages} == {"k"}


async def test_run_of_a_key_goes_to_one_owner_and_counts_as_one(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(10)), (20, "l"), (21, "m"), (22, "l"))
        messages = await claim(parts, 2, run=4)
        assert numbers(messages) == [0, 1, 20, 22]  # two in all follow, evenly
        await settle(parts, messages, Verdict.DONE)
        assert numbers(await claim(parts, 9, run=4)) == [21, 2, 3, 4, 5]


async def test_retry_holds_back_its_own_key_only(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "k"), (4, "l"), (5, "l"))
        messages = await claim(parts, run=2)
        assert numbers(messages) == [1, 2, 4, 5]
        failed = outcome(messages[0], Verdict.RETRY, delay_us=200_000)
        rest = [outcome(m, Verdict.DONE) for m in messages[2:]]
        await parts.broker.exchange("me", [failed, back(messages[1]), *rest], {})
        assert await claim(parts) == []
        due = (await parts.broker.due_at(["a"]))["a"].live
        assert due is not None and due > parts.store.now_us()
        again: list[Message] = []
        while not again:
            await asyncio.sleep(0.02)
            again = await claim(parts, run=3)
        assert numbers(again) == [1, 2, 3]
        assert [message.attempts for message in again] == [1, 0, 0]


async def test_later_ones_go_on_when_one_is_dead_and_it_comes_first_when_replayed(
    broker: Open,
) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(1, 6)))
        await settle(parts, await claim(parts), Verdict.DEAD)
        second = await claim(parts)
        assert numbers(second) == [2]
        assert await DeadLetters(parts.store).replay(Filter()) == 1
        assert await claim(parts) == []  # one of its key is in hand
        await settle(parts, second, Verdict.DONE)
        assert await handle_all(parts) == [1, 3, 4, 5]


async def test_replayed_one_goes_before_the_next_when_nothing_is_in_hand(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "k"))
        await settle(parts, await claim(parts), Verdict.DEAD)
        assert await DeadLetters(parts.store).replay(Filter()) == 1
        assert await handle_all(parts) == [1, 2, 3]


async def test_entries_published_again_keep_their_order(broker: Open) -> None:
    async with broker() as parts:
        await publish(parts, *((n, "kl"[n % 2]) for n in range(6)))
        await parts.broker.register(GROUPS, keyed=GROUPS)
        assert (await publish_again(parts.store, Filter())).messages == 6
        assert numbers(await claim(parts)) == [0, 1]
        assert await claim(parts) == []


async def test_run_comes_back_in_order_when_given_back_piece_by_piece(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(8)))
        messages = await claim(parts, owner="dead", run=6)
        assert numbers(messages) == [0, 1, 2, 3, 4, 5]
        for piece in (messages[3:4], messages[1:3], messages[4:]):
            await parts.broker.exchange("dead", [back(message) for message in piece], {})
            assert await claim(parts) == []
        await settle(parts, messages[:1], Verdict.RETRY, owner="dead")
        assert await handle_all(parts) == list(range(8))


async def test_first_of_its_key_comes_first_however_urgent_the_others_are(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), priority=-5)
        await publish(parts, (2, "k"))
        await publish(parts, (3, "l"))
        await publish(parts, (4, "k"), priority=9)
        # The first of the key is as urgent as the last one, which waits for it.
        assert numbers(await claim(parts, 1)) == [1]
        assert numbers(await claim(parts, 1)) == [3]


async def test_urgent_one_is_not_relayed_before_the_first_of_its_key(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        async with parts.store.transaction() as tx:
            for n in range(5):
                await tx.publish("thing.done", {"n": n}, key="k")
            await tx.publish("thing.done", {"n": 5}, key="k", priority=9)
        if isinstance(parts.broker, StoreBroker):  # others may take more at once
            assert (await parts.broker.relay(1)).published == 1
            assert numbers(await claim(parts)) == [0]
        await parts.relay_all()
        assert numbers(await claim(parts)) in ([], [0])
        assert await claim(parts) == []


async def test_scheduled_one_takes_its_place_when_it_is_due(broker: Open) -> None:
    """It holds nobody back before: of what is due, the order of the outbox counts."""
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), delay_s=1.5)
        due_at = parts.store.now_us() + 1_500_000
        await publish(parts, (2, "k"), (3, "k"), (4, "k"))
        second = await claim(parts)
        assert numbers(second) == [2]
        await asyncio.sleep(max(0.0, (due_at - parts.store.now_us()) / 1e6) + 0.05)
        assert await parts.relay_all() == 1
        await settle(parts, second, Verdict.DONE)
        assert await handle_all(parts) == [1, 3, 4]


async def test_hot_key_in_the_way_costs_others_nothing(broker: Open) -> None:
    """100,000 of one key, whose first is in back-off: claims go on, and stay as cheap."""
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (0, "hot"))
        first = await claim(parts)
        await publish(parts, *((n, f"k{n}") for n in range(300)))
        alone, alone_s = await _handle_by_tens(parts)
        await _pile_up(parts.store)
        await publish(parts, *((n, f"k{n}") for n in range(300)))
        await settle(parts, first, Verdict.RETRY, delay_us=3_600_000_000)
        beside, beside_s = await _handle_by_tens(parts)
        print(f"a claim of 10 beside 100,000 of a hot key: {beside_s / alone_s:.1f} of one without")
        assert alone == beside == list(range(300))
        assert beside_s < 10 * alone_s + 0.002


async def _handle_by_tens(parts: Parts) -> tuple[list[int], float]:
    """All that can be had, and the shortest time that a claim of ten took, in seconds."""
    handled: list[int] = []
    times: list[float] = []
    while True:
        begun = clock.monotonic()
        messages = await claim(parts, 10, run=10)
        times.append(clock.monotonic() - begun)
        if not messages:
            return handled, min(times[:-1])
        handled += numbers(messages)
        await settle(parts, messages, Verdict.DONE)


async def test_hot_key_has_its_turn_and_no_more(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (0, "hot"))
        first = await claim(parts)
        await _pile_up(parts.store)
        await publish(parts, *((n, f"k{n}") for n in range(1, 30)))
        await settle(parts, first, Verdict.DONE)
        others: set[int] = set()
        passes = 0
        while len(others) < 29:
            messages = await claim(parts, 4, run=50)
            others |= {n for n in numbers(messages) if n}
            await settle(parts, messages, Verdict.DONE)
            passes += 1
        assert passes <= 10  # three or four others in each


async def _pile_up(store: Store) -> None:
    """100,000 more of the key `hot`, as the relay would have written them."""
    for first in range(1, 100_000, 20_000):  # a busy machine may take seconds for each

        async def unit(tx: Tx, first: int = first) -> None:
            await raw(
                tx,
                f"""WITH RECURSIVE n (i) AS
                (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {first + 19_999})
                INSERT INTO outbox (id, event_id, type, key, payload, state, next_at, created_at)
                SELECT 1000 + i, 'hot' || i, 'thing.done', 'hot', '{{"n": 0}}', 'published', 0, 0
                FROM n""",
            )
            await raw(
                tx,
                f"""INSERT INTO message (outbox_id, "group", key, state, priority, next_at)
                SELECT id, 'a', 'hot', 'waiting', 0, 0 FROM outbox WHERE id >= {1000 + first}""",
            )
            await raw(
                tx, "SELECT setval('outbox_id_seq', 200000)" if _is_postgres(tx) else "SELECT 1"
            )

        await store.run(unit)


def _is_postgres(tx: Tx) -> bool:
    return "postgres" in type(tx).__module__


async def test_stranded_messages_are_found_when_their_group_starts(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "l"))

        async def lose(tx: Tx) -> None:
            await raw(tx, "DELETE FROM message WHERE state = 'ready' AND key = 'k'")

        await parts.store.run(lose)
        assert numbers(await claim(parts)) == [3]
        await parts.broker.register(GROUPS, keyed=GROUPS)
        assert numbers(await claim(parts)) == [2]


async def test_order_holds_when_several_processes_publish_relay_fail_and_die(
    broker: Open,
) -> None:
    """Each key's events are written one after the other; four processes do all the rest."""
    keys = [f"k{n}" for n in range(6)]
    each = 25
    handled: dict[str, list[int]] = defaultdict(list)
    in_hand: dict[str, str] = {}
    dead: dict[str, set[int]] = defaultdict(set)
    rng = random.Random(7)

    def left() -> bool:
        return sum(len(dead[k].union(handled[k])) for k in keys) < each * len(keys)

    async def feed(one: Parts, key: str) -> None:
        for n in range(each):
            async with one.store.transaction() as tx:
                await tx.publish("thing.done", {"n": n}, key=key, priority=rng.choice([0, 0, 5]))
            await asyncio.sleep(rng.random() * 0.005)

    async def relay(one: Parts) -> None:
        while left():
            await one.broker.relay(7)
            await asyncio.sleep(rng.random() * 0.01)

    async def work(one: Parts, number: int) -> None:
        outcomes: list[Outcome] = []
        owner = f"owner-{number}-0"
        for life in range(10_000):
            wanted = {"a": Want(live=3, backfill=3, run=3)} if left() else {}
            claimed = await one.broker.exchange(owner, outcomes, wanted)
            for message in claimed.messages:
                assert message.order_key is not None
                assert in_hand.setdefault(message.order_key, owner) == owner
            await asyncio.sleep(rng.random() * 0.004)
            outcomes = judge(claimed.messages)
            for message in claimed.messages:
                in_hand.pop(message.order_key or "", None)
            if rng.random() < 0.1:  # it dies here; another one gives back what it held
                for held in reversed(await one.broker.held(owner, limit=100)):
                    await one.broker.exchange(owner, [given_back(held)], {})
                outcomes, owner = [], f"owner-{number}-{life}"
            # What was handled happened, whatever became of its owner; a death only if it is told.
            for one_outcome in outcomes:
                if one_outcome.verdict is Verdict.DEAD:
                    dead[one_outcome.order_key or ""].add(int(one_outcome.id))
            if not wanted and not outcomes:
                return

    def judge(messages: Sequence[Message]) -> list[Outcome]:
        found: list[Outcome] = []
        blocked: set[str | None] = set()
        for message in messages:
            key, luck = message.order_key or "", rng.random()
            if key in blocked:
                found.append(back(message))
            elif luck < 0.1:
                found.append(outcome(message, Verdict.RETRY, delay_us=rng.randrange(20_000)))
                blocked.add(key)
            elif luck < 0.13:
                found.append(outcome(message, Verdict.DEAD))
                blocked.add(key)  # for this test: what follows is not handled before it is told
            else:
                handled[key].append(int(message.id))
                found.append(outcome(message, Verdict.DONE))
        return found

    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(broker()) for _ in range(4)]
        await parts[0].broker.register(GROUPS, keyed=GROUPS)
        async with asyncio.timeout(90):
            await asyncio.gather(
                *(feed(parts[n % 4], key) for n, key in enumerate(keys)),
                *(relay(one) for one in parts[:2]),
                *(work(one, n) for n, one in enumerate(parts)),
            )
    for key in keys:
        firsts = list(dict.fromkeys(handled[key]))
        assert firsts == sorted(firsts), key
        assert len(dead[key].union(firsts)) == each, key


def given_back(held: Held) -> Outcome:
    return Outcome(group=held.group, id=held.id, verdict=Verdict.BACK, order_key=held.order_key)


async def test_backfill_is_claimed_only_while_nothing_live_is_due_in_any_group(
    broker: Open,
) -> None:
    async with broker() as parts:
        if not parts.in_store:
            pytest.skip("what is claimed beside the store is read ahead, lane by lane")
        await parts.broker.register({"a": "thing.done", "b": "other"})
        await publish(parts, *((n, None) for n in range(3)), lane="backfill", priority=9)
        await publish(parts, (3, None), (4, None))
        async with parts.store.transaction() as tx:
            await tx.publish("other", {"n": 5})
        await parts.relay_all()
        wanted = {"a": Want(live=5, backfill=2), "b": Want(live=0)}
        claimed = await parts.broker.exchange("me", [], wanted)
        assert numbers(claimed.messages) == [3, 4]  # one of b is due, though it has no room
        assert claimed.next_at["a"].backfill is not None
        assert claimed.next_at["b"].live is not None
        wanted["b"] = Want(live=2)
        claimed = await parts.broker.exchange("me", [], wanted)
        assert numbers(claimed.messages) == [5, 0, 1]
        assert [m.lane for m in claimed.messages] == ["live", "backfill", "backfill"]


async def test_backfill_is_relayed_after_what_is_live(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register(GROUPS)
        async with parts.store.transaction() as tx:
            for n in range(50):
                await tx.publish("thing.done", {"n": n}, lane="backfill", priority=9)
            await tx.publish("thing.done", {"n": 99}, priority=-9)
        if isinstance(parts.broker, StoreBroker):  # others may take more at once
            first = await parts.broker.relay(3)
            assert (first.published, first.backfill) == (3, True)
            assert first.next_at is not None
            assert first.next_at <= parts.store.now_us()
            assert numbers(await claim(parts, 9)) == [99, 0, 1]
            await publish_live(parts, 3)
            assert not (await parts.broker.relay(3)).backfill
            return
        await parts.relay_all()
        assert numbers(await claim(parts, 9))[0] == 99


async def test_key_is_as_live_as_the_last_that_waits_for_it(broker: Open) -> None:
    """Its order counts across lanes; what is live is not left behind what nobody hurries with."""
    async with broker() as parts:
        await parts.broker.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), lane="backfill")
        await publish(parts, (3, "l"))
        await publish(parts, (4, "k"))
        messages = await claim(parts)
        assert sorted(numbers(messages)) == [1, 3]
        await settle(parts, messages, Verdict.DONE)
        await publish(parts, (5, "k"), lane="backfill")
        second = await claim(parts)
        assert [(m.lane, numbers([m])) for m in second] == [("live", [2])]
        await settle(parts, second, Verdict.DONE)
        fourth = await claim(parts)
        assert [(m.lane, numbers([m])) for m in fourth] == [("live", [4])]
        await settle(parts, fourth, Verdict.DONE)
        assert [(m.lane, numbers([m])) for m in await claim(parts)] == [("backfill", [5])]
