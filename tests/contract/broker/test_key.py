"""Key order: of each key one process at a time, in the order of the events, whatever happens."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
from tests.contract.broker.brokers import Parts, outcome
from tests.contract.broker.conftest import Open
from tests.contract.broker.cost import counted
from tests.integration.engine.parts import rows
from tests.integration.engine.stores import url_of
from tests.raw import raw

from cordata.broker import ClaimLimit, Message, Outcome
from cordata.broker.inspection import DeadLetters, Filter, Outbox
from cordata.core.message_state import Verdict
from cordata.store import Store, Tx

GROUPS = {"a": "thing.done"}
#: Messages of one key that wait.
HOT = 100_000


async def publish(parts: Parts, *events: tuple[int, str | None], **more: object) -> None:
    """Commit events (n, key)."""

    async def unit(tx: Tx) -> None:
        for n, key in events:
            await tx.publish("thing.done", {"n": n}, key=key, **more)  # type: ignore[arg-type]

    await parts.store.run(unit)


def numbers(messages: Sequence[Message]) -> list[int]:
    return [json.loads(message.payload)["n"] for message in messages]


def by_key(messages: Sequence[Message]) -> dict[str | None, list[int]]:
    """The numbers of each key, in the order in which they came."""
    found: dict[str | None, list[int]] = defaultdict(list)
    for message in messages:
        found[message.key] += numbers([message])
    return dict(found)


async def handle_all(parts: Parts, *, run: int = 1) -> list[int]:
    """Claim and finish until nothing can be claimed."""
    handled: list[int] = []
    while messages := await parts.claim("a", run=run):
        handled += numbers(messages)
        await parts.settle(messages, Verdict.DONE)
    assert await rows(parts.store, "messages") == []
    return handled


async def test_key_has_one_message_in_hand_and_others_do_not_wait(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "l"), (4, None), (5, None), (6, "k"))
        first = await parts.claim("a")
        assert by_key(first) == {"k": [1], "l": [3], None: [4, 5]}
        assert await parts.claim("a", owner="other") == []
        held = [message for message in first if message.key == "k"]
        await parts.settle([m for m in first if m not in held], Verdict.DONE)
        assert await parts.claim("a", owner="other") == []
        await parts.settle(held, Verdict.DONE)
        assert numbers(await parts.claim("a", owner="other")) == [2]


async def test_key_is_the_longest_that_can_be_when_it_does_not_compress(broker: Open) -> None:
    letters = random.Random(1)
    key = "".join(chr(letters.randrange(0x10000, 0x20000)) for _ in range(256))
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, key), (2, key))
        first = await parts.claim("a")
        assert [message.key for message in first] == [key]
        await parts.settle(first, Verdict.DONE)
        assert numbers(await parts.claim("a")) == [2]


async def test_order_is_that_of_events_when_the_group_did_not_ask_for_keys(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "k"))
        messages = await parts.claim("a")
        assert numbers(messages) == [1, 2, 3]
        assert {message.order_key for message in messages} == {None}
        assert {message.key for message in messages} == {"k"}


async def test_run_of_a_key_goes_to_one_process_and_counts_as_one(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(10)), (20, "l"), (21, "m"), (22, "l"))
        messages = await parts.claim("a", 2, run=4)
        assert by_key(messages) == {"k": [0, 1, 2, 3], "l": [20, 22]}
        await parts.settle(messages, Verdict.DONE)
        assert by_key(await parts.claim("a", 9, run=4)) == {"k": [4, 5, 6, 7], "m": [21]}


async def test_retry_holds_back_its_own_key_only(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), (2, "k"), (3, "k"), (4, "l"), (5, "l"))
        messages = await parts.claim("a", run=2)
        assert by_key(messages) == {"k": [1, 2], "l": [4, 5]}
        failed = outcome(messages[0], Verdict.RETRY, delay_us=200_000)
        rest = [outcome(m, Verdict.DONE) for m in messages[2:]]
        outcomes = [failed, outcome(messages[1], Verdict.GIVEN_BACK), *rest]
        before = parts.store.now_us()
        claimed = await parts.process().settle_and_claim(
            outcomes, {"a": ClaimLimit(count=9, low=9, run=9)}
        )
        assert not claimed.messages
        assert claimed.next_at is not None and claimed.next_at > before
        again: list[Message] = []
        while not again:
            await asyncio.sleep(0.02)
            again = await parts.claim("a", run=3)
        assert numbers(again) == [1, 2, 3]
        assert [message.attempt for message in again] == [2, 1, 1]


async def test_later_ones_go_on_when_one_is_dead_and_it_comes_first_when_replayed(
    broker: Open,
) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(1, 6)))
        await parts.settle(await parts.claim("a"), Verdict.DEAD)
        second = await parts.claim("a")
        assert numbers(second) == [2]
        assert await DeadLetters(parts.store).replay(Filter()) == 1
        assert await parts.claim("a") == []  # one of its key is in hand
        await parts.settle(second, Verdict.DONE)
        assert await handle_all(parts) == [1, 3, 4, 5]


async def test_events_that_are_published_again_keep_their_order(broker: Open) -> None:
    async with broker() as parts:
        await publish(parts, *((n, "kl"[n % 2]) for n in range(6)))
        await parts.register(GROUPS, keyed=GROUPS)
        assert (await Outbox(parts.store).replay(Filter())).messages == 6
        assert by_key(await parts.claim("a")) == {"k": [0], "l": [1]}
        assert await parts.claim("a") == []


async def test_run_comes_back_in_order_when_given_back_piece_by_piece(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(8)))
        messages = await parts.claim("a", owner="one", run=6)
        assert numbers(messages) == [0, 1, 2, 3, 4, 5]
        for piece in (messages[3:4], messages[1:3], messages[4:]):
            await parts.settle(piece, Verdict.GIVEN_BACK, "one")
            assert await parts.claim("a") == []
        await parts.settle(messages[:1], Verdict.RETRY, "one")
        assert await handle_all(parts) == list(range(8))


async def test_run_of_a_dead_process_comes_back_in_order(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, *((n, "k") for n in range(6)), (9, "l"))
        assert numbers(await parts.claim("a", 1, owner="dead", run=4)) == [0, 1, 2, 3]
        assert await parts.process().reclaim("dead", is_dead=True) == 4
        handled: list[int] = []
        while messages := await parts.claim("a", suspect_allowed=True):
            handled += numbers(messages)
            await parts.settle(messages, Verdict.DONE)
        assert [n for n in handled if n != 9] == [0, 1, 2, 3, 4, 5] and 9 in handled


async def test_priority_is_nothing_to_a_group_that_wants_the_order_of_keys(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), priority=-5)
        await publish(parts, (2, "k"))
        await publish(parts, (3, "k"), priority=9)
        assert await handle_all(parts) == [1, 2, 3]


async def test_scheduled_one_takes_its_place_when_it_is_due(broker: Open) -> None:
    """It holds nobody back before: of what is due, the order of the events counts."""
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (1, "k"), delay_s=3600.0)
        await publish(parts, (2, "k"), (3, "k"), (4, "k"))
        second = await parts.claim("a")
        assert numbers(second) == [2]
        await parts.store.run(lambda tx: tx.execute("due_now", now_us=tx.now_us))
        assert await parts.claim("a") == []
        await parts.settle(second, Verdict.DONE)
        assert await handle_all(parts) == [1, 3, 4]


async def test_hot_key_in_the_way_costs_others_nothing(broker: Open, tmp_path: Path) -> None:
    """100,000 of one key, whose first is in back-off: claims go on, and stay as cheap."""
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (0, "hot"))
        first = await parts.claim("a")
        await publish(parts, *((n, f"k{n}") for n in range(300)))
        await _clean_up(parts, url_of(tmp_path))
        alone, alone_cost = await _handle_by_tens(parts)
        await _pile_up(parts.store)
        await publish(parts, *((n, f"k{n}") for n in range(300)))
        await parts.settle(first, Verdict.RETRY, delay_us=3_600_000_000)
        await _clean_up(parts, url_of(tmp_path))
        beside, beside_cost = await _handle_by_tens(parts)
        print(f"a claim of 10 looks at {alone_cost}, beside {HOT} of a hot key at {beside_cost}")
        assert sorted(alone) == sorted(beside) == list(range(300))
        assert beside_cost < 2 * alone_cost


async def _clean_up(parts: Parts, url: str) -> None:
    """As PostgreSQL does sooner or later: dead rows, of the relay above all, are looked at, too."""
    await parts.arrive()
    if url != "sqlite:":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE message")


async def _handle_by_tens(parts: Parts) -> tuple[list[int], int]:
    """All that can be had, and the least that the store looked at for a claim of ten."""
    handled: list[int] = []
    costs: list[int] = []
    while True:
        with counted(parts.store) as cost:
            messages = await parts.claim("a", 10, run=10)
        costs.append(cost.count)
        if not messages:
            return handled, min(costs[:-1])
        handled += numbers(messages)
        await parts.settle(messages, Verdict.DONE)


async def test_hot_key_has_its_turn_and_no_more(broker: Open) -> None:
    async with broker() as parts:
        await parts.register(GROUPS, keyed=GROUPS)
        await publish(parts, (0, "hot"))
        first = await parts.claim("a")
        await _pile_up(parts.store)
        await publish(parts, *((n, f"k{n}") for n in range(1, 30)))
        await parts.settle(first, Verdict.DONE)
        others: set[int] = set()
        passes = 0
        while len(others) < 29:
            messages = await parts.claim("a", 4, run=50)
            others |= {n for n in numbers(messages) if n}
            await parts.settle(messages, Verdict.DONE)
            passes += 1
        assert passes <= 10  # three or four others in each


async def _pile_up(store: Store) -> None:
    """As many more of the key `hot`, as `publish` would have written them."""
    for first in range(1, HOT, 20_000):  # a busy machine may take seconds for each

        async def unit(tx: Tx, first: int = first) -> None:
            await raw(
                tx,
                f"""WITH RECURSIVE n (i) AS
                (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {first + 19_999})
                INSERT INTO event (position, id, type, key, payload, due_at, created_at)
                SELECT 1000 + i, 'hot' || i, 'thing.done', 'hot', '{{"n": 0}}', 0, 0 FROM n""",
            )
            await raw(
                tx,
                f"""INSERT INTO message
                    (event_id, "group", position, key, priority, state, next_at)
                SELECT id, 'a', position, 'hot', 0, 'ready', 0 FROM event
                WHERE position >= {1000 + first}
                ON CONFLICT DO NOTHING""",
            )
            if "postgres" in type(tx).__module__:
                await raw(tx, "SELECT setval('event_position_seq', 200000)")

        await store.run(unit)


async def test_order_holds_when_several_processes_publish_fail_and_die(broker: Open) -> None:
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

    async def work(one: Parts, number: int) -> None:
        outcomes: list[Outcome] = []
        owner = f"owner-{number}-0"
        wants = {"a": ClaimLimit(count=3, low=3, run=3)}
        for life in range(10_000):
            await one.arrive()
            claimed = await one.process(owner).settle_and_claim(
                outcomes, wants if left() else {}, suspect_allowed=True
            )
            for message in claimed.messages:
                assert message.order_key is not None
                assert in_hand.setdefault(message.order_key, owner) == owner
            await asyncio.sleep(rng.random() * 0.004)
            dies = rng.random() < 0.1
            outcomes = [] if dies else judge(claimed.messages)
            for message in claimed.messages:
                in_hand.pop(message.order_key or "", None)
            if dies:  # another process takes back what it held
                await one.process("other").reclaim(owner, is_dead=True)
                owner = f"owner-{number}-{life + 1}"
            for one_outcome in outcomes:
                if one_outcome.verdict is Verdict.DEAD:
                    key = one_outcome.message.order_key or ""
                    dead[key].update(numbers([one_outcome.message]))
            if not left() and not outcomes:
                return

    def judge(messages: Sequence[Message]) -> list[Outcome]:
        found: list[Outcome] = []
        blocked: set[str | None] = set()
        for message in messages:
            key, luck = message.order_key or "", rng.random()
            if key in blocked:
                found.append(outcome(message, Verdict.GIVEN_BACK))
            elif luck < 0.1:
                found.append(outcome(message, Verdict.RETRY, delay_us=rng.randrange(20_000)))
                blocked.add(key)
            elif luck < 0.13:
                found.append(outcome(message, Verdict.DEAD))
                blocked.add(key)  # for this test: what follows is not handled before it is told
            else:
                handled[key] += numbers([message])
                found.append(outcome(message, Verdict.DONE))
        return found

    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(broker()) for _ in range(4)]
        for one in parts:  # no message is to be dead because several that handled it died
            await one.register(GROUPS, keyed=GROUPS, retries=1000)
        async with asyncio.timeout(300):
            await asyncio.gather(
                *(feed(parts[n % 4], key) for n, key in enumerate(keys)),
                *(work(one, n) for n, one in enumerate(parts)),
            )
    for key in keys:
        firsts = list(dict.fromkeys(handled[key]))
        assert firsts == sorted(firsts), key
        assert len(dead[key].union(firsts)) == each, key
