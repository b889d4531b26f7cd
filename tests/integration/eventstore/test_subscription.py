"""Subscriptions of workers in one process: order, failures, sharing, positions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.engine.parts import until
from tests.integration.eventstore.ledger import (
    QUICK,
    app,
    deposit,
    deposit_many,
    ledger,
    opened,
    rows,
    running,
)
from tests.processes import joined

from cordata import clock, trace
from cordata.app import App
from cordata.errors import PartitionLost, PermanentError, StoreUnavailable
from cordata.eventstore import EventStore, NewEvent, StoredEvent
from cordata.eventstore.inspection import Subscriptions
from cordata.eventstore.partition import SUBSCRIPTION_TOPIC, Partitions
from cordata.services.subscription.service import _SHORT_S
from cordata.store import Store, Tx
from cordata.subscription import SubscriptionContext

Handler = Callable[[StoredEvent, SubscriptionContext], Awaitable[None]]


async def handled(store: Store) -> list[tuple[str, int]]:
    return [(row["stream"], row["version"]) for row in await rows(store, "ledger.handled")]


async def handled_count(store: Store, count: int) -> bool:
    return int((await rows(store, "ledger.count"))[0]["count"]) >= count


async def current(store: Store, name: str) -> bool:
    status = await Subscriptions(store).status(name)
    return status is not None and status.state == "current"


async def state_is(store: Store, name: str, state: str) -> bool:
    status = await Subscriptions(store).status(name)
    return status is not None and status.state == state


def in_order(seen: list[tuple[str, int]]) -> bool:
    """Whether each stream's versions come one after the other."""
    last: Counter[str] = Counter()
    for stream, version in seen:
        if version != last[stream] + 1:
            return False
        last[stream] = version
    return True


def collecting(into: list[StoredEvent]) -> Handler:
    async def collect(event: StoredEvent, ctx: SubscriptionContext) -> None:
        into.append(event)

    return collect


async def test_each_event_is_handled_once_and_in_order_of_its_stream(state: Path) -> None:
    async with opened(state) as store:
        before = await deposit_many(store, 20, 10)
        async with running(store, state, app):
            await until(lambda: handled_count(store, before))
            for number in range(20):
                await deposit(store, f"account-{number}", 11, 12)
            await deposit(store, "room-1", 99)
            await until(lambda: handled_count(store, before + 40))
        seen = await handled(store)
        assert len(seen) == before + 40 and in_order(seen)
        balances = await rows(store, "ledger.balances")
        assert {(row["total"], row["count"]) for row in balances} == {(78, 12)}
        assert await current(store, "t.ledger") is False  # nobody serves it any more
        status = await Subscriptions(store).status("t.ledger")
        assert status is not None and (status.state, status.behind) == ("unserved", 0)


async def test_nothing_is_handled_again_when_a_worker_starts_anew(state: Path) -> None:
    async with opened(state) as store:
        count = await deposit_many(store, 10, 5)
        for _ in range(3):
            async with running(store, state, app):
                await until(lambda: current(store, "t.ledger"))
        assert len(await handled(store)) == count


async def test_new_subscription_begins_where_it_says(state: Path) -> None:
    seen: dict[str, list[StoredEvent]] = {"start": [], "end": [], "third": []}
    async with opened(state) as store:
        await deposit(store, "account-1", *range(1, 6))
        first = (await store.read(lambda tx: EventStore(tx).read("account-1"))).events
        local = App("t")
        for name, origin in (("start", "start"), ("end", "end"), ("third", first[2].position)):
            local.subscribe("account", from_=origin, name=name)(collecting(seen[name]))  # type: ignore[arg-type]
        async with running(store, state, local):
            await until(lambda: current(store, "end"))
            await deposit(store, "account-1", 6)
            await until(lambda: all(6 in versions(one) for one in seen.values()))
        assert versions(seen["start"]) == [1, 2, 3, 4, 5, 6]
        assert versions(seen["end"]) == [6]
        assert versions(seen["third"]) == [4, 5, 6]
        # Known by now: what the code says does not count any more.
        again = App("t")
        again.subscribe("account", from_="start", name="end")(collecting(seen["end"]))
        async with running(store, state, again):
            await deposit(store, "account-1", 7)
            await until(lambda: 7 in versions(seen["end"]))
        assert versions(seen["end"]) == [6, 7]


