"""What every broker promises: publish, fan out, claim, settle, take back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.contract.broker.brokers import BROKERS, Parts
from tests.integration.engine.parts import publish, rows
from tests.integration.redis.stores import prepared

from cordata import clock
from cordata.broker import Message, Outcome, Want
from cordata.core.delivery import Verdict

Open = Callable[[], AbstractAsyncContextManager[Parts]]


@pytest.fixture(params=sorted(BROKERS))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """One of the brokers, on a store of its own; each call is one more process' view."""
    state = prepared(request.param, request, tmp_path)
    return lambda: BROKERS[request.param](state)


def outcome(message: Message, verdict: Verdict, **more: int | str) -> Outcome:
    return Outcome(
        group=message.group,
        id=message.id,
        verdict=verdict,
        event_id=message.event_id,
        **more,  # type: ignore[arg-type]
    )


async def test_event_reaches_each_group_of_its_type_once_when_published(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done", "b": "thing.done", "c": "other"})
        ids = await publish(parts.store, 3)
        assert await parts.relay_all() == 3
        assert await parts.relay_all() == 0
        for group in ("a", "b"):
            messages = await parts.claim(group)
            assert [m.event_id for m in messages] == ids
            assert [json.loads(m.payload)["n"] for m in messages] == [0, 1, 2]
        assert await parts.claim("c") == []


async def test_event_goes_to_nobody_and_is_warned_of_once_when_its_type_has_no_group(
    broker: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker() as parts:
        await parts.broker.register({"other": "other"})
        await publish(parts.store, 2)
        assert await parts.relay_all() == 2
        await publish(parts.store, 1)
        await publish(parts.store, 1, type_="other")
        assert await parts.relay_all() == 2
        told = [one.message for one in caplog.records if one.levelname == "WARNING"]
        assert told == ["no group handles events of type 'thing.done': they are dropped"]
        await parts.broker.register({"late": "thing.done"})
        assert await parts.claim("late") == []
        ids = await publish(parts.store, 1)
        await parts.relay_all()
        assert [m.event_id for m in await parts.claim("late")] == ids


async def test_message_goes_to_one_owner_only_when_two_claim(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 10)
        await parts.relay_all()
        first = await parts.claim("a", 4, "one")
        second = await parts.claim("a", 100, "two")
        assert (len(first), len(second)) == (4, 6)
        assert not {m.id for m in first} & {m.id for m in second}


async def test_message_is_gone_when_done(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 5)
        await parts.relay_all()
        messages = await parts.claim("a")
        await parts.broker.exchange("me", [outcome(m, Verdict.DONE) for m in messages], {})
        assert await rows(parts.store, "messages") == []
        assert (await rows(parts.store, "seen_count"))[0]["count"] == (5 if parts.in_store else 0)
        depth = await parts.broker.depth(["a"])
        assert not (depth.outbox or depth.ready or depth.claimed or depth.dead)


async def test_message_is_not_to_be_handled_when_its_mark_exists_already(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        (event_id,) = await publish(parts.store, 1)
        await parts.relay_all()
        async with parts.store.transaction(seen=("a", event_id)):
            pass
        (message,) = await parts.claim("a")
        assert message.seen or not parts.in_store  # else its own commit finds the mark


async def test_message_is_due_again_after_its_delay_when_it_failed(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1)
        await parts.relay_all()
        (message,) = await parts.claim("a")
        failed = outcome(message, Verdict.RETRY, attempts=1, delay_us=3_600_000_000, history="[1]")
        claimed = await parts.broker.exchange("me", [failed], {"a": Want(live=10)})
        assert claimed.messages == []
        assert (claimed.next_at["a"].live or 0) > clock.now_us() + 3_500_000_000
        assert (await parts.broker.due_at(["a"])).keys() == {"a"}


async def test_attempts_and_history_come_back_when_message_is_retried(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1)
        await parts.relay_all()
        (message,) = await parts.claim("a")
        failed = outcome(message, Verdict.RETRY, attempts=1, history="[1]")
        await parts.broker.exchange("me", [failed], {})
        (again,) = await parts.claim("a", owner="other")
        assert (again.attempts, again.history) == (1, "[1]")


async def test_message_is_claimable_at_once_when_given_back(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 3)
        await parts.relay_all()
        messages = await parts.claim("a")
        await parts.broker.exchange("me", [outcome(m, Verdict.BACK) for m in messages], {})
        again = await parts.claim("a", owner="other")
        assert [m.attempts for m in again] == [0, 0, 0]


async def test_message_is_never_claimed_again_when_dead(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1)
        await parts.relay_all()
        (message,) = await parts.claim("a")
        dead = outcome(message, Verdict.DEAD, attempts=6, history="[6]")
        await parts.broker.exchange("me", [dead], {})
        assert await parts.claim("a") == []
        assert (await parts.broker.depth(["a"])).dead == 1


async def test_outcome_changes_nothing_when_another_owner_holds_the_message(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1)
        await parts.relay_all()
        (message,) = await parts.claim("a", owner="slow")
        await parts.broker.exchange("slow", [outcome(message, Verdict.BACK)], {})
        (taken,) = await parts.claim("a", owner="fast")
        for verdict in (Verdict.DONE, Verdict.BACK, Verdict.DEAD, Verdict.RETRY):
            await parts.broker.exchange("slow", [outcome(message, verdict)], {})
        (held,) = await parts.broker.held("fast", limit=10)
        assert held.id == taken.id


async def test_urgent_messages_come_first_and_equal_ones_in_order(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        low = await publish(parts.store, 2, priority=-1)
        normal = await publish(parts.store, 2)
        high = await publish(parts.store, 2, priority=5)
        await parts.relay_all()
        assert [m.event_id for m in await parts.claim("a")] == high + normal + low


async def test_event_is_not_published_before_it_is_due_when_delayed(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1, delay_s=3600.0)
        due = await publish(parts.store, 1)
        assert await parts.relay_all() == 1
        assert [m.event_id for m in await parts.claim("a")] == due
        at = await parts.broker.outbox_due_at()
        assert at is not None
        assert at > clock.now_us() + 3_500_000_000


async def test_owner_is_listed_with_its_messages_while_it_holds_some(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done", "b": "thing.done"})
        await publish(parts.store, 2)
        await parts.relay_all()
        await parts.claim("a", owner="one")
        await parts.claim("b", owner="two")
        assert await parts.broker.owners() == {"one": False, "two": False}
        assert len(await parts.broker.held("one", limit=10)) == 2
        await parts.broker.renew("one")
        assert not any(h.expired for h in await parts.broker.held("one", limit=10))


async def test_depth_tells_what_is_left_when_work_is_in_each_stage(broker: Open) -> None:
    async with broker() as parts:
        await parts.broker.register({"a": "thing.done"})
        await publish(parts.store, 1, delay_s=3600.0)
        assert not (await parts.broker.depth(["a"])).outbox
        await publish(parts.store, 1)
        assert (await parts.broker.depth(["a"])).outbox
        await parts.relay_all()
        depth = await parts.broker.depth(["a"])
        assert (depth.outbox, depth.ready, depth.claimed) == (False, True, False)
        assert not (await parts.broker.depth(["other"])).ready
        await parts.claim("a")
        depth = await parts.broker.depth(["a"])
        assert (depth.ready, depth.claimed) == (False, True)
