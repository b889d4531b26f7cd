"""Rows of partitions: claims and terms, positions that only their owner moves."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace
from tests.contract.eventstore.streams import append
from tests.contract.store.stores import Opener, add_account, balance
from tests.processes import joined

from cordata.errors import AlreadySeen, PartitionLost, PermanentError
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.partition import Claim, Partitions, PartitionState, advance
from cordata.store import Store, Tx


async def claimed(store: Store, owner: str, *numbers: int, lease_s: float = 60.0) -> list[Claim]:
    """Claims of a new worker."""
    partitions = Partitions(store)
    await partitions.add("p", "account", 4, 0)
    await joined(store, owner, ["p"], lease_s=lease_s)
    return [one.claim for one in await partitions.claim(owner, {"p": numbers}, out_of={"p": 4})]


async def state(store: Store, number: int) -> PartitionState:
    return (await Partitions(store).read_table(["p"])).states[number]


async def move(store: Store, claim: Claim, position: int) -> None:
    await store.run(lambda tx: advance(tx, claim, position))


async def test_partition_has_one_owner_when_two_claim_it(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await claimed(one, "a")
        await claimed(two, "b")
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    Partitions(store).claim(owner, {"p": [0, 1, 2, 3]}, out_of={"p": 4})
                )
                for store, owner in ((one, "a"), (two, "b"), (one, "a"), (two, "b"))
            ]
        got = [found.partition for task in tasks for found in task.result()]
        # Passed over while another was at it, perhaps: then the next look gets it.
        got += [
            s.partition
            for s in await Partitions(one).claim("a", {"p": [0, 1, 2, 3]}, out_of={"p": 4})
        ]
        assert sorted(got) == [0, 1, 2, 3]


async def test_partition_is_claimed_once_when_two_processes_claim_it_at_the_same_moment(
    opened: Opener,
) -> None:
    """Whoever is second sees that the first one lives, though it began to look before."""
    async with opened() as one, opened() as two:
        for turn in range(60):
            name = f"p{turn}"
            for store, owner in ((one, "a"), (two, "b")):
                await Partitions(store).add(name, "account", 4, 0)
                await joined(store, owner, [name])
            found = await asyncio.gather(
                *[
                    Partitions(store).claim(owner, {name: [0, 1, 2, 3]}, out_of={name: 4})
                    for store, owner in ((one, "a"), (two, "b"), (one, "a"), (two, "b"))
                ]
            )
            assert {one.term for got in found for one in got} == {1}


async def test_partition_stays_with_its_owner_while_that_is_counted_as_alive(
    opened: Opener,
) -> None:
    async with opened() as store:
        (claim,) = await claimed(store, "a", 2)
        assert claim.term == 1
        assert await claimed(store, "b", 2) == []
        await (await joined(store, "a")).leave()
        (taken,) = await claimed(store, "b", 2)
        assert (taken.owner, taken.term) == ("b", 2)


async def test_partition_is_free_when_its_owner_did_not_renew(opened: Opener) -> None:
    async with opened() as store:
        (claim,) = await claimed(store, "a", 0, lease_s=-0.001)
        (taken,) = await claimed(store, "b", 0)
        assert taken.term == claim.term + 1
        # The first one lives again. What was taken stays taken.
        await joined(store, "a", ["p"])
        assert await Partitions(store).claim("a", {"p": [0]}, out_of={"p": 4}) == []


async def test_position_moves_with_the_effect_for_the_owner_only(opened: Opener) -> None:
    async with opened() as store:
        (old,) = await claimed(store, "a", 0, lease_s=-0.001)
        await move(store, old, 3)
        (new,) = await claimed(store, "b", 0)

        async def unit(tx: Tx, claim: Claim, name: str, position: int) -> None:
            await tx.execute("account.add", id=name, balance=1)
            await advance(tx, claim, position)

        with pytest.raises(PartitionLost):
            await store.run(lambda tx: unit(tx, old, "old", 5))
        with pytest.raises(PartitionLost):
            async with store.transaction() as tx:
                await unit(tx, old, "old", 5)
        await store.run(lambda tx: unit(tx, new, "new", 5))
        assert (await balance(store, "old"), await balance(store, "new")) == (None, 1)
        assert (await state(store, 0)).position == 5


async def test_event_is_not_handled_twice_when_its_position_is_stored_already(
    opened: Opener,
) -> None:
    async with opened() as store:
        await add_account(store, "x", 1)
        (claim,) = await claimed(store, "a", 0)
        await move(store, claim, 7)
        for position in (7, 6):
            with pytest.raises(AlreadySeen):
                await move(store, claim, position)
        assert (await state(store, 0)).position == 7


async def test_stored_positions_never_go_back_nor_touch_what_is_anothers(opened: Opener) -> None:
    async with opened() as store:
        one, two = await claimed(store, "a", 0, 1, lease_s=-0.001)
        await Partitions(store).store([(one, 5), (two, 6)])
        await claimed(store, "b", 1)
        await Partitions(store).store([(one, 4), (two, 9)])
        assert [(await state(store, n)).position for n in (0, 1)] == [5, 6]
        await Partitions(store).release([(one, 3), (two, 9)])
        assert (await state(store, 0)).owner is None
        assert (await state(store, 0)).position == 5
        assert ((await state(store, 1)).owner, (await state(store, 1)).position) == ("b", 6)


async def test_failures_are_kept_until_their_event_is_handled(opened: Opener) -> None:
    async with opened() as store:
        partitions = Partitions(store)
        (claim,) = await claimed(store, "a", 0)

        async def fail(attempts: int, *, blocked: bool = False) -> None:
            await partitions.fail(
                claim, 8, attempts=attempts, history="[]", delay_us=1000, blocked=blocked
            )

        await fail(1)
        await move(store, claim, 5)  # something before it
        await partitions.store([(claim, 6)])
        found = await state(store, 0)
        assert (found.failing, found.attempts, found.history, found.position) == (8, 1, "[]", 6)
        assert found.next_at is not None and found.blocked_at is None
        await fail(2, blocked=True)
        await partitions.release([(claim, 7)])
        found = await state(store, 0)
        assert (found.failing, found.attempts, found.position) == (8, 2, 7)
        assert found.blocked_at is not None and found.next_at is None
        with pytest.raises(PartitionLost):
            await fail(3)
        (claim,) = await claimed(store, "a", 0)
        await move(store, claim, 8)
        found = await state(store, 0)
        assert (found.failing, found.attempts, found.history) == (None, 0, None)
        with pytest.raises(AlreadySeen):
            await fail(1)


async def test_blocked_event_is_tried_again_or_left_out_by_the_operator(opened: Opener) -> None:
    async with opened() as store:
        partitions, subscriptions = Partitions(store), Subscriptions(store)
        claims = await claimed(store, "a", 0, 1)
        for claim in claims:
            await append(store, "account-1", "x")
            at = claim.partition + 1
            history = json.dumps([{"attempt": 3, "at": 1, "owner": "a", "error": "E: text"}])
            await partitions.fail(claim, at, attempts=3, history=history, delay_us=0, blocked=True)
        assert await subscriptions.resume("p", partition=3) == 0
        assert await subscriptions.resume("p", partition=0) == 1
        found = await state(store, 0)
        assert (found.position, found.attempts, found.blocked_at) == (0, 0, None)
        assert await subscriptions.resume("p", skip=True) == 1
        found = await state(store, 1)
        assert (found.position, found.attempts, found.blocked_at) == (2, 0, None)
        (letter,), more = await subscriptions.dead_events("p")
        assert (letter.position, letter.attempts, letter.error) == (2, 3, "E: text")
        assert (letter.stream, letter.version, letter.type, more) == ("account-1", 2, "x", None)


async def test_dead_letter_is_written_with_the_position(opened: Opener) -> None:
    async with opened() as store:
        await append(store, "account-1", "x")
        (claim,) = await claimed(store, "a", 0, lease_s=-0.001)
        (new,) = await claimed(store, "b", 0)
        with pytest.raises(PartitionLost):
            await Partitions(store).give_up(claim, 1, attempts=1, history="[]")
        assert await Subscriptions(store).dead_events("p") == ([], None)
        await Partitions(store).give_up(new, 1, attempts=1, history="[]")
        (letter,), _ = await Subscriptions(store).dead_events("p")
        assert letter.position == 1 and (await state(store, 0)).position == 1


async def test_reset_takes_every_right_away_and_clears_in_one_unit(opened: Opener) -> None:
    async with opened() as store:
        await add_account(store, "x", 1)
        claims = await claimed(store, "a", 0, 1, 2, 3)
        for claim in claims:
            await move(store, claim, 9)

        async def fails(tx: Tx) -> None:
            await tx.execute("account.add", id="y", balance=1)
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await Subscriptions(store).reset("p", "start", clear=fails)
        assert (await state(store, 0)).position == 9 and await balance(store, "y") is None
        # It ended all rights and gave none; the workers get theirs anew at once.
        claims = [
            one.claim for one in await Partitions(store).claim("a", {"p": [0, 1]}, out_of={"p": 4})
        ]
        assert len(claims) == 2

        async def clear(tx: Tx) -> None:
            await tx.execute("account.add", id="z", balance=1)

        assert await Subscriptions(store).reset("p", 4, clear=clear, partitions=6) == 4
        assert await balance(store, "z") == 1
        table = await Partitions(store).read_table(["p"])
        assert table.partitions == {"p": 6}
        (((at, owner, term)),) = {(one.position, one.owner, one.term) for one in table.states}
        assert (at, owner) == (4, None) and term > 2
        for claim in (*claims, replace(claims[0], term=term)):
            with pytest.raises(PartitionLost):
                await move(store, claim, 10)
        # Who still believes that there are 4 gets none of the 6.
        assert await Partitions(store).claim("a", {"p": [0]}, out_of={"p": 4}) == []
        # The same process again: its old right is not its new one.
        (new,) = await Partitions(store).claim("a", {"p": [0]}, out_of={"p": 6})
        assert new.term == term + 1
        await move(store, new.claim, 5)


async def test_status_counts_what_is_left(opened: Opener) -> None:
    async with opened() as store:
        for number in range(40):
            await append(store, f"account-{number % 10}", "x")
            await append(store, "room-1", "y")
        (claim,) = await claimed(store, "a", 0)
        before = await Subscriptions(store).status("p")
        assert before is not None
        assert (before.behind, before.estimated, before.workers, before.state) == (
            40,
            False,
            1,
            "behind",
        )
        assert before.head == 80 and before.category == "account" and before.dead == 0
        own = before.partitions[0]
        assert own.owner == "a" and 0 < own.behind < 40 and before.partitions[1].owner is None
        await move(store, claim, before.head)
        after = await Subscriptions(store).status("p")
        assert after is not None and after.behind == 40 - own.behind
        assert after.partitions[0].state == "current" and after.position == 0
        await (await joined(store, "a")).leave()
        gone = await Subscriptions(store).status("p")
        assert gone is not None and gone.state == "unserved" and gone.workers == 0
        assert await Subscriptions(store).status("q") is None


async def test_subscription_is_dropped_when_nobody_serves_it(opened: Opener) -> None:
    async with opened() as store:
        await claimed(store, "a", 0)
        with pytest.raises(PermanentError, match="a serves p"):
            await Subscriptions(store).drop("p")
        await (await joined(store, "a")).leave()
        assert await Subscriptions(store).drop("p") is True
        assert await Subscriptions(store).drop("p") is False
        assert await Subscriptions(store).names() == []


async def test_known_subscription_keeps_its_number_and_positions(opened: Opener) -> None:
    async with opened() as store:
        partitions = Partitions(store)
        assert await partitions.add("p", "account", 4, 7) is None
        found = await partitions.add("p", "room", 9, 0)
        assert found is not None and (found["category"], found["partitions"]) == ("account", 4)
        table = await partitions.read_table(["p", "other"])
        assert table.partitions == {"p": 4}
        assert {one.position for one in table.states} == {7}
        status = await Subscriptions(store).status("p")
        assert status is not None and status.category == "room"
