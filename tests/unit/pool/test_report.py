"""The manager's journal: each step of a child is a line with its MESSAGE_ID, and is counted."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cordata import events
from cordata.core.pool.call import Call
from cordata.core.pool.histogram import Histogram
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.registry import Child, Registry
from cordata.core.pool.state import TRANSITIONS, State
from cordata.pool.server.counting import Complaints, Counting
from cordata.pool.server.hub import Hub
from cordata.pool.server.report import Report

STEPS = [(before, to) for before, after in TRANSITIONS.items() for to in sorted(after)]


class Reporting:
    """A registry whose steps are reported."""

    def __init__(self) -> None:
        self.registry = Registry(lambda worker: "default", self.moved)
        rules = SimpleNamespace(poison_limit=3)
        dispatcher = SimpleNamespace(registry=self.registry, rules=rules, waiting={"default": "ab"})
        hub = SimpleNamespace(dispatcher=dispatcher, counting=Counting(), epoch="e", now=100.0)
        self.hub = hub
        self.report = Report(cast(Hub, hub))
        self.slot = self.registry.slot("3")

    def moved(self, child: Child, before: State, to: State) -> None:
        self.report.moved(child, before, to)

    def child(self, state: State) -> Child:
        child = Child("3", 77, 1, spare=False, now=0.0)
        child.state = state
        return child


def call() -> Call:
    return Call(
        serial=5, command="echo", enqueued=0.0, deadline=9.0, queue_deadline=9.0, request_id="r"
    )


@pytest.mark.parametrize(("before", "to"), STEPS)
def test_step_of_a_child_is_a_line_and_is_counted(
    before: State, to: State, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "cordata.pool")
    here = Reporting()
    child = here.child(before)
    child.call = call()
    here.registry.move(child, to, 1.0)
    assert here.registry.counts == {(before, to): 1}
    (record,) = caplog.records
    told: Any = record
    assert told.MESSAGE_ID == getattr(events, f"POOL_CHILD_{to.name}")
    assert (told.POOL, told.WORKER, told.CHILD_PID) == ("default", "3", 77)
    assert (told.FROM, told.TO, told.CALL_ID) == (before.value, to.value, "e-5")
    assert record.getMessage() == f"child 77 of worker 3: {before.value} -> {to.value}"


def test_turns_of_ready_and_busy_are_told_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cordata.pool")
    here = Reporting()
    child = here.child(State.READY)
    here.registry.move(child, State.BUSY, 1.0)
    here.registry.move(child, State.READY, 2.0)
    assert not caplog.records
    assert sum(here.registry.counts.values()) == 2
    caplog.set_level(logging.DEBUG, "cordata.pool")
    here.report.look_at_level()
    here.registry.move(child, State.BUSY, 3.0)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


@pytest.mark.parametrize(
    ("to", "asked", "level"),
    [
        (State.RESTARTING, False, logging.WARNING),
        (State.RESTARTING, True, logging.INFO),
        (State.UNHEALTHY, False, logging.WARNING),
        (State.TERMINATING, False, logging.INFO),
    ],
)
def test_step_nobody_asked_for_is_a_warning(
    to: State, asked: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    here = Reporting()
    here.slot.draining = asked
    caplog.set_level(logging.INFO, "cordata.pool")
    here.registry.move(here.child(State.READY), to, 1.0)
    assert [record.levelno for record in caplog.records] == [level]


@pytest.mark.parametrize(
    ("event", "message_id", "level"),
    [
        ("poisoned", events.POOL_COMMAND_POISONED, logging.ERROR),
        ("killed", events.POOL_CALL_KILLED, logging.WARNING),
        ("saturated", events.POOL_SATURATED, logging.WARNING),
        ("crashed", None, logging.DEBUG),
        ("retried", None, logging.DEBUG),
    ],
)
def test_note_is_a_line_of_its_event(
    event: str, message_id: str | None, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "cordata.pool")
    here = Reporting()
    noted = call()
    noted.child = here.child(State.BUSY)
    more: dict[str, object] = {"reason": "deadline"} if event == "killed" else {}
    here.report.note(event, noted, more)
    (record,) = caplog.records
    assert (getattr(record, "MESSAGE_ID", None), record.levelno) == (message_id, level)


def test_saturation_is_told_once_a_minute_with_how_often(caplog: pytest.LogCaptureFixture) -> None:
    here = Reporting()
    for now in (100.0, 101.0, 159.0, 161.0):
        here.hub.now = now
        here.report.note("saturated", call(), {})
    assert here.hub.counting.saturated == 4
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition("wait, ")[2][:2] for text in texts] == ["1 ", "3 "]


def test_ends_of_children_are_counted_by_what_they_are() -> None:
    counting = Counting()
    for ev, why in (
        ("started", ""),
        ("exited", ""),
        ("exited", "deadline"),
        ("exited", "init"),
        ("exited", "stop"),
        ("exited", "stop"),
        ("due", "max_calls: 300 calls"),
        ("due", "asked for"),
        ("retired", ""),
    ):
        event = ChildEvent(ev, pid=1, start=1, why=why)  # type: ignore[arg-type]
        counting.told(event.ev, event.why)
    assert counting.restarts == {"crash": 1, "deadline": 1, "init": 1}
    assert (counting.recycles, counting.stops) == ({"max_calls": 1, "asked for": 1}, 2)


def test_histogram_names_its_buckets_by_their_upper_bound() -> None:
    found = Histogram()
    for milliseconds in (0.0, 1.0, 1.1, 60_000.0, 60_001.0):
        found.add(milliseconds)
    assert found.as_map() == {"1": 2, "2": 1, "60000": 1, "more": 1}


def test_histogram_that_is_taken_in_parts_adds_up_to_the_whole() -> None:
    part, whole = Histogram(), Histogram()
    assert part.take() == []
    for milliseconds in (0.5, 3.0, 0.7, 61_000.0, 3.5):
        part.add(milliseconds)
        if milliseconds == 0.7:
            taken = part.take()
            assert taken == [2, 0, 1]
            whole.add_all(taken)
    whole.add_all(part.take())
    assert whole.as_map() == {"1": 2, "5": 2, "more": 1}
    assert part.as_map() == {}


def test_complaints_are_once_a_minute_of_each_process_and_not_of_very_many() -> None:
    complaints = Complaints()
    assert [complaints.take(7, now) for now in (0.0, 1.0, 59.0)] == [0, None, None]
    assert complaints.take(7, 60.0) == 2
    assert [complaints.take(pid, 61.0) for pid in range(100, 119)] == [0] * 19
    assert [complaints.take(pid, 62.0) for pid in range(200, 1200)] == [None] * 1000
    assert complaints.take(300, 121.0) == 1000
