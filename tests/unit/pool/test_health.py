"""What a child has to do by which time, and when it is replaced."""

from __future__ import annotations

from typing import Any

from cordata.config.pool import PoolConfig
from cordata.pool.shared.paths import Place
from cordata.pool.worker.child_supervisor import longest_age_s, recycle_reason
from cordata.pool.worker.process import PING, Health

CONFIG = PoolConfig(init_timeout_s=60.0, health_s=30.0, health_timeout_s=5.0, kill_grace_s=2.0)


def idle(health: Health, now: float, *, stopped: bool = False) -> str:
    return health.due_action(running=False, stopped=stopped, deadline=0.0, now=now, config=CONFIG)


def busy(health: Health, now: float, deadline: float) -> str:
    return health.due_action(running=True, stopped=False, deadline=deadline, now=now, config=CONFIG)


def warm(now: float = 0.0) -> Health:
    health = Health(now)
    health.note_up(now)
    return health


def test_child_has_its_time_to_warm_up() -> None:
    health = Health(100.0)
    assert idle(health, 159.9) == ""
    assert idle(health, 160.0) == "init"


def test_call_has_its_deadline_and_the_grace() -> None:
    health = warm()
    assert busy(health, 51.9, 50.0) == ""
    assert busy(health, 52.0, 50.0) == "deadline"


def test_idle_child_is_asked_and_has_to_answer() -> None:
    health = warm()
    assert idle(health, 29.9) == ""
    assert idle(health, 30.0) == PING
    assert idle(health, 34.9) == ""
    health.note_pong(34.9)
    assert idle(health, 64.8) == ""
    assert idle(health, 64.9) == PING
    assert idle(health, 69.9) == "unhealthy"


def test_child_that_was_stopped_is_asked_at_once() -> None:
    health = warm()
    assert idle(health, 1.0, stopped=True) == PING
    assert idle(health, 5.9, stopped=True) == ""
    health.note_pong(5.9)
    assert idle(health, 6.0) == ""
    assert idle(health, 7.0, stopped=True) == PING
    assert idle(health, 12.0, stopped=True) == "unhealthy"


def test_call_after_the_ping_lets_the_answer_wait() -> None:
    health = warm()
    assert idle(health, 30.0) == PING
    assert busy(health, 80.0, 90.0) == ""
    assert idle(health, 84.9) == ""
    assert idle(health, 85.0) == "unhealthy"


def test_busy_child_is_not_asked() -> None:
    assert busy(warm(), 500.0, 1000.0) == ""


def test_child_that_was_told_to_leave_does_so_after_its_call() -> None:
    health = warm()
    health.note_stop(10.0)
    health.note_stop(100.0)
    assert idle(health, 14.9) == ""
    assert busy(health, 50.0, 90.0) == ""
    assert idle(health, 54.9) == ""
    assert idle(health, 55.0) == "stop"


def reason(**limits: Any) -> str:
    config = PoolConfig(**limits)
    return recycle_reason(config, place=Place("3"), calls=50, age_s=100.0, rss_bytes=300 << 20)


def test_reason_to_replace_a_child_names_the_limit_that_was_reached() -> None:
    assert reason() == ""
    assert reason(max_calls=51) == ""
    assert reason(max_calls=50) == "max_calls: 50 calls"
    assert reason(max_age_s=90.0) == "max_age_s: 100 s"
    assert reason(max_age_s=112.0) == ""
    assert reason(max_rss_bytes=200 << 20) == "max_rss_bytes: 300 MiB"


def test_longest_age_spreads_the_workers_but_stays_the_same_for_each() -> None:
    ages = [longest_age_s(100.0, Place("3", n)) for n in range(64)]
    assert all(90.0 <= age <= 110.0 for age in ages)
    assert len(set(ages)) == 64
    assert ages == [longest_age_s(100.0, Place("3", n)) for n in range(64)]
