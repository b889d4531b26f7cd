"""No row of the registry outlives its process, whatever word of its end was lost."""

from __future__ import annotations

from tests.unit.pool.test_dispatch import House

from cordata.core.pool.call import Stage
from cordata.core.pool.state import State


def replaced(house: House) -> None:
    """Worker 0's child is busy; its replacement takes the slot over."""
    house.pool.child_joined("0", 50, 1, object(), 1.0, spare=True, warm=True)
    assert house.children[0].retire


def test_replaced_child_that_dies_in_a_call_leaves_no_row_when_its_worker_says_nothing() -> None:
    house = House(1)
    call = house.offer(1)
    replaced(house)
    former = house.children[0]
    house.pool.child_lost(former, former.conn, 2.0)
    assert len(house.pool.registry.by_pid) == 2  # its end may still be told
    house.pool.expire(3.1)
    assert (call.stage, house.told.code(1)) == (Stage.OVER, "crashed")
    assert [pid for pid, _ in house.pool.registry.by_pid] == [50]


def test_spare_that_is_lost_leaves_no_row() -> None:
    house = House(1)
    conn = object()
    spare = house.pool.child_joined("0", 50, 1, conn, 1.0, spare=True)
    house.pool.child_lost(spare, conn, 2.0)
    assert [pid for pid, _ in house.pool.registry.by_pid] == [10]
    assert house.pool.registry.by_worker["0"].spare is None


def test_worker_that_comes_back_before_its_former_end_is_seen_brings_no_old_rows() -> None:
    house = House(1)
    house.pool.child_joined("0", 50, 1, None, 1.0, spare=True)  # started, and never heard of
    house.pool.worker_joined("0", object(), "", ["echo"], 2.0)
    house.pool.worker_lost("0", house.conns["0"], 2.0)
    assert [pid for pid, _ in house.pool.registry.by_pid] == [10]


def test_child_that_leaves_and_dials_again_begins_anew() -> None:
    house = House(1)
    former = house.children[0]
    house.pool.child_joined("0", 50, 1, object(), 1.0, spare=True, warm=True)
    assert former.state is State.TERMINATING
    again = house.pool.child_joined("0", 10, 1, object(), 2.0, warm=True)  # its end of file is late
    assert again is not former
    assert house.pool.registry.by_pid[10, 1] is again
