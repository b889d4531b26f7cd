"""What a process publishes goes into its own hands at once, as far as it has room for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.integration.engine.parts import opened, publish, rows
from tests.integration.redis.stores import prepared

from cordata.broker import Message, Outcome, StoreBroker, Want
from cordata.broker.direct import Taker
from cordata.broker.stray import Mark
from cordata.core.delivery import Verdict
from cordata.core.outbox import BACKFILL
from cordata.errors import PermanentError, StoreUnavailable
from cordata.store import Store, Unit

T = TypeVar("T")


class Hands:
    """Of a process: so much room in each group; what came, in its order."""

    def __init__(self, **room: int) -> None:
        self.room = room
        self.messages: list[Message] = []
        #: How often something, or nothing, was brought.
        self.brought = 0

    @property
    def taker(self) -> Taker:
        return Taker("me", lambda: self.room, self._receive, self._known)

    def _receive(self, messages: Sequence[Message]) -> None:
        self.brought += 1
        self.messages += messages

    def _known(self) -> Collection[Mark]:
        return {(m.group, m.id) for m in self.messages}


class DeafStore:
    """A store whose answer to a commit is lost while `deaf` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.deaf = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, unit: Unit[T], **options: Any) -> T:
        result = await self._store.run(unit, **options)
        if self.deaf:
            raise StoreUnavailable("whether it was committed is not known")
        return result


