"""What a child owes, by the clock."""

from __future__ import annotations

from cordata.config.pool import PoolConfig
from cordata.core.pool.page import Hand
from cordata.pool.worker.watch import PING, Watch

CONFIG = PoolConfig(init_timeout_s=60.0, health_s=30.0, health_timeout_s=5.0, kill_grace_s=2.0)
IDLE = Hand(0, 0, 0.0, 0.0, False)


def busy(deadline: float) -> Hand:
    return Hand(1, 0, 0.0, deadline, True)


def warm(now: float = 0.0) -> Watch:
    watch = Watch(now)
    watch.say_up(now)
    return watch


def test_child_has_its_time_to_warm_up() -> None:
    watch = Watch(100.0)
    assert watch.look(IDLE, 159.9, CONFIG) == ""
    assert watch.look(IDLE, 160.0, CONFIG) == "init"


def test_busy_child_has_its_deadline_and_the_grace() -> None:
    watch = warm()
    assert watch.look(busy(50.0), 51.9, CONFIG) == ""
    assert watch.look(busy(50.0), 52.0, CONFIG) == "deadline"
    assert watch.look(busy(0.0), 1e9, CONFIG) == ""


def test_idle_child_is_asked_and_has_to_answer() -> None:
    watch = warm()
    assert watch.look(IDLE, 29.9, CONFIG) == ""
    assert watch.look(IDLE, 30.0, CONFIG) == PING
    assert watch.look(IDLE, 34.9, CONFIG) == ""
    watch.say_pong(34.9)
    assert watch.look(IDLE, 64.8, CONFIG) == ""
    assert watch.look(IDLE, 64.9, CONFIG) == PING
    assert watch.look(IDLE, 69.9, CONFIG) == "unhealthy"


def test_call_after_the_ping_lets_the_answer_wait() -> None:
    watch = warm()
    assert watch.look(IDLE, 30.0, CONFIG) == PING
    assert watch.look(busy(90.0), 80.0, CONFIG) == ""
    assert watch.look(IDLE, 84.9, CONFIG) == ""
    assert watch.look(IDLE, 85.0, CONFIG) == "unhealthy"


def test_busy_child_is_not_asked() -> None:
    assert warm().look(busy(1000.0), 500.0, CONFIG) == ""


def test_child_that_was_told_to_leave_does_so_after_its_call() -> None:
    watch = warm()
    watch.say_stop(10.0)
    watch.say_stop(100.0)
    assert watch.look(IDLE, 14.9, CONFIG) == ""
    assert watch.look(busy(90.0), 50.0, CONFIG) == ""
    assert watch.look(IDLE, 54.9, CONFIG) == ""
    assert watch.look(IDLE, 55.0, CONFIG) == "stop"
