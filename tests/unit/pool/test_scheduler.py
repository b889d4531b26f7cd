"""Which child gets which call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw

from cordata.config.pool import PoolConfig
from cordata.errors import PoolSaturated
from cordata.pool.client.call import Call, CallRunner
from cordata.pool.client.queue import CallQueue
from cordata.pool.client.scheduler import (
    AWAKE_US,
    BUDGET_US,
    DEPTH,
    DEPTH_SHORT,
    LONG_CALL_S,
    ChildState,
    Scheduler,
)
from cordata.pool.shared.page import StatusReader
from cordata.pool.shared.paths import ChildAddress, Place
from cordata.pool.shared.protocol import CommandOptions

ECHO = {"echo": CommandOptions()}


@dataclass
class Page:
    """The status page of a child that does not exist."""

    takes_calls: bool = True
    in_flight: int = 0
    busy_since: float = 0.0


class Callers:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()


@pytest.fixture
def engine() -> Any:
    callers = Callers()
    yield callers
    callers.loop.close()


def call(engine: Any, sequence: int = 1, command: str = "echo", **fields: Any) -> Call:
    made = Call(
        cast(CallRunner, engine),
        engine.loop.create_future(),
        command,
        Raw(bytes(fields.pop("size_bytes", 2))),
        Raw(b""),
        0.0,
        100.0,
        100.0,
        "",
        False,
        3,
        fields.pop("priority", 0),
        "",
        lambda value: value,
        None,
    )
    made.sequence = sequence
    made.enqueued = fields.pop("enqueued", float(sequence))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def pool(*children: ChildState, **config: Any) -> Scheduler:
    made = Scheduler("default", PoolConfig(**config))
    for child in children:
        made.add(child)
    made.workers = {child.place.worker for child in children}
    made.learn()
    return made


def child(worker: str, commands: Mapping[str, CommandOptions] = ECHO, **page: Any) -> ChildState:
    address = ChildAddress(Path("/pool/default"), Place.parse(worker), 1)
    load = cast(StatusReader, Page(**page))
    return ChildState(address, load, ready=True, commands=dict(commands))


def busy(engine: Any, of: ChildState, count: int) -> None:
    for number in range(1, count + 1):
        of.calls[number] = call(engine, number)


def test_call_goes_to_the_first_free_child(engine: Any) -> None:
    first, second, third = child("0"), child("1"), child("2")
    scheduler = pool(first, second, third)
    busy(engine, first, 1)
    assert scheduler.choose(call(engine), 0.0) is second
    assert scheduler.choose(call(engine), 0.0) is second


def test_session_prefers_its_worker_when_that_is_free(engine: Any) -> None:
    first, second = child("0"), child("1-1")
    scheduler = pool(first, second)
    assert scheduler.choose(call(engine), 0.0, prefer="1") is second
    busy(engine, second, 1)
    assert scheduler.choose(call(engine), 0.0, prefer="1") is first


def test_child_gets_two_calls_and_the_next_one_waits(engine: Any) -> None:
    scheduler = pool(child("0"))
    (only,) = scheduler.children
    for number in range(1, DEPTH + 1):
        assert scheduler.choose(call(engine, number), 0.0) is only
        only.calls[number] = call(engine, number)
    assert scheduler.choose(call(engine), 0.0) is None


def test_short_calls_share_an_awake_child_while_that_is_soon_done(engine: Any) -> None:
    awake, asleep = child("0"), child("1")
    scheduler = pool(awake, asleep)
    scheduler.ran(awake, "echo", run_us=30)
    busy(engine, awake, AWAKE_US // 30 - 1)
    assert scheduler.choose(call(engine), 0.0) is awake
    busy(engine, awake, AWAKE_US // 30)
    assert scheduler.choose(call(engine), 0.0) is asleep


def test_depth_follows_how_long_calls_run(engine: Any) -> None:
    only = child("0")
    scheduler = pool(only)
    depths = []
    for command, run_us in (("a", 0), ("b", 100), ("c", 5_000), ("b", 5_000), ("c", 0)):
        scheduler.ran(only, command, run_us=run_us)
        depths.append(only.depth)
    once_late = BUDGET_US // (100 + 100 // 4 + 1)
    assert depths == [DEPTH_SHORT, BUDGET_US // 100, DEPTH, once_late, DEPTH_SHORT]
    for _ in range(20):
        scheduler.ran(only, "b", run_us=5_000)
    assert only.depth == DEPTH


def test_child_that_computes_for_long_gets_one_only_when_all_do(engine: Any) -> None:
    long, short = child("0", in_flight=1, busy_since=1.0), child("1", in_flight=1, busy_since=9.999)
    scheduler = pool(long, short)
    assert scheduler.choose(call(engine), 10.0) is short
    later = 10.0 + LONG_CALL_S
    assert scheduler.choose(call(engine), later) in (long, short)
    busy(engine, long, 1)
    busy(engine, short, 1)
    assert scheduler.choose(call(engine), later) is None


@pytest.mark.parametrize("why", ["drained", "unready", "blocked", "unknown", "pinned"])
def test_child_that_cannot_run_it_gets_nothing(engine: Any, why: str) -> None:
    only = child("0", takes_calls=why != "drained")
    only.ready, only.blocked = why != "unready", why == "blocked"
    command, pinned = ("other" if why == "unknown" else "echo"), ("1" if why == "pinned" else "")
    asked = call(engine, command=command, pinned=pinned)
    scheduler = pool(only)
    assert scheduler.choose(asked, 0.0) is None
    scheduler.queue.add(asked)
    assert scheduler.next_pair(0.0) is None


def test_waiting_call_goes_first_to_the_child_with_fewest_calls(engine: Any) -> None:
    first, second = child("0"), child("1")
    scheduler = pool(first, second)
    busy(engine, first, 1)
    for number in (1, 2, 3, 4):
        scheduler.queue.add(call(engine, number))
    found = []
    while (pair := scheduler.next_pair(0.0)) is not None:
        pair[0].calls[100 + pair[1].sequence] = pair[1]
        found.append((pair[0].place.worker, pair[1].sequence))
    assert found[0] == ("1", 1)
    assert [sequence for _, sequence in found] == [1, 2, 3]
    assert scheduler.queue.count == 1


def test_call_behind_a_long_one_is_misplaced_when_another_child_could_begin_it(
    engine: Any,
) -> None:
    long, other = child("0", in_flight=2, busy_since=1.0), child("1", in_flight=1, busy_since=1.0)
    scheduler = pool(long, other)
    busy(engine, long, 2)
    assert scheduler.misplaced(2.0) == []  # the other one computes as well
    cast(Page, other.load).in_flight, cast(Page, other.load).busy_since = 0, 0.0
    assert scheduler.misplaced(2.0) == [(long, 2)]
    busy(engine, long, 3)
    long.calls[3].pinned = "0"
    assert scheduler.misplaced(2.0) == [(long, 2)], "a call that has to stay holds no other"
    long.calls[1].pinned = long.calls[2].pinned = "0"
    assert scheduler.misplaced(2.0) == []


def test_reason_says_what_keeps_the_children(engine: Any) -> None:
    asked = call(engine)
    nobody = pool(workers=("7", "8"))
    assert nobody.unavailable_reason(asked) == (
        "no worker of pool default is connected (its workers: 7, 8)"
    )
    nobody.workers = {"7"}
    assert nobody.unavailable_reason(asked) == "no child of pool default is warm"
    assert pool(child("0")).unavailable_reason(asked) == ""
    drained = pool(child("2", takes_calls=False), child("10", takes_calls=False))
    assert drained.unavailable_reason(asked) == (
        "all workers of pool default are drained: 2, 10;"
        " unless they stop, `cordata pool drain N --undo` ends it"
    )
    lacking = pool(child("0", {}))
    assert "knows 'echo': 0" in lacking.unavailable_reason(asked)
    asked.pinned = "5"
    assert pool(child("0")).unavailable_reason(asked) == "worker 5 is not connected (there are: 0)"
    drained = pool(child("5", takes_calls=False), child("6"))
    assert drained.unavailable_reason(asked) == (
        "worker 5 is drained; unless it stops, `cordata pool drain 5 --undo` ends it"
    )


def test_queue_gives_the_oldest_less_a_second_for_each_priority(engine: Any) -> None:
    queue = CallQueue(PoolConfig())
    for sequence, at, priority in ((1, 10.0, 0), (2, 10.5, 0), (3, 12.0, 3), (4, 25.0, 9)):
        queue.add(call(engine, sequence, enqueued=at, priority=priority))
    taken = []
    while (found := queue.take("0", ECHO)) is not None:
        taken.append(found.sequence)
    assert taken == [3, 1, 2, 4]
    assert (queue.count, queue.bytes) == (0, 0)


def test_queue_gives_a_child_only_what_it_may_run(engine: Any) -> None:
    queue = CallQueue(PoolConfig())
    queue.add(call(engine, 1, command="pdf"))
    queue.add(call(engine, 2, pinned="1"))
    queue.add(call(engine, 3))
    assert (found := queue.take("0", ECHO)) is not None and found.sequence == 3
    assert queue.take("0", ECHO) is None
    assert (found := queue.take("1", ECHO)) is not None and found.sequence == 2
    assert queue.commands() == {"pdf"}


def test_dropped_call_is_never_given_and_one_that_comes_back_keeps_its_place(engine: Any) -> None:
    queue = CallQueue(PoolConfig(max_waiting=3))
    calls = [call(engine, sequence) for sequence in (1, 2, 3)]
    for one in calls:
        queue.add(one)
    with pytest.raises(PoolSaturated, match="max_waiting"):
        queue.add(call(engine, 4))
    queue.drop(calls[0])
    assert queue.take("0", ECHO) is calls[1]
    queue.add(calls[1], back=True)
    assert [one.sequence for one in sorted(queue.calls(), key=lambda one: one.sequence)] == [2, 3]
    assert queue.take("0", ECHO) is calls[1]


def test_queue_is_bounded_in_bytes(engine: Any) -> None:
    queue = CallQueue(PoolConfig(max_waiting_bytes=1024))
    queue.add(call(engine, 1, size_bytes=1000))
    with pytest.raises(PoolSaturated, match="max_waiting_bytes"):
        queue.add(call(engine, 2, size_bytes=100))


def test_call_that_moved_to_another_queue_is_taken_from_that_one_only(engine: Any) -> None:
    first, second = CallQueue(PoolConfig()), CallQueue(PoolConfig())
    moved = call(engine)
    first.add(moved)
    first.drop(moved)
    second.add(moved, back=True)
    assert (first.take("0", ECHO), first.count, first.calls()) == (None, 0, [])
    assert second.take("0", ECHO) is moved
    assert second.take("0", ECHO) is None