@pytest.fixture(params=["postgres", "sqlite"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return prepared(request.param, request, tmp_path)


@asynccontextmanager
async def broker_of(state: Path, **groups: str) -> AsyncIterator[tuple[StoreBroker, Store]]:
    async with opened(state) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register(groups)
        yield broker, store


async def states(store: Store) -> list[str]:
    return sorted(row["state"] for row in await rows(store, "messages"))


async def claim(broker: StoreBroker, group: str, owner: str = "other") -> list[Message]:
    return list((await broker.exchange(owner, [], {group: Want(live=100)})).messages)


async def test_event_comes_claimed_when_there_is_room(state: Path) -> None:
    async with broker_of(state, a="thing.done") as (broker, store):
        hands = Hands(a=5)
        broker.bring(hands.taker)
        ids = await publish(store, 3, key="k")
        assert (await broker.relay(100)).published == 3
        assert [m.event_id for m in hands.messages] == ids
        first = hands.messages[0]
        assert (first.group, first.key, first.attempts, first.seen) == ("a", "k", 0, False)
        assert await states(store) == ["claimed"] * 3
        assert len(await broker.held("me", limit=10)) == 3
        assert await claim(broker, "a") == []
        done = [
            Outcome(group=m.group, id=m.id, verdict=Verdict.DONE, event_id=m.event_id)
            for m in hands.messages
        ]
        await broker.exchange("me", done, {})
        assert await states(store) == []


async def test_urgent_come_first_and_the_rest_is_for_everybody_when_room_is_short(
    state: Path,
) -> None:
    async with broker_of(state, a="thing.done") as (broker, store):
        hands = Hands(a=3)
        broker.bring(hands.taker)
        normal = await publish(store, 3)
        urgent = await publish(store, 2, priority=9)
        await broker.relay(100)
        assert [m.event_id for m in hands.messages] == [*urgent, normal[0]]
        assert [m.event_id for m in await claim(broker, "a")] == normal[1:]


async def test_other_groups_get_theirs_when_one_takes_it_at_once(state: Path) -> None:
    async with broker_of(state, a="thing.done", b="thing.done", c="other") as (broker, store):
        hands = Hands(a=1, b=5, c=5)
        broker.bring(hands.taker)
        ids = await publish(store, 2)
        (other,) = await publish(store, 1, type_="other")
        await broker.relay(100)
        got = [(m.group, m.event_id) for m in hands.messages]
        assert sorted(got) == sorted([("a", ids[0]), ("b", ids[0]), ("c", other)])
        hands.room = {"b": 5}
        assert [m.event_id for m in await claim(broker, "a")] == ids[1:]
        assert [m.event_id for m in await claim(broker, "b")] == ids[1:]
        later = await publish(store, 1)
        await broker.relay(100)
        assert (hands.messages[-1].group, hands.messages[-1].event_id) == ("b", *later)
        assert [m.event_id for m in await claim(broker, "a")] == later


async def test_keys_and_backfill_go_the_usual_way(state: Path) -> None:
    async with opened(state) as store:
        broker = StoreBroker(store, claim_timeout_s=60.0)
        await broker.register({"a": "thing.done", "k": "thing.done"}, keyed=["k"])
        hands = Hands(a=9, k=9)
        broker.bring(hands.taker)
        keyed = await publish(store, 2, key="x")
        await publish(store, 1, lane=BACKFILL)
        await broker.relay(100)
        assert [(m.group, m.event_id) for m in hands.messages] == [("a", id) for id in keyed]
        # Of the keyed group the first of the key, and what has none.
        assert await states(store) == ["claimed", "claimed", "ready", "ready", "ready", "waiting"]


async def test_entry_goes_the_usual_way_when_another_broker_had_it(state: Path) -> None:
    """It may have been handled: only a claim looks at the seen-marks."""
    async with broker_of(state, a="thing.done") as (broker, store):
        hands = Hands(a=9)
        broker.bring(hands.taker)
        await publish(store, 1)

        await store.run(lambda tx: tx.execute("fail_entries", state="failed", at=1))
        assert (await broker.relay(100)).published == 1
        assert hands.messages == []
        assert len(await claim(broker, "a")) == 1


async def test_nothing_is_brought_when_the_process_is_quiet(state: Path) -> None:
    async with broker_of(state, a="thing.done") as (broker, store):
        hands = Hands(a=9)
        broker.bring(hands.taker)
        await broker.quiet("me")
        await publish(store, 1)
        await broker.relay(100)
        assert (hands.messages, hands.brought) == ([], 0)
        assert len(await claim(broker, "a")) == 1


async def test_room_is_free_again_when_the_relay_fails(state: Path) -> None:
    async with opened(state) as store:
        deaf = DeafStore(store)
        broker = StoreBroker(deaf, claim_timeout_s=60.0)
        await broker.register({"a": "thing.done"})
        hands = Hands(a=9)
        broker.bring(hands.taker)
        deaf.deaf = True
        await publish(store, 1)
        with pytest.raises(StoreUnavailable):
            await broker.relay(100)
        assert (hands.messages, hands.brought) == ([], 1)


@pytest.mark.parametrize("way", ["brought", "claimed"])
async def test_message_is_not_lost_when_the_answer_to_its_claim_is(state: Path, way: str) -> None:
    async with opened(state) as store:
        deaf = DeafStore(store)
        broker = StoreBroker(deaf, claim_timeout_s=60.0)
        await broker.register({"a": "thing.done"})
        hands = Hands(a=1)
        broker.bring(hands.taker)
        ids = await publish(store, 1)
        await broker.relay(100)  # this one is in hand, and stays there
        if way == "claimed":
            hands.room = {}
            ids += await publish(store, 2)
            await broker.relay(100)
        assert not broker.doubts()
        deaf.deaf = True
        with pytest.raises(StoreUnavailable):
            if way == "claimed":
                await claim(broker, "a", owner="me")
            else:
                ids += await publish(store, 1)
                await broker.relay(100)
        deaf.deaf = False
        assert broker.doubts()
        assert await states(store) == ["claimed"] * len(ids)
        await broker.renew("me")  # suspects them
        assert await claim(broker, "a") == []
        await broker.renew("me")
        assert [m.event_id for m in await claim(broker, "a")] == ids[1:]
        assert [m.event_id for m in hands.messages] == ids[:1]
        assert [h.group for h in await broker.held("me", limit=10)] == ["a"]
        await broker.renew("me")
        assert not broker.doubts()


async def test_claim_that_is_on_its_way_is_no_stray(state: Path) -> None:
    """It is there at one look, and known at the next one."""
    async with opened(state) as store:
        deaf = DeafStore(store)
        broker = StoreBroker(deaf, claim_timeout_s=60.0)
        await broker.register({"a": "thing.done"})
        hands = Hands()
        broker.bring(hands.taker)
        await publish(store, 1)
        await broker.relay(100)
        deaf.deaf = True
        with pytest.raises(StoreUnavailable):
            await broker.exchange("me", [], {})
        deaf.deaf = False
        late = await claim(broker, "a", owner="me")
        await broker.renew("me")
        hands.messages += late
        await broker.renew("me")
        assert await states(store) == ["claimed"]
        assert not broker.doubts()


@pytest.mark.parametrize(("type_", "key"), [("thing.done", "a\0b"), ("thing\0done", None)])
async def test_event_is_refused_when_its_type_or_key_has_a_nul(
    state: Path, type_: str, key: str | None
) -> None:
    """SQLite would keep it, and find it nowhere: its group would wait for it for ever."""
    async with opened(state) as store:
        with pytest.raises(PermanentError, match="NUL"):
            await publish(store, 1, type_=type_, key=key)
