"""What a step costs does not grow with what waits: counted in lines of code, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tests.unit.pool.test_dispatch import House

from cordata.core.pool.call import Call
from cordata.core.pool.limits import PoolLimits
from cordata.core.pool.message import CallFrame
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import SessionLimits

FEW, MANY = 100, 20_000
#: Of a heap: its depth may grow, by some steps of some lines.
SLACK = 60


def lines(step: Callable[[], object]) -> int:
    """Lines of cordata that it runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if "cordata/core" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


def crowded(waiting: int, *, fair: bool, session: str) -> tuple[House, list[Call]]:
    """One child, busy with what nobody knows the time of, and so many calls that wait for it."""
    house = House(2, PoolLimits(max_waiting=2 * waiting, call_timeout_s=1e6, fair=fair))
    house.sessions.create("s", 0.0, data={}, affinity="strict_queue", worker="0", ttl_s=1e6)
    for id in (1, 2):
        house.offer(id, command="crash")
    calls = []
    for number in range(waiting):
        calls.append(house.offer(10 + number, now=1.0 + number * 1e-4, session=session))
    assert house.pool.waiting["default"].count == waiting
    return house, calls


@pytest.mark.parametrize("session", ["", "s"])
@pytest.mark.parametrize("fair", [False, True])
def test_step_costs_the_same_however_many_wait(fair: bool, session: str) -> None:
    found = []
    for waiting in (FEW, MANY):
        house, calls = crowded(waiting, fair=fair, session=session)
        first, middle, last = calls[0], calls[waiting // 2], calls[-2]
        child = house.children[0]
        late = house.offer(5, now=4.0, timeout_s=1.0, session=session)
        offered = CallFrame(6, "echo", session=session)
        new = house.pool.call_of(offered, client=house, source=1, size_bytes=9, now=4.0)
        steps: dict[str, Callable[[], object]] = {
            "offer": partial(house.pool.offer, new, 4.0),
            "cancel": partial(house.pool.cancel, middle, 4.0, hard=False),
            "client gone": partial(house.pool.client_gone, [last], 4.0),
            "deadline": partial(house.pool.expire, 5.1),
            "hand-off": partial(house.pool.answered, child, 5.2, ok=True),
            "death": partial(house.dies, child, 5.3, n=0),
            "next timer": house.pool.next_at,
            "longest wait": partial(house.pool.waiting["default"].longest_s, 6.0),
        }
        found.append({name: lines(step) for name, step in steps.items()})
        assert house.told.run_[-1] == ("0", first.id)
        assert late.stage.name == "OVER"
    few, many = found
    assert all(few.values())
    grown = {name: (few[name], many[name]) for name in few if many[name] > few[name] + SLACK}
    assert not grown


def test_slice_of_expiry_costs_the_same_however_many_sessions_expire_together() -> None:
    found, gone = [], []
    for count in (1_000, MANY):
        table = SessionTable(SessionLimits(), new_id=str, to_wall_us=int)
        for number in range(count):
            table.create(str(number), 0.0, data={}, ttl_s=1.0)

        def look(table: SessionTable = table) -> None:
            gone.append(table.sweep(5.0))

        found.append(lines(look))
        for _ in range(count // 1_000):
            table.sweep(5.0)  # what is left is not put off
        assert not table
    assert gone == [1_000, 1_000]
    assert found[1] <= found[0] + SLACK
