"""Only the steps of the table are taken; both ways of looking a child up say the same."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cordata.core.pool.registry import Child, Registry
from cordata.core.pool.state import TRANSITIONS, State

STEPS: list[tuple[State, State]] = []


def note(child: Child, before: State, to: State) -> None:
    STEPS.append((before, to))


def registry() -> Registry:
    STEPS.clear()
    return Registry(lambda worker: "odd" if int(worker) % 2 else "default", note)


def ready(table: Registry, worker: str, pid: int, *, spare: bool = False) -> Child:
    child = table.join(worker, pid, pid * 10, spare=spare, now=1.0)
    child.conn = object()
    table.move(child, State.INITIALIZING, 1.0)
    table.move(child, State.READY, 1.0)
    return child


def test_table_has_every_state_and_leads_to_the_end_from_each() -> None:
    assert set(TRANSITIONS) == set(State)
    for state in State:
        seen, look = set[State](), {state}
        while look:
            seen |= look
            look = {to for one in look for to in TRANSITIONS[one]} - seen
        assert State.GONE in seen


def test_move_raises_when_there_is_no_such_step() -> None:
    table = registry()
    child = table.join("0", 1, 10, spare=False, now=1.0)
    with pytest.raises(ValueError, match="no step from starting to busy"):
        table.move(child, State.BUSY, 2.0)
    assert child.state is State.STARTING


def test_free_gives_the_child_that_became_free_last() -> None:
    table = registry()
    first, second = ready(table, "0", 1), ready(table, "2", 2)
    odd = ready(table, "1", 3)
    assert table.free("default") is second
    assert table.free("default", "0") is first
    assert table.free("default", "1") is None
    assert table.free("odd") is odd
    table.move(second, State.BUSY, 2.0)
    assert table.free("default") is first
    assert table.free("default", "2") is None
    table.move(second, State.READY, 3.0)
    assert table.free("default") is second


def test_free_gives_none_when_all_are_drained_lost_or_spare() -> None:
    table = registry()
    child = ready(table, "0", 1)
    table.by_worker["0"].draining = True
    table.index(child)
    lost = ready(table, "2", 2)
    lost.lost = True
    table.index(lost)
    ready(table, "4", 4, spare=True)
    assert table.free("default") is None


def test_take_over_gives_new_calls_to_the_spare_at_once() -> None:
    table = registry()
    old = ready(table, "0", 1)
    table.move(old, State.BUSY, 1.0)
    spare = ready(table, "0", 2, spare=True)
    assert table.free("default") is None
    assert table.take_over(spare) is old
    assert table.free("default") is spare
    table.move(old, State.READY, 2.0)
    assert table.idle["default"] == {spare: None}
    table.remove(old, 3.0)
    assert table.by_worker["0"].children == {spare.fingerprint: spare}
    assert table.by_worker["0"].child is spare


def test_join_goes_on_with_the_slot_when_its_child_died() -> None:
    table = registry()
    child = ready(table, "0", 1)
    table.move(child, State.RESTARTING, 2.0)
    again = table.join("0", 2, 20, spare=False, now=3.0)
    assert STEPS[-2:] == [(State.READY, State.RESTARTING), (State.RESTARTING, State.STARTING)]
    assert table.by_pid == {(2, 20): again}


def test_unknown_speaks_only_when_the_pool_has_workers() -> None:
    table = registry()
    assert not table.unknown("default", "echo")
    table.learn(table.slot("0"), ["echo", "sum"])
    table.learn(table.slot("2"), ["echo"])
    assert not table.unknown("default", "sum")
    assert table.unknown("default", "dance")
    assert not table.unknown("odd", "dance")
    table.learn(table.slot("0"), ["echo"])
    assert table.unknown("default", "sum")
    for worker in ("0", "2"):
        table.remove_slot(table.slot(worker), 1.0)
    assert not table.unknown("default", "echo")
    assert table.by_worker == {}


class AnyLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = registry()
        self.pid = 0

    def children(self) -> list[Child]:
        return list(self.table.by_pid.values())

    @rule(worker=st.sampled_from("0123"), spare=st.booleans())
    def join(self, worker: str, spare: bool) -> None:
        slot = self.table.slot(worker)
        former = slot.spare if spare else slot.child
        if former is None or former.state is State.RESTARTING:
            self.pid += 1
            child = self.table.join(worker, self.pid, 7, spare=spare, now=1.0)
            child.conn = object()

    @precondition(lambda self: self.table.by_pid)
    @rule(which=st.integers(0, 99), to=st.sampled_from(list(State)))
    def move(self, which: int, to: State) -> None:
        child = self.children()[which % len(self.table.by_pid)]
        if to in TRANSITIONS[child.state] and to is not State.GONE:
            self.table.move(child, to, 2.0)
        elif to is not State.GONE:
            with pytest.raises(ValueError):
                self.table.move(child, to, 2.0)

    @precondition(lambda self: self.table.by_pid)
    @rule(which=st.integers(0, 99))
    def remove(self, which: int) -> None:
        self.table.remove(self.children()[which % len(self.table.by_pid)], 3.0)

    @rule(worker=st.sampled_from("0123"))
    def spare_takes_over(self, worker: str) -> None:
        spare = self.table.slot(worker).spare
        if spare is not None and spare.state is State.READY:
            former = self.table.take_over(spare)
            assert former is None or former.retire

    @rule(worker=st.sampled_from("0123"))
    def worker_goes(self, worker: str) -> None:
        self.table.remove_slot(self.table.slot(worker), 4.0)

    @invariant()
    def agrees(self) -> None:
        table = self.table
        assert table.counts.total() == len(STEPS)
        assert all(to in TRANSITIONS[before] for before, to in table.counts)
        rows = {c for slot in table.by_worker.values() for c in slot.children.values()}
        assert rows == set(self.children())
        for child in rows:
            assert table.by_pid[child.fingerprint] is child
            assert child.state is not State.GONE
        named = [c for slot in table.by_worker.values() for c in (slot.child, slot.spare) if c]
        assert set(named) <= rows
        free = {child for idle in table.idle.values() for child in idle}
        assert free == {
            slot.child
            for slot in table.by_worker.values()
            if slot.child and slot.child.state is State.READY
        }


AnyLife.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestAnyLife = AnyLife.TestCase
