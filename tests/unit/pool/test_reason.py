"""What a call is told that nobody took."""

from __future__ import annotations

from typing import Any

from tests.unit.pool.test_dispatch import House

from cordata.core.pool.limits import PoolLimits

PLAIN = "the deadline passed in the queue"


def text_of_late(house: House, now: float = 9.0, **fields: Any) -> str:
    """Of a call that is not taken within its second."""
    house.offer(99, **{"timeout_s": 1.0, **fields})
    house.pool.expire(now)
    return house.told.failures[99].text


def test_late_call_is_told_that_no_worker_is_connected() -> None:
    slow = PoolLimits(name="slow", workers=frozenset({"3", "10"}), commands=("slow",))
    house = House(1, pools={"slow": slow})
    text = "no worker of pool slow is connected (its workers: 3, 10)"
    assert text_of_late(house, command="slow") == f"{PLAIN}: {text}"
    house = House(0)
    assert text_of_late(house) == f"{PLAIN}: no worker of pool default is connected"


def test_late_call_is_told_that_all_workers_are_drained() -> None:
    house = House(12)
    for worker in house.conns:
        house.pool.drain(worker, True, 0.0)
    text = "all workers of pool default are drained: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert text_of_late(house) == f"{PLAIN}: {text}"


def test_late_call_is_told_why_no_child_starts() -> None:
    house = House(2)
    for child in house.children:
        house.dies(child, 0.5)
    assert text_of_late(house) == f"{PLAIN}: no child of pool default is warm"
    house = House(2)
    house.dies(house.children[0], 0.5)
    house.dies(house.children[1], 0.5, code=1, m="ImportError: no fonts")
    why = "no child of pool default starts; that of worker 1: ImportError: no fonts"
    assert text_of_late(house) == f"{PLAIN}: {why}"
    assert house.told.code(99) == "deadline"
    house.told.failures.clear()
    assert text_of_late(house, queue_timeout_s=0.5, now=1.7) == f"no child was free in time: {why}"
    assert house.told.code(99) == "queue_timeout"


def test_late_call_is_told_nothing_more_when_a_child_is_busy() -> None:
    house = House(3)
    for id in (1, 2, 3):
        house.offer(id, timeout_s=100.0)
    house.pool.drain("0", True, 1.0)
    house.dies(house.children[1], 1.0, why="deadline")
    assert text_of_late(house) == PLAIN


def test_late_call_is_told_nothing_more_when_a_busy_child_is_there_before_its_worker() -> None:
    house = House(0)
    house.child("0", 10)
    house.offer(1, timeout_s=100.0)
    assert text_of_late(house) == PLAIN


def test_call_of_a_session_is_told_why_its_own_worker_does_not_take_it() -> None:
    house = House(3)
    for id, affinity in (("q", "strict_queue"), ("f", "strict_fail")):
        for worker in ("0", "1", "2", "7"):
            aff: Any = affinity
            house.sessions.create(f"{id}{worker}", 0.0, data={}, affinity=aff, worker=worker)
    house.pool.drain("0", True, 0.0)
    house.dies(house.children[1], 0.5, m="ImportError: no fonts")
    house.offer(1, session="q2", timeout_s=100.0)
    told = {
        "7": "worker 7 is not connected (there are: 0, 1, 2)",
        "0": "worker 0 is drained",
        "1": "worker 1 has no warm child: ImportError: no fonts",
    }
    for worker, text in told.items():
        assert text_of_late(house, session=f"q{worker}") == f"{PLAIN}: {text}"
        del house.told.failures[99]
        house.offer(50, session=f"f{worker}")
        failure = house.told.failures.pop(50)
        assert (failure.code, failure.text) == ("preferred_busy", text)
    assert text_of_late(house, session="q2") == PLAIN
    house.offer(50, session="f2")
    assert house.told.failures[50].text == "worker 2 is not free"