async def test_position_is_stored_when_a_handler_commits_nothing(state: Path) -> None:
    seen: list[StoredEvent] = []
    local = App("t")
    local.subscribe("account", partitions=3, name="collect")(collecting(seen))
    async with opened(state) as store:
        await deposit_many(store, 10, 5)
        async with running(store, state, local):
            await until(lambda: len(seen) == 50)
            await until(lambda: current(store, "collect"))  # without waiting for the stop
        async with running(store, state, local):
            await deposit(store, "account-0", 6)
            await until(lambda: len(seen) >= 51)
        assert len(seen) == 51


async def test_failed_event_is_tried_again_and_nothing_of_its_partition_overtakes(
    state: Path,
) -> None:
    attempts: list[tuple[str, int, int]] = []
    local = App("t")

    @local.subscribe("account", partitions=4, retries=5)
    async def flaky(event: StoredEvent, ctx: SubscriptionContext) -> None:
        attempts.append((event.stream, event.version, event.attempt))
        if event.version == 2 and event.attempt < 4:
            raise ValueError("not yet")
        await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store:
        await deposit_many(store, 8, 4)
        async with running(store, state, local):
            await until(lambda: handled_count(store, 32))
        seen = await handled(store)
        assert len(seen) == 32 and in_order(seen)
        assert [a for s, v, a in attempts if (s, v) == ("account-3", 2)] == [1, 2, 3, 4]
        (clean,) = {
            (row["attempts"], row["history"], row["failing"], row["next_at"])
            for row in await rows(store, "ledger.partitions")
        }
        assert clean == (0, None, None, None)


