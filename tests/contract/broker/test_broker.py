"""What every broker promises: events reach the groups of their type, are claimed and settled."""

from __future__ import annotations

import json

from tests.contract.broker.conftest import Open
from tests.integration.engine.parts import publish, rows

from cordata import clock
from cordata.broker import ClaimLimit
from cordata.core.message_state import Verdict


async def test_event_reaches_each_group_of_its_type_once_when_published(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done", "b": "thing.done", "c": "other"})
        ids = await publish(parts.store, 3)
        for group in ("a", "b"):
            messages = await parts.claim(group)
            assert [m.event_id for m in messages] == ids
            assert [json.loads(m.payload)["n"] for m in messages] == [0, 1, 2]
            assert await parts.claim(group) == []
        assert await parts.claim("c") == []


async def test_group_gets_what_is_published_from_its_registration_on(broker: Open) -> None:
    async with broker() as parts:
        await publish(parts.store, 2)
        await parts.register({"late": "thing.done"})
        ids = await publish(parts.store, 1)
        assert [m.event_id for m in await parts.claim("late")] == ids


async def test_message_goes_to_one_process_when_two_claim(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 10)
        first = await parts.claim("a", 4, "one")
        second = await parts.claim("a", 100, "two")
        assert (len(first), len(second)) == (4, 6)
        assert not {m.event_id for m in first} & {m.event_id for m in second}


async def test_message_is_gone_and_its_mark_there_when_done(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 5)
        await parts.settle(await parts.claim("a"), Verdict.DONE)
        assert await rows(parts.store, "messages") == []
        assert (await rows(parts.store, "handled_count"))[0]["count"] == 5
        left = await parts.backlog("a")
        assert (left.ready, left.scheduled, left.claimed, left.dead) == (0, 0, 0, 0)


async def test_message_is_due_again_after_its_delay_when_it_failed(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1)
        messages = await parts.claim("a")
        await parts.settle(messages, Verdict.RETRY, delay_us=3_600_000_000)
        claimed = await parts.process().settle_and_claim([], {"a": ClaimLimit(count=10, low=10)})
        assert list(claimed.messages) == []
        assert (claimed.next_at or 0) > clock.now_us() + 3_500_000_000
        assert (await parts.backlog("a")).retrying == 1


async def test_attempts_and_history_come_back_when_message_is_retried(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1)
        (message,) = await parts.claim("a")
        assert (message.attempt, message.history) == (1, None)
        await parts.settle([message], Verdict.RETRY)
        (again,) = await parts.claim("a", owner="other")
        assert again.attempt == 2
        assert [one["attempt"] for one in json.loads(again.history or "")] == [1]


async def test_attempt_does_not_count_when_message_is_given_back_or_put_off(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 3)
        await parts.settle(await parts.claim("a"), Verdict.GIVEN_BACK)
        again = await parts.claim("a", owner="other")
        assert [m.attempt for m in again] == [1, 1, 1]
        await parts.settle(again, Verdict.DEFER, "other")
        assert [m.attempt for m in await parts.claim("a")] == [1, 1, 1]


async def test_message_is_never_claimed_again_when_dead(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1)
        await parts.settle(await parts.claim("a"), Verdict.DEAD)
        assert await parts.claim("a") == []
        assert (await parts.backlog("a")).dead == 1


async def test_outcome_changes_nothing_when_another_process_has_the_message(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 2)
        messages = await parts.claim("a", owner="slow")
        assert await parts.process("fast").reclaim("slow", is_dead=True) == 2
        (taken,) = await parts.claim("a", owner="fast", suspect_allowed=True)
        for verdict in (Verdict.GIVEN_BACK, Verdict.DEAD, Verdict.RETRY, Verdict.DONE):
            await parts.settle(messages, verdict, "slow")
        left = [(row["state"], row["owner"]) for row in await rows(parts.store, "messages")]
        assert sorted(left, key=str) == [("claimed", "fast"), ("ready", None)]
        await parts.settle([taken], Verdict.DONE, "fast")
        assert len(await rows(parts.store, "messages")) == 1


async def test_settling_twice_changes_nothing(broker: Open) -> None:
    """The answer to the first may have been lost."""
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 4)
        messages = await parts.claim("a")
        verdicts = (Verdict.DONE, Verdict.RETRY, Verdict.DEAD, Verdict.GIVEN_BACK)
        for _ in range(2):
            for message, verdict in zip(messages, verdicts, strict=True):
                await parts.settle([message], verdict, delay_us=3_600_000_000)
        left = [(row["state"], row["attempts"]) for row in await rows(parts.store, "messages")]
        assert sorted(left) == [("dead", 1), ("ready", 0), ("scheduled", 1)]


