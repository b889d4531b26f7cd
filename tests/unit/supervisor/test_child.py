"""A child's states and what is due in each."""

from __future__ import annotations

import signal

import pytest

from cordata.supervisor.child import ABORT_GRACE_S, START_TIMEOUT_S, Child, outcome


def child() -> Child:
    made = Child(name="worker@0", arguments=["worker", "0"], is_worker=True)
    made.started(4711, now=100.0)
    return made


def test_child_becomes_ready_once() -> None:
    made = child()
    assert not made.notified({"STATUS": "waiting"}, 101.0, 10.0)
    assert made.notified({"READY": "1", "STATUS": "ready"}, 101.0, 10.0)
    assert not made.notified({"READY": "1"}, 102.0, 10.0)
    assert (made.state, made.status) == ("ready", "ready")


def test_watchdog_counts_from_ready_and_from_each_sign_of_life() -> None:
    made = child()
    made.notified({"READY": "1"}, 101.0, 10.0)
    assert made.overdue(110.9) is None
    made.notified({"WATCHDOG": "1"}, 110.0, 10.0)
    made.notified({"STATUS": "busy"}, 119.0, 10.0)
    assert made.overdue(119.9) is None
    assert made.overdue(120.0) == (signal.SIGABRT, "missed its watchdog")
    made.notified({"WATCHDOG": "1"}, 120.1, 10.0)
    assert made.overdue(120.0 + ABORT_GRACE_S) == (signal.SIGKILL, "missed its watchdog")
    assert made.overdue(1000.0) is None


def test_only_what_a_child_has_to_send_may_come_later() -> None:
    made = child()
    made.postpone(5.0)
    assert made.overdue(104.0 + START_TIMEOUT_S) is None
    made.notified({"READY": "1"}, 101.0, 10.0)
    made.postpone(5.0)
    assert made.overdue(115.0) is None
    assert made.overdue(116.0) == (signal.SIGABRT, "missed its watchdog")
    made.postpone(5.0)
    assert made.overdue(116.0 + ABORT_GRACE_S) == (signal.SIGKILL, "missed its watchdog")


def test_child_that_stops_is_killed_in_time_however_long_nothing_was_read() -> None:
    made = child()
    made.state, made.deadline = "stopping", 130.0
    made.postpone(60.0)
    assert made.overdue(130.0) == (signal.SIGKILL, "did not stop in time")


def test_nobody_is_watched_when_the_watchdog_is_off() -> None:
    made = child()
    made.notified({"READY": "1"}, 101.0, 0.0)
    assert made.overdue(1e9) is None


def test_start_is_given_up_unless_it_is_extended() -> None:
    made = child()
    assert made.overdue(99.0 + START_TIMEOUT_S) is None
    made.notified({"EXTEND_TIMEOUT_USEC": "30000000"}, 99.0 + START_TIMEOUT_S, 10.0)
    assert made.overdue(101.0 + START_TIMEOUT_S) is None
    due = made.overdue(129.0 + START_TIMEOUT_S)
    assert due == (signal.SIGABRT, "did not get ready")


def test_extension_never_shortens_the_start() -> None:
    made = child()
    made.notified({"EXTEND_TIMEOUT_USEC": "1"}, 101.0, 10.0)
    assert made.overdue(99.0 + START_TIMEOUT_S) is None


def test_restarts_come_later_and_later_until_one_ran_steadily() -> None:
    made = child()
    pauses = []
    now = 100.0
    for _ in range(8):
        made.started(1, now)
        made.ended(now, again=True)
        assert made.deadline is not None
        pauses.append(made.deadline - now)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    made.started(1, now)
    made.ended(now + 60.0, again=True)
    assert made.deadline == now + 60.0 + 30.0, "it never was ready"


def test_pause_starts_anew_when_the_child_had_been_ready_for_a_while() -> None:
    made = child()
    for ready_s, pause_s in ((0.1, 0.5), (0.1, 1.0), (1.9, 2.0), (2.0, 0.5), (0.1, 1.0)):
        made.started(1, 200.0)
        made.notified({"READY": "1"}, 201.0, 10.0)
        made.ended(201.0 + ready_s, again=True)
        assert made.deadline == 201.0 + ready_s + pause_s


def test_child_is_killed_when_it_does_not_stop_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = child(), list[signal.Signals]()
    monkeypatch.setattr(Child, "send", lambda self, number: sent.append(number))
    made.notified({"READY": "1"}, 101.0, 10.0)
    made.stop(135.0)
    assert sent == [signal.SIGTERM, signal.SIGCONT]
    made.notified({"WATCHDOG": "1"}, 130.0, 10.0)
    assert made.overdue(134.9) is None
    assert made.overdue(135.0) == (signal.SIGKILL, "did not stop in time")
    assert made.overdue(200.0) is None


@pytest.mark.parametrize(
    ("status", "clean", "text"),
    [
        (0, True, "exited with 0"),
        (1 << 8, False, "exited with 1"),
        (78 << 8, False, "exited with 78"),
        (signal.SIGTERM, True, "was killed by SIGTERM"),
        (signal.SIGKILL, False, "was killed by SIGKILL"),
        (signal.SIGABRT | 0x80, False, "was killed by SIGABRT"),
        (signal.SIGRTMIN + 3, False, f"was killed by signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_outcome_tells_clean_from_crashed(status: int, clean: bool, text: str) -> None:
    assert outcome(status) == (clean, text)