async def test_partition_is_blocked_when_retries_are_used_up_until_it_is_resumed(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mended = False
    attempts: list[int] = []
    local = App("t")

    @local.subscribe("account", partitions=4, retries=2)
    async def broken(event: StoredEvent, ctx: SubscriptionContext) -> None:
        if event.payload.get("bad") and not mended:
            attempts.append(event.attempt)
            raise ValueError("guest Eva Muster cannot be added")
        await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store, running(store, state, local) as service:
        await deposit(store, "account-1", 1)
        bad = await deposit(store, "account-1", 2, bad=True)
        await deposit(store, "account-1", 3)
        for number in range(2, 12):
            await deposit(store, f"account-{number}", 1)
        await until(lambda: state_is(store, "t.broken", "blocked"))
        status = await Subscriptions(store).status("t.broken")
        assert status is not None and status.blocked == 1
        await until(lambda: service.counts.given_up == 1)
        (stuck,) = [one for one in status.partitions if one.state == "blocked"]
        assert attempts == [1, 2, 3] == [entry["attempt"] for entry in stuck.history]
        assert stuck.error == "ValueError: guest Eva Muster cannot be added" and bad == 2
        others = 10 - sum(same_partition(f"account-{n}", "account-1", 4) for n in range(2, 12))
        await until(lambda: handled_count(store, 1 + others))
        assert ("account-1", 3) not in await handled(store)
        (alert,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "cordata subscriptions resume" in alert.getMessage()
        assert "Eva" not in caplog.text
        await deposit(store, "account-1", 4)
        await asyncio.sleep(0.1)
        assert ("account-1", 3) not in await handled(store) and attempts == [1, 2, 3]
        mended = True
        assert await Subscriptions(store).resume("t.broken") == 1
        await until(lambda: current(store, "t.broken"))
        seen = await handled(store)
        assert len(seen) == 14 and in_order(seen)
        assert await Subscriptions(store).resume("t.broken") == 0


async def test_blocked_partition_stays_blocked_when_a_worker_starts_anew(state: Path) -> None:
    calls = 0
    local = App("t")

    @local.subscribe("account", partitions=1, retries=0)
    async def broken(event: StoredEvent, ctx: SubscriptionContext) -> None:
        nonlocal calls
        calls += 1
        raise PermanentError("never")

    async with opened(state) as store:
        await deposit(store, "account-1", 1, 2)
        for _ in range(2):
            async with running(store, state, local) as service:
                await until(lambda: state_is(store, "t.broken", "blocked"))
                await until(lambda s=service: "1 blocked" in s.status())  # type: ignore[misc]
        assert calls == 1
        # Left out by an operator, the next one comes.
        assert await Subscriptions(store).resume("t.broken", skip=True) == 1
        async with running(store, state, local):
            await until(lambda: calls == 2)
            await until(lambda: state_is(store, "t.broken", "blocked"))
        letters, more = await Subscriptions(store).dead_events("t.broken")
        assert [(one.stream, one.version) for one in letters] == [("account-1", 1)]
        assert more is None and letters[0].error == "PermanentError: never"


class Spans:
    """Keeps what would be exported."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.spans: set[str] = set()

    def is_sampled(self, trace_id: str) -> bool:
        return True

    def export(self, span: trace.Trace, name: str, **_: object) -> None:
        self.names.append(name)
        self.spans.add(span.span_id)


async def test_attempts_are_exported_as_spans_when_traces_are(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, local = Spans(), App("t")
    monkeypatch.setattr(trace, "exporter", spans)

    @local.subscribe("account", retries=3)
    async def second(event: StoredEvent, ctx: SubscriptionContext) -> None:
        if event.attempt == 1:
            raise ValueError("no")

    async with opened(state) as store:
        await deposit(store, "account-1", 1)
        async with running(store, state, local):
            await until(lambda: len(spans.names) == 2)
    assert set(spans.names) == {"t.second"} and len(spans.spans) == 2


async def test_event_is_a_dead_letter_when_its_handler_commits_twice(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first effect counts, so the partition goes on; an operator has to see to the second."""
    local = App("t")

    @local.subscribe("account", partitions=1, retries=3)
    async def twice(event: StoredEvent, ctx: SubscriptionContext) -> None:
        for _ in range(2 if event.version == 1 else 1):
            await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store:
        await deposit(store, "account-1", 1, 2)
        async with running(store, state, local) as service:
            await until(lambda: _dead(store, "t.twice", 1))
            await until(lambda: current(store, "t.twice"))
        assert (service.counts.handled, service.counts.given_up) == (1, 1)
        (letter,), _ = await Subscriptions(store).dead_events("t.twice")
        assert (letter.version, letter.attempts) == (1, 1)
        assert await handled(store) == [("account-1", 1), ("account-1", 2)]
    assert sum("dead letter" in record.getMessage() for record in caplog.records) == 1


async def test_failure_is_stored_when_the_stop_has_begun(state: Path) -> None:
    """Nobody else would: the first effect counts, so no other process gets the event."""
    local, begun = App("t"), asyncio.Event()

    @local.subscribe("account", partitions=1)
    async def twice(event: StoredEvent, ctx: SubscriptionContext) -> None:
        await ctx.run(lambda tx: note(tx, event))
        begun.set()
        await until(lambda: all(one.stopping for one in service._runners.all()))
        await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store:
        await deposit(store, "account-1", 1)
        async with running(store, state, local) as service:
            await begun.wait()
        (letter,), _ = await Subscriptions(store).dead_events("t.twice")
        assert (letter.version, letter.attempts) == (1, 1)


async def test_event_is_a_dead_letter_and_the_rest_goes_on_when_declared_so(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: Counter[int] = Counter()
    local = App("t")

    @local.subscribe("account", partitions=2, retries=1, on_error="dead")
    async def picky(event: StoredEvent, ctx: SubscriptionContext) -> None:
        attempts[event.version] += 1
        if event.version == 2:
            raise ValueError("no")
        if event.version == 4:
            raise PermanentError("never")
        await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store, running(store, state, local) as service:
        await deposit(store, "account-1", 1, 2, 3, 4, 5)
        await until(lambda: handled_count(store, 3))
        await until(lambda: current(store, "t.picky"))
        assert await handled(store) == [("account-1", 1), ("account-1", 3), ("account-1", 5)]
        assert attempts == Counter({1: 1, 2: 2, 3: 1, 4: 1, 5: 1})
        letters, _ = await Subscriptions(store).dead_events("t.picky")
        assert [(one.version, one.attempts) for one in letters] == [(4, 1), (2, 2)]
        assert [entry["attempt"] for entry in letters[1].history] == [1, 2]
        page, before = await Subscriptions(store).dead_events("t.picky", limit=1)
        rest, end = await Subscriptions(store).dead_events("t.picky", limit=1, before=before)
        assert [one.version for one in (*page, *rest)] == [4, 2] and end is None
        await until(lambda: service.counts.given_up == 2)
    assert sum("dead letter" in record.getMessage() for record in caplog.records) == 2


async def test_event_is_not_handled_again_when_its_handler_fails_after_the_commit(
    state: Path,
) -> None:
    local, calls = App("t"), Counter[int]()

    @local.subscribe("account", partitions=1)
    async def late(event: StoredEvent, ctx: SubscriptionContext) -> None:
        calls[event.version] += 1
        await ctx.run(lambda tx: note(tx, event))
        raise ValueError("too late")

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1, 2, 3)
        await until(lambda: handled_count(store, 3))
        await until(lambda: current(store, "t.late"))
        assert calls == Counter({1: 1, 2: 1, 3: 1})


async def test_effect_happens_once_when_an_attempt_times_out_around_its_commit(state: Path) -> None:
    async with opened(state) as store, AsyncExitStack() as stack:
        took = list[float]()
        for amount, stream in itertools.product(range(1, 6), range(20)):
            begun = clock.monotonic()
            await deposit(store, f"account-{stream}", amount)
            took.append(clock.monotonic() - begun)
        timeout_s = max(0.004, sorted(took)[50])  # what a commit takes here and now
        local = App("t")

        @local.subscribe("account", partitions=4, timeout_s=timeout_s, retries=500, name="hasty")
        async def hasty(event: StoredEvent, ctx: SubscriptionContext) -> None:
            await ctx.run(lambda tx: note(tx, event))
            await asyncio.sleep(0.75 * timeout_s if event.attempt < 3 else 0.0)

        await stack.enter_async_context(running(store, state, local))
        await until(lambda: handled_count(store, 100), timeout_s=120)
        await until(lambda: current(store, "hasty"), timeout_s=120)
        seen = await handled(store)
        assert len(seen) == 100 and in_order(seen)


async def test_transaction_moves_the_position_with_the_effect(state: Path) -> None:
    local, failures = App("t"), 0

    @local.subscribe("account", partitions=2)
    async def solo(event: StoredEvent, ctx: SubscriptionContext) -> None:
        nonlocal failures
        async with ctx.transaction() as tx:
            await note(tx, event)
            await asyncio.sleep(0)
            if event.attempt == 1 and event.version == 2:
                failures += 1
                raise ValueError("after the write")

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1, 2, 3)
        await until(lambda: handled_count(store, 3))
        await until(lambda: current(store, "t.solo"))
        assert await handled(store) == [("account-1", 1), ("account-1", 2), ("account-1", 3)]
        assert failures == 1


async def test_second_commit_is_refused_when_a_handler_commits_twice(state: Path) -> None:
    local, errors = App("t"), list[str]()

    @local.subscribe("account", partitions=1)
    async def twice(event: StoredEvent, ctx: SubscriptionContext) -> None:
        await ctx.run(lambda tx: note(tx, event))
        try:
            await ctx.run(lambda tx: note(tx, event))
        except PermanentError as error:
            errors.append(str(error))

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await until(lambda: len(errors) == 1)
        assert len(await handled(store)) == 1 and "commits twice" in errors[0]


async def test_handler_appends_to_the_event_store_in_the_unit_of_its_position(state: Path) -> None:
    local = App("t")

    @local.subscribe("account", partitions=4, retries=20)
    async def audit(event: StoredEvent, ctx: SubscriptionContext) -> None:
        version = await ctx.store.read(lambda tx: EventStore(tx).version("audit"))
        await asyncio.sleep(0.001)  # others append meanwhile: WrongExpectedVersion, once more
        new = NewEvent(type="seen", payload={"stream": event.stream, "version": event.version})
        await ctx.run(lambda tx: EventStore(tx).append("audit", [new], expected=version))

    seen: list[StoredEvent] = []
    local.subscribe("audit", name="auditor")(collecting(seen))
    async with opened(state) as store, running(store, state, local):
        await deposit_many(store, 6, 3)
        await until(lambda: len(seen) == 18, timeout_s=120)
        pairs = [(event.payload["stream"], event.payload["version"]) for event in seen]
        assert len(set(pairs)) == 18 and in_order(pairs)
        assert versions(seen) == list(range(1, 19))


async def test_store_that_is_away_counts_no_attempt(state: Path) -> None:
    local, attempts = App("t"), list[int]()

    @local.subscribe("account", partitions=1, retries=0)
    async def unlucky(event: StoredEvent, ctx: SubscriptionContext) -> None:
        attempts.append(event.attempt)
        if len(attempts) < 4:
            raise StoreUnavailable("not now")
        await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await until(lambda: handled_count(store, 1))
        assert attempts == [1, 1, 1, 1]


async def test_workers_share_the_partitions_and_hand_them_over(state: Path) -> None:
    # Whoever has to do something is told: nobody waits for the next look.
    rarely = replace(QUICK, poll_s=300.0)
    async with opened(state) as one, opened(state) as two, opened(state) as three:
        async with running(one, state, app, rarely), running(two, state, app, rarely):
            await until(lambda: shared(one, [4, 4]))
            async with running(three, state, app, rarely):
                await until(lambda: shared(one, [2, 3, 3]))
                await deposit_many(one, 20, 10)
                await until(lambda: handled_count(one, 200))
            await until(lambda: shared(one, [4, 4]))
            await deposit(one, "account-0", 11)
            await until(lambda: handled_count(one, 201))
        seen = await handled(one)
        assert len(seen) == 201 and in_order(seen)
        assert all(row["owner"] is None for row in await rows(one, "ledger.partitions"))
        assert await rows(one, "ledger.workers") == []


async def test_partitions_are_taken_soon_after_news_when_they_were_missing_for_long(
    state: Path,
) -> None:
    """However rarely a worker looked by then: the first look after news may come too early."""

    async def take_away(tx: Tx, pause_s: float) -> None:
        until_us = tx.now_us + int(pause_s * 1e6)
        await tx.execute("subscription.pause", name="t.ledger", until=until_us)
        await tx.execute("subscription.take_away", subscription="t.ledger")
        tx.notify(SUBSCRIPTION_TOPIC)

    rarely = replace(QUICK, poll_s=300.0, process_lease_s=3600.0)
    async with opened(state) as store, running(store, state, app, rarely) as worker:

        def looks_rarely() -> bool:
            worker._short_s = 600.0  # as after that time without them
            return worker._look_deadline > clock.monotonic() + 300.0

        await until(lambda: shared(store, [8]))
        await store.run(lambda tx: take_away(tx, 60.0))
        await until(lambda: worker._short_s > _SHORT_S)  # it has looked in vain
        await until(looks_rarely)
        await store.run(lambda tx: take_away(tx, 0.3))
        await until(lambda: shared(store, [8]))


async def test_write_of_the_old_owner_is_refused_when_a_partition_has_moved(state: Path) -> None:
    local = App("t")
    entered, go = asyncio.Event(), asyncio.Event()
    errors: list[BaseException] = []

    @local.subscribe("account", partitions=1, name="moved")
    async def slow(event: StoredEvent, ctx: SubscriptionContext) -> None:
        entered.set()
        try:
            # What a process does that was stopped meanwhile: it knows nothing of it, not even
            # when its own service has seen that the partition is another's.
            while not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()
            while True:
                with contextlib.suppress(asyncio.CancelledError):  # it may be seen only now
                    await ctx.run(lambda tx: note(tx, event))
                    break
        except PartitionLost as error:
            errors.append(error)
            raise

    async with opened(state) as store:
        quiet = replace(QUICK, poll_s=60.0)
        async with running(store, state, local, quiet):
            await deposit(store, "account-1", 1)
            await entered.wait()
            thief = Partitions(store)
            (row,) = await rows(store, "ledger.partitions")

            async def expire(tx: Tx) -> None:
                await tx.execute("ledger.expire", owner=row["owner"])

            await store.run(expire)
            await joined(store, "thief", ["moved"])
            (taken,) = await thief.claim("thief", {"moved": [0]}, out_of={"moved": 1})
            assert taken.term == row["term"] + 1 and taken.position == 0
            go.set()
            await until(lambda: len(errors) == 1)
        assert await handled(store) == []
        (row,) = await rows(store, "ledger.partitions")
        assert (row["owner"], row["position"]) == ("thief", 0)  # its release moved nothing either


async def test_subscription_is_the_same_when_rebuilt_from_zero_under_load(state: Path) -> None:
    async with opened(state) as store, opened(state) as other:
        count = await deposit_many(store, 20, 20)
        async with running(store, state, app), running(other, state, app):
            await until(lambda: handled_count(store, count // 3))
            subscriptions = Subscriptions(store)
            amount = 20
            for partitions in (5, 8, 3, 5):
                await subscriptions.reset(
                    "t.ledger", "start", clear=ledger.clear, partitions=partitions
                )
                for _ in range(3):
                    amount += 1
                    for number in range(20):
                        await deposit(other, f"account-{number}", amount)
            await until(lambda: current(store, "t.ledger"))
            balances = await rows(store, "ledger.balances")
            assert [(row["total"], row["count"]) for row in balances] == [(528, 32)] * 20
            status = await subscriptions.status("t.ledger")
            assert status is not None and len(status.partitions) == 5 and status.reset_at


async def test_reset_clears_the_dead_letters_and_what_blocks(state: Path) -> None:
    local, bad = App("t"), True

    async def broken(event: StoredEvent, ctx: SubscriptionContext) -> None:
        if bad:
            raise ValueError("no")

    local.subscribe("account", partitions=2, retries=0, on_error="dead", name="one")(broken)
    local.subscribe("account", partitions=2, retries=0, name="two")(broken)
    async with opened(state) as store, running(store, state, local):
        await deposit(store, "account-1", 1)
        await until(lambda: state_is(store, "two", "blocked"))
        await until(lambda: _dead(store, "one", 1))
        bad = False
        assert await Subscriptions(store).reset("one", "start") == 0
        assert await Subscriptions(store).reset("two", "end") == 1
        assert await Subscriptions(store).reset("three", "end") is None
        await until(lambda: current(store, "one"))
        await until(lambda: current(store, "two"))
        assert await _dead(store, "one", 0)
        with pytest.raises(PermanentError, match="serves one"):
            await Subscriptions(store).drop("one")
    async with opened(state) as store:
        assert await Subscriptions(store).drop("one") is True
        assert await Subscriptions(store).names() == ["two"]
        assert await Subscriptions(store).status("one") is None


async def test_other_number_of_partitions_waits_for_the_next_reset(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[StoredEvent] = []
    async with opened(state) as store:
        for partitions in (4, 7):
            local = App("t")
            local.subscribe("account", partitions=partitions, name="p")(collecting(seen))
            async with running(store, state, local):
                await until(lambda: current(store, "p"))
        assert len(await rows(store, "ledger.partitions")) == 4
    assert "keeps its 4 partitions until its next reset; the code says 7" in caplog.text


async def test_events_are_handled_when_one_partition_is_slow(state: Path) -> None:
    """A slow event holds back its own partition, however much there is for the others."""
    local, go = App("t"), asyncio.Event()

    @local.subscribe("account", partitions=4, batch=5, name="p")
    async def slow(event: StoredEvent, ctx: SubscriptionContext) -> None:
        if event.stream == "account-1" and event.version == 1:
            await go.wait()
        await ctx.run(lambda tx: note(tx, event))

    async with opened(state) as store, running(store, state, local):
        await deposit_many(store, 20, 20)
        streams = [n for n in range(20) if not same_partition(f"account-{n}", "account-1", 4)]
        await until(lambda: handled_count(store, len(streams) * 20))
        go.set()
        await until(lambda: handled_count(store, 400))
        seen = await handled(store)
        assert len(seen) == 400 and in_order(seen)


async def test_history_is_bounded_and_kept_over_a_restart(state: Path) -> None:
    local, attempts = App("t"), list[int]()

    @local.subscribe("account", partitions=1, retries=60)
    async def broken(event: StoredEvent, ctx: SubscriptionContext) -> None:
        attempts.append(event.attempt)
        raise ValueError("x" * 1000)

    hasty = replace(QUICK, retry_first_s=0.001, retry_max_s=0.002)
    async with opened(state) as store:
        await deposit(store, "account-1", 1)
        async with running(store, state, local, hasty):
            await until(lambda: len(attempts) >= 30)
        begun = len(attempts)
        async with running(store, state, local, hasty):
            await until(lambda: state_is(store, "t.broken", "blocked"))
        assert attempts[begun] > 25 and attempts[-1] == 61
        (row,) = await rows(store, "ledger.partitions")
        history = json.loads(row["history"])
        assert len(history) == 20 and len(row["history"]) < 20_000
        assert (history[0]["attempt"], history[-1]["attempt"]) == (1, 61)


async def test_nothing_is_written_when_nothing_happens(state: Path) -> None:
    async with opened(state) as store, running(store, state, app):
        await deposit(store, "account-1", 1)
        await until(lambda: handled_count(store, 1))

        async def writes_nothing() -> bool:
            before = store.stats().commits
            await asyncio.sleep(1.0)
            return store.stats().commits == before

        await until(writes_nothing)  # the position may be stored yet


async def note(tx: Tx, event: StoredEvent) -> None:
    await tx.execute(
        "ledger.note",
        position=event.position,
        stream=event.stream,
        version=event.version,
        owner="me",
        at=tx.now_us,
    )


def versions(seen: list[StoredEvent]) -> list[int]:
    return [event.version for event in seen]


def same_partition(one: str, other: str, partitions: int) -> bool:
    from cordata.core.eventstream import bucket_of

    return bucket_of(one) % partitions == bucket_of(other) % partitions


async def shared(store: Store, wanted: list[int]) -> bool:
    owners = Counter(row["owner"] for row in await rows(store, "ledger.partitions"))
    return None not in owners and sorted(owners.values()) == wanted


async def _dead(store: Store, name: str, count: int) -> bool:
    status = await Subscriptions(store).status(name)
    return status is not None and status.dead == count