async def test_higher_priorities_come_first_and_equal_ones_in_order(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        low = await publish(parts.store, 2, priority=-1)
        normal = await publish(parts.store, 2)
        high = await publish(parts.store, 2, priority=5)
        found = [m.event_id for m in await parts.claim("a")]
        assert found == high + normal + low or parts.kind == "redis"
        assert sorted(found) == sorted(high + normal + low)


async def test_low_priorities_take_the_places_that_they_may_and_no_others(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        low = await publish(parts.store, 5, priority=-1)
        (normal,) = await publish(parts.store, 1)
        found = [m.event_id for m in await parts.claim("a", 8, low=2)]
        assert sorted(found) == sorted([normal, *low[:2]])
        assert await parts.claim("a", 8, low=0) == []
        assert [m.event_id for m in await parts.claim("a", 0, low=3)] == low[2:]


async def test_event_is_not_claimed_before_it_is_due_when_delayed(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 1, delay_s=3600.0)
        due = await publish(parts.store, 1)
        assert [m.event_id for m in await parts.claim("a")] == due
        (left,) = [r for r in await rows(parts.store, "messages") if r["state"] != "claimed"]
        assert left["state"] == "scheduled"
        assert left["next_at"] > clock.now_us() + 3_500_000_000


async def test_backlog_has_what_is_left_when_work_is_in_each_stage(broker: Open) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done", "b": "other"})
        await publish(parts.store, 1, delay_s=3600.0)
        assert not await parts.is_left("a")
        await publish(parts.store, 1)
        assert await parts.is_left("a")
        assert parts.kind == "redis" or not await parts.is_left("b")
        messages = await parts.claim("a")
        assert await parts.is_left("a")
        assert (await parts.backlog("a")).claimed == (parts.kind == "store")
        await parts.settle(messages, Verdict.RETRY, delay_us=3_600_000_000)
        assert await parts.is_left("a")
        await parts.store.run(lambda tx: tx.execute("due_now", now_us=tx.now_us))
        while messages := await parts.claim("a"):
            await parts.settle(messages, Verdict.DONE)
        assert not await parts.is_left("a")


async def test_claim_that_its_process_does_not_know_goes_back_at_the_second_look(
    broker: Open,
) -> None:
    """The answer to it was lost; one that is on its way is known at the next look."""
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 3)
        messages = await parts.claim("a")
        known = [m.id for m in messages[:1]]
        await parts.process().give_back_orphans(known)
        assert await parts.claim("a", owner="other") == []
        await parts.process().give_back_orphans(known)
        again = await parts.claim("a", owner="other")
        assert [m.event_id for m in again] == [m.event_id for m in messages[1:]]
        assert [m.attempt for m in again] == [1, 1]
        await parts.process().give_back_orphans(known)
        assert await parts.claim("a", owner="other") == []


async def test_what_a_dead_process_had_is_claimed_one_at_a_time(broker: Open) -> None:
    """One of them may have killed it: it is to die alone."""
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        await publish(parts.store, 3)
        assert len(await parts.claim("a", owner="dead")) == 3
        assert await parts.process().reclaim("dead", is_dead=True) == 3
        claimed = await parts.process().settle_and_claim([], {"a": ClaimLimit(count=9, low=9)})
        assert (list(claimed.messages), claimed.suspects) == ([], True)
        for _ in range(3):
            (one,) = await parts.claim("a", suspect_allowed=True)
            assert (one.suspect, one.attempt) == (True, 1)
            await parts.settle([one], Verdict.DONE)
        await publish(parts.store, 2)
        assert len(await parts.claim("a", suspect_allowed=True)) == 2


async def test_message_that_kills_its_process_each_time_is_a_dead_letter_in_the_end(
    broker: Open,
) -> None:
    async with broker() as parts:
        await parts.register({"a": "thing.done"})
        killer, harmless = await publish(parts.store, 2)
        assert len(await parts.claim("a", owner="dead-0")) == 2
        await parts.process().reclaim("dead-0", is_dead=True)
        for number in range(1, 20):
            if (await parts.backlog("a")).dead:
                break
            await parts.store.run(lambda tx: tx.execute("due_now", now_us=tx.now_us))
            for message in await parts.claim("a", owner=f"dead-{number}", suspect_allowed=True):
                if message.event_id == harmless:
                    await parts.settle([message], Verdict.DONE, f"dead-{number}")
            await parts.process().reclaim(f"dead-{number}", is_dead=True)
        (left,) = [r for r in await rows(parts.store, "messages") if r["state"] == "dead"]
        assert (left["event_id"], left["attempts"]) == (killer, 6)
        errors = [one["error"] for one in json.loads(left["history"])]
        assert len(errors) == 6 and all("the process died" in error for error in errors)
