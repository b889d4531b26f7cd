"""Fifo, Fair and Waiting against lists that are searched from end to end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.pool.calls import call

from cordata.core.pool.call import Call
from cordata.core.pool.fair import Fair
from cordata.core.pool.limits import PoolLimits, pool_of_command, pool_of_worker
from cordata.core.pool.queue import Fifo
from cordata.core.pool.waiting import Waiting

WORKERS = ("0", "1", "2")
SMALL = settings(max_examples=40, stateful_step_count=50, deadline=None)


class FifoAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = Fifo()
        self.model: list[Call] = []
        self.out: list[Call] = []
        self.now = 0.0

    @rule(step_s=st.sampled_from((0.0, 0.1, 3.0)), priority=st.sampled_from((0, 0, 1, 9)))
    def push(self, step_s: float, priority: int) -> None:
        self.now += step_s
        one = call(self.now, priority=priority)
        self.queue.push(one)
        self.model.append(one)

    @rule()
    def pop(self) -> None:
        found = self.queue.pop()
        assert found is min(self.model, key=lambda one: one.key, default=None)
        if found:
            self.model.remove(found)
            self.out.append(found)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0, 1000))
    def comes_back(self, which: int) -> None:
        one = self.out.pop(which % len(self.out))
        self.queue.push(one, back=True)
        self.model.append(one)

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 1000))
    def drop(self, which: int) -> None:
        self.queue.drop(self.model.pop(which % len(self.model)))

    @invariant()
    def agrees(self) -> None:
        queue, model = self.queue, self.model
        assert len(queue) == len(model)
        assert queue.bytes == 10 * len(model)
        assert queue.peek_key() == min((one.key for one in model), default=None)
        assert queue.oldest(self.now) == max((self.now - one.enqueued for one in model), default=0)
        assert queue._left <= len(model) + 65


FifoAgainstList.TestCase.settings = SMALL
TestFifo = FifoAgainstList.TestCase


class FairTurns(RuleBasedStateMachine):
    """Between two starts of one client every other one that had work all the time starts once."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Fair()
        self.model: dict[int, list[Call]] = {}
        #: By client: the others that have had work ever since its last start, unserved.
        self.owed: dict[int, set[int]] = {}
        self.now = 0.0

    @rule(source=st.integers(0, 4), count=st.integers(1, 4))
    def push(self, source: int, count: int) -> None:
        for _ in range(count):
            self.now += 0.1
            one = call(self.now, source=source)
            self.queue.push(one)
            self.model.setdefault(source, []).append(one)

    @rule()
    def pop(self) -> None:
        found = self.queue.pop()
        assert (found is None) == (not self.model)
        if found is None:
            return
        source = found.source
        assert self.model[source].pop(0) is found
        assert not self.owed.pop(source, set()), "somebody waited for a turn"
        for others in self.owed.values():
            others.discard(source)
        if not self.model[source]:
            self.leave(source)
        self.owed[source] = set(self.model) - {source}

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 1000), nth=st.integers(0, 1000))
    def drop(self, which: int, nth: int) -> None:
        source = sorted(self.model)[which % len(self.model)]
        self.queue.drop(self.model[source].pop(nth % len(self.model[source])))
        if not self.model[source]:
            self.leave(source)

    def leave(self, source: int) -> None:
        del self.model[source]
        for others in self.owed.values():
            others.discard(source)

    @invariant()
    def agrees(self) -> None:
        waiting = [one for calls in self.model.values() for one in calls]
        assert len(self.queue) == len(waiting)
        assert self.queue.bytes == 10 * len(waiting)
        assert (self.queue.peek_key() is None) == (not waiting)
        assert len(self.queue._ring) == len(self.model)
        longest = max((self.now - one.enqueued for one in waiting), default=0.0)
        assert self.queue.oldest(self.now) == longest


FairTurns.TestCase.settings = SMALL
TestFair = FairTurns.TestCase


class WaitingAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.limits = PoolLimits(max_waiting=12, max_waiting_bytes=100)
        self.waiting = Waiting(self.limits)
        self.model: list[tuple[Call, str]] = []
        self.now = 0.0
        self.longest = 0.0

    @rule(worker=st.sampled_from(("", "", *WORKERS)), step_s=st.sampled_from((0.0, 1.0)))
    def add(self, worker: str, step_s: float) -> None:
        self.now += step_s
        one = call(self.now)
        fits = len(self.model) < 10  # of 10 bytes each
        assert self.waiting.add(one, worker=worker) is fits
        if fits:
            self.model.append((one, worker))

    @rule(worker=st.sampled_from(WORKERS))
    def take(self, worker: str) -> None:
        may = [one for one, pinned in self.model if pinned in ("", worker)]
        found = self.waiting.take(worker, self.now)
        assert found is min(may, key=lambda one: one.key, default=None)
        if found:
            self.left(found)

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 1000))
    def drop(self, which: int) -> None:
        one, _ = self.model[which % len(self.model)]
        self.waiting.drop(one, self.now)
        self.left(one)

    def left(self, one: Call) -> None:
        self.model = [entry for entry in self.model if entry[0] is not one]
        self.longest = max(self.longest, self.now - one.enqueued)

    @invariant()
    def agrees(self) -> None:
        assert len(self.waiting) == len(self.model)
        assert self.waiting.bytes == 10 * len(self.model)
        assert self.waiting.longest_ever_s == self.longest
        times = [self.now - one.enqueued for one, _ in self.model]
        assert self.waiting.longest_s(self.now) == max(times, default=0.0)
        assert set(self.waiting._lanes) == {worker for _, worker in self.model if worker}
        assert len(self.waiting._pinned) == len([1 for _, worker in self.model if worker])


WaitingAgainstList.TestCase.settings = SMALL
TestWaiting = WaitingAgainstList.TestCase


def test_add_takes_a_call_that_comes_back_though_the_queue_is_full() -> None:
    waiting = Waiting(PoolLimits(max_waiting=1))
    first, second, third = call(1.0), call(2.0), call(3.0)
    assert waiting.add(second)
    assert not waiting.add(third)
    assert waiting.add(first, back=True)
    assert waiting.take("0", 4.0) is first


def test_last_places_are_for_those_who_have_few_where_clients_take_turns() -> None:
    for fair in (True, False):
        waiting = Waiting(PoolLimits(max_waiting=1000, fair=fair))
        greedy = [waiting.add(call(0.0, source=1)) for _ in range(1200)]
        assert greedy.count(True) == (900 if fair else 1000)
        modest = [waiting.add(call(0.0, source=2)) for _ in range(20)]
        assert modest.count(True) == (10 if fair else 0)
        if fair:
            assert [waiting.add(call(0.0, source=source)) for source in range(3, 203)].count(
                True
            ) == 90
            assert waiting.count == 1000
            assert waiting.add(call(0.0, source=1), back=True)


def test_last_bytes_are_for_those_who_have_few_where_clients_take_turns() -> None:
    waiting = Waiting(PoolLimits(max_waiting=10**6, max_waiting_bytes=10_000, fair=True))
    assert [waiting.add(call(0.0, source=1)) for _ in range(2000)].count(True) == 900
    assert [waiting.add(call(0.0, source=2)) for _ in range(20)].count(True) == 10


def test_take_all_empties_every_lane() -> None:
    waiting = Waiting(PoolLimits(fair=True))
    calls = [call(n, source=n % 3) for n in range(6)]
    for n, one in enumerate(calls):
        assert waiting.add(one, worker=("", "1")[n % 2])
    waiting.drop(calls[0], 7.0)
    waiting.drop(calls[1], 7.0)
    assert set(waiting.take_all(8.0)) == set(calls[2:])
    assert (len(waiting), waiting.bytes, waiting.take("1", 9.0)) == (0, 0, None)


def test_pop_starves_nobody_when_high_priorities_keep_coming() -> None:
    queue = Fifo()
    low = call(0.0)
    queue.push(low)
    for n in range(100):
        queue.push(call(n * 0.1, priority=9))
        found = queue.pop()
        if found is low:
            assert n * 0.1 <= 9.0 + 0.1
            return
    # Those that came up to nine seconds later are ahead, none after.
    raise AssertionError("starved")


@pytest.mark.parametrize(
    ("command", "pool"),
    [("render_pdf", "report"), ("render", "default"), ("zip", "pack"), ("zipper", "default")],
)
def test_pool_of_command_is_the_first_that_names_it(command: str, pool: str) -> None:
    pools = [
        PoolLimits(name="report", commands=("render_*",), workers=frozenset({"3"})),
        PoolLimits(name="pack", commands=("zip", "render_*"), workers=frozenset({"4"})),
    ]
    assert pool_of_command(pools, command) == pool
    assert [pool_of_worker(pools, name) for name in "345"] == ["report", "pack", "default"]
    assert pool_of_command([*pools, PoolLimits(name="all", commands=("*",))], "zipper") == "all"
