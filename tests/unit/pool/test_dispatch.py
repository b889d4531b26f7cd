"""What the dispatcher decides, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from cordata.core.pool.call import Call, Stage
from cordata.core.pool.dispatch import Dispatcher
from cordata.core.pool.limits import Failure, PoolLimits, Rules
from cordata.core.pool.message import CallFrame, Delta
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.registry import Child
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import Session, SessionLimits
from cordata.core.pool.state import State

RULES = Rules(poison_limit=2, poison_pause_s=10, cancel_grace_s=3, kill_grace_s=2)


class Told:
    """What the dispatcher wanted done, in order."""

    def __init__(self) -> None:
        self.run_: list[tuple[str, int]] = []
        self.failures: dict[int, Failure] = {}
        self.orders: list[tuple[Any, ...]] = []
        self.notes: list[str] = []

    def run(self, child: Child, call: Call, session: Session | None) -> None:
        self.run_.append((child.worker, call.id))

    def fail(self, call: Call, failure: Failure) -> None:
        assert call.id not in self.failures
        self.failures[call.id] = failure

    def cancel(self, child: Child, call: Call) -> None:
        self.orders.append(("cancel", call.id))

    def skip(self, child: Child, call: Call) -> None:
        self.orders.append(("skip", call.id))

    def take_back(self, child: Child) -> None:
        self.orders.append(("take_back", child.worker, child.order))

    def kill(self, child: Child, call: Call, why: str) -> None:
        self.orders.append(("kill", call.id, why))

    def recall(self, child: Child) -> None:
        self.orders.append(("recall", child.pid))

    def retire(self, child: Child) -> None:
        self.orders.append(("retire", child.pid))

    def hang_up(self, child: Child) -> None:
        self.orders.append(("hang_up", child.pid))

    def moved(self, child: Child, before: State, to: State) -> None:
        pass

    def note(self, event: str, call: Call, **fields: object) -> None:
        self.notes.append(event)

    def code(self, id: int) -> str:
        return self.failures[id].code


class House:
    """A dispatcher with workers named 0, 1, ..., each with a ready child of pid 10, 11, ..."""

    def __init__(
        self,
        workers: int,
        limits: PoolLimits | None = None,
        *,
        pools: Mapping[str, PoolLimits] | None = None,
        **session: Any,
    ) -> None:
        self.told = Told()
        self.sessions = SessionTable(
            SessionLimits(**session), new_id=lambda: "made", to_wall_us=lambda at: round(at * 1e6)
        )
        default = limits or PoolLimits(call_timeout_s=10.0, retries=1)
        pools = {"default": default, **(pools or {})}
        self.pool = Dispatcher(pools, RULES, self.sessions, self.told)
        self.conns = {str(n): object() for n in range(workers)}
        for worker, conn in self.conns.items():
            self.pool.worker_joined(worker, conn, "", ["echo", "crash"], 0.0)
        self.children = [self.child(str(n), 10 + n) for n in range(workers)]

    def child(self, worker: str, pid: int, *, spare: bool = False) -> Child:
        child = self.pool.child_joined(worker, pid, 1, object(), 0.0, spare=spare)
        self.pool.child_ready(child, 0.0)
        return child

    def offer(self, id: int, now: float = 1.0, *, size_bytes: int = 9, **fields: Any) -> Call:
        frame = CallFrame(**{"id": id, "command": "echo", **fields})
        call = self.pool.call_of(frame, client=self, source=1, size_bytes=size_bytes, now=now)
        self.pool.offer(call, now)
        return call

    def dies(self, child: Child, now: float, **event: Any) -> None:
        serial = child.call.serial if child.call else 0
        self.pool.child_lost(child, child.conn, now)
        said = {"sig": 9, "n": serial, **event}
        self.pool.child_event(child.worker, ChildEvent("exited", child.pid, 1, **said), now)


def test_freed_child_takes_the_oldest_call_at_once() -> None:
    house = House(1)
    for id in (1, 2, 3):
        house.offer(id)
    answered = house.pool.answered(house.children[0], 2.0, ok=True)
    assert answered is not None
    assert (answered.id, house.told.run_) == (1, [("0", 1), ("0", 2)])


def test_waiting_call_is_never_run_when_its_time_is_over_or_its_client_gone() -> None:
    house = House(1)
    house.offer(1, timeout_s=100.0)
    house.offer(2, timeout_s=3.0)
    house.offer(3, queue_timeout_s=2.0)
    cancelled, gone = house.offer(4), house.offer(5)
    house.offer(6)
    house.pool.cancel(cancelled, 1.5, hard=False)
    house.pool.client_gone([gone], 1.5)
    house.pool.expire(4.1)
    assert [house.told.code(id) for id in (2, 3, 4)] == ["deadline", "queue_timeout", "cancelled"]
    assert house.told.failures[2].data == {"ran": False}
    house.pool.answered(house.children[0], 5.0, ok=True)
    assert house.told.run_ == [("0", 1), ("0", 6)]


def test_worker_that_stops_waits_for_no_call_that_nobody_waits_for() -> None:
    house = House(2)
    left, wanted = house.offer(1), house.offer(2)
    house.pool.cancel(left, 1.5, hard=False)
    assert left.child is not None and wanted.child is not None
    for worker in ("0", "1", "none"):
        house.pool.hurry(worker, 2.0)
    house.pool.expire(2.0 + RULES.cancel_grace_s + 0.1)
    assert [order for order in house.told.orders if order[0] == "kill"] == [
        ("kill", 1, "cancelled")
    ]


def test_call_that_ran_before_says_so_when_its_deadline_passes_in_the_queue() -> None:
    house = House(1)
    house.offer(1, timeout_s=3.0, idempotent=True)
    house.dies(house.children[0], 2.0)
    house.pool.expire(4.1)
    house.offer(2, timeout_s=3.0, attempts=1)  # under a manager that is gone
    house.pool.expire(4.1)
    house.offer(3, timeout_s=0.0, attempts=1)
    assert [house.told.failures[id].data for id in (1, 2, 3)] == 3 * [{"ran": True}]


def test_deadline_keeps_the_child_busy_until_it_answers() -> None:
    house = House(1)
    house.offer(1, timeout_s=2.0)
    house.offer(2)
    house.pool.expire(3.02)
    assert house.told.code(1) == "deadline"
    assert house.told.failures[1].data == {"ran": True}
    assert (house.told.orders, len(house.told.run_)) == ([("cancel", 1)], 1)
    assert house.pool.answered(house.children[0], 4.0, ok=True) is None
    assert house.told.run_[1] == ("0", 2)
    house.pool.expire(9.0)
    assert house.told.orders == [("cancel", 1)]


def test_child_that_goes_on_is_killed_after_the_grace_and_accuses_nobody() -> None:
    house = House(1)
    call = house.offer(1, timeout_s=2.0)
    for now in (3.02, 5.04, 5.5, 10.1):
        house.pool.expire(now)
    killed = ("kill", 1, "deadline")
    assert house.told.orders == [("cancel", 1), killed, killed]
    assert house.told.notes == ["killed"]
    house.dies(house.children[0], 11.0)
    assert call.stage is Stage.OVER
    assert not house.pool.crashes


def test_hard_cancel_kills_after_its_grace_and_soft_only_after_the_deadline() -> None:
    house = House(2)
    hard, soft = house.offer(1), house.offer(2)
    house.pool.cancel(hard, 2.0, hard=True)
    house.pool.cancel(soft, 2.0, hard=False)
    assert [house.told.code(id) for id in (1, 2)] == ["cancelled", "cancelled"]
    house.pool.expire(5.02)
    assert house.told.orders[2:] == [("kill", 1, "cancelled")]
    house.pool.expire(13.02)
    assert ("kill", 2, "deadline") in house.told.orders


def test_crash_is_told_with_all_that_is_known_when_the_call_was_not_idempotent() -> None:
    house = House(1)
    house.offer(1)
    house.dies(house.children[0], 2.0, sig=11, lines=["boom"])
    failure = house.told.failures[1]
    assert failure.code == "crashed"
    assert failure.data == {
        "exit_code": None,
        "signal": 11,
        "lines": ["boom"],
        "worker": "0",
        "pid": 10,
    }


def test_idempotent_call_runs_again_elsewhere_and_then_no_more() -> None:
    house = House(2)
    house.offer(1, idempotent=True)
    first = next(child for child in house.children if child.call)
    second = next(child for child in house.children if not child.call)
    house.dies(first, 2.0)
    assert house.told.run_[1] == (second.worker, 1)
    house.dies(second, 3.0)
    assert house.told.code(1) == "crashed"
    assert house.told.failures[1].text.endswith(" was killed by signal 9, at try 2")
    assert house.pool.retries == 1


def test_call_that_had_not_begun_goes_first_in_line_though_not_idempotent() -> None:
    house = House(1)
    house.offer(1, now=1.0)
    house.offer(2, now=1.5)
    house.dies(house.children[0], 2.0, n=0)
    assert not house.told.failures
    house.child("0", 20)
    assert house.told.run_ == [("0", 1), ("0", 1)]


def test_caller_waits_for_the_report_of_the_death_no_longer_than_it_may() -> None:
    house = House(2)
    house.offer(1)
    house.offer(2, timeout_s=1.2)
    for child in house.children:
        house.pool.child_lost(child, child.conn, 2.0)
    assert not house.told.failures
    house.pool.expire(2.21)
    assert house.told.code(2) == "crashed"
    house.pool.expire(3.01)
    assert house.told.code(1) == "crashed"
    assert house.told.failures[1].data["signal"] is None


def test_worker_that_dies_takes_its_child_and_accuses_no_command() -> None:
    house = House(1)
    house.offer(1)
    child = house.children[0]
    house.pool.worker_lost("0", house.conns["0"], 2.0)
    house.pool.child_lost(child, child.conn, 2.0)
    assert house.told.code(1) == "crashed"
    assert not house.pool.registry.by_worker
    assert not house.pool.crashes


def test_command_is_refused_when_it_killed_children_in_a_row() -> None:
    house = House(3)
    for id in (1, 2):
        house.offer(id, command="crash")
        house.dies(next(c for c in house.children if c.call), 2.0)
    assert house.told.notes.count("poisoned") == 1
    house.offer(3, now=3.0, command="crash")
    assert house.told.code(3) == "poisoned"
    assert house.told.failures[3].data == {"retry_after_s": pytest.approx(9.0)}
    house.offer(4, now=3.0)
    assert house.told.run_[-1][1] == 4
    house.pool.answered(next(c for c in house.children if c.call), 3.0, ok=True)
    house.offer(5, now=12.5, command="crash")
    assert house.told.run_[-1][1] == 5


def test_offer_is_refused_when_no_worker_knows_the_command_or_the_queue_is_full() -> None:
    house = House(1, PoolLimits(max_waiting=1))
    house.offer(1, command="dance")
    assert house.told.code(1) == "unknown_command"
    assert house.told.failures[1].data == {"near": ""}
    for id in (2, 3, 4):
        house.offer(id)
    assert list(house.told.failures) == [1, 4]
    assert house.told.code(4) == "saturated"
    empty = House(0)
    empty.offer(1, command="dance")
    assert not empty.told.failures


@pytest.mark.parametrize(
    ("affinity", "run", "refused"),
    [
        ("hint", [("1", 1), ("1", 2), ("0", 3)], []),
        ("strict_queue", [("1", 1), ("1", 2)], []),
        ("strict_fail", [("1", 1), ("1", 2)], [3]),
    ],
)
def test_session_prefers_its_worker(
    affinity: Any, run: list[tuple[str, int]], refused: list[int]
) -> None:
    house = House(2)
    house.sessions.create("s", 0.0, data={}, affinity=affinity)
    house.offer(1, session="s")
    house.pool.answered(house.children[1], 1.0, ok=True)
    house.offer(2, session="s")
    house.offer(3, session="s")
    assert (house.told.run_, list(house.told.failures)) == (run, refused)
    house.pool.answered(house.children[1], 2.0, ok=True)
    if affinity == "strict_queue":
        assert house.told.run_[-1] == ("1", 3)
    session = house.sessions.peek("s", 2.0)
    assert session is not None
    assert session.worker == "1"


def test_hint_moves_when_its_worker_is_away() -> None:
    house = House(2)
    house.sessions.create("s", 0.0, data={}, worker="1")
    child = house.children[1]
    house.pool.child_lost(child, child.conn, 1.0)
    house.pool.worker_lost("1", house.conns["1"], 1.0)
    house.offer(1, session="s")
    session = house.sessions.peek("s", 1.0)
    assert session is not None
    assert session.worker == "0"


def test_strict_calls_that_waited_unpinned_end_at_one_worker() -> None:
    house = House(2)
    busy = [house.offer(id) for id in (1, 2)]
    house.sessions.create("s", 0.0, data={}, affinity="strict_queue")
    for id in (3, 4):
        house.offer(id, session="s")
    for _ in busy:
        for child in house.children:
            house.pool.answered(child, 2.0, ok=True)
    workers = {worker for worker, id in house.told.run_ if id in (3, 4)}
    assert len(workers) == 1


def test_session_changes_are_kept_when_the_caller_got_the_result_and_else_not() -> None:
    house = House(1, session_ttl_s=50.0)
    house.sessions.create("s", 0.0, data={})
    child = house.children[0]
    for id, ok in ((1, False), (2, True), (3, True)):
        call = house.offer(id, session="s")
        child.copies["s"] = (1, 0)
        if id == 3:
            house.pool.cancel(call, 1.5, hard=False)
        delta = Delta(v=1, set={f"k{id}": Raw(bytes([id]))})
        house.pool.answered(child, 2.0, ok=ok, delta=delta)
        assert ("s" in child.copies) == (id == 2)
    session = house.sessions.peek("s", 2.0)
    assert session is not None
    assert {key: bytes(value) for key, value in session.data.items()} == {"k2": b"\x02"}


def test_child_that_comes_back_is_told_everything_anew() -> None:
    house = House(1)
    child = house.children[0]
    child.copies["s"], child.globals_version = (1, 10), 4
    house.pool.child_lost(child, child.conn, 2.0)
    house.pool.child_joined("0", 10, 1, object(), 2.5, warm=True)
    assert (child.copies, child.globals_version, child.state) == ({}, -1, State.READY)


def test_answer_becomes_quota_when_the_session_would_be_too_large() -> None:
    house = House(1, max_session_bytes=10)
    house.sessions.create("s", 0.0, data={})
    house.offer(1, session="s")
    delta = Delta(set={"k": Raw(b"\xaa" + b"x" * 10)})
    assert house.pool.answered(house.children[0], 2.0, ok=True, delta=delta) is None
    assert house.told.code(1) == "quota"
    assert house.children[0].state is State.READY


def test_spare_takes_over_when_warm_and_the_old_one_leaves_with_empty_hands() -> None:
    house = House(1)
    house.offer(1)
    spare = house.child("0", 20, spare=True)
    house.offer(2)
    assert house.told.run_ == [("0", 1), ("0", 2)]
    assert spare.call is not None
    old = house.children[0]
    house.pool.answered(old, 2.0, ok=True)
    assert house.told.orders == [("retire", 10)]
    assert old.state is State.TERMINATING
    house.dies(old, 3.0, why="retired")
    assert list(house.pool.registry.by_pid) == [(20, 1)]


def test_spare_that_dies_leaves_the_old_one_at_work() -> None:
    house = House(1)
    spare = house.pool.child_joined("0", 20, 1, object(), 0.0, spare=True)
    house.dies(spare, 1.0)
    house.offer(1)
    assert house.told.run_ == [("0", 1)]
    assert len(house.pool.registry.by_pid) == 1


def test_drain_sends_calls_elsewhere_until_it_is_undone() -> None:
    house = House(1)
    assert house.pool.drain("0", True, 1.0)
    house.offer(1)
    assert not house.told.run_
    house.pool.drain("0", False, 2.0)
    assert house.told.run_ == [("0", 1)]
    assert not house.pool.drain("7", True, 2.0)


def test_stop_gives_back_what_waits_and_lets_run_what_runs() -> None:
    house = House(1)
    for id in (1, 2):
        house.offer(id)
    assert [call.id for call in house.pool.stop(2.0)] == [2]
    house.offer(3, now=2.0)
    assert house.told.code(3) == "not_run"
    assert house.pool.answered(house.children[0], 3.0, ok=True) is not None
    assert house.pool.next_at() is None


def test_child_that_comes_back_has_lost_the_call_it_had() -> None:
    house = House(1)
    house.offer(1)
    child = house.children[0]
    house.pool.child_lost(child, child.conn, 2.0)
    again = house.pool.child_joined("0", 10, 1, object(), 2.5, warm=True)
    assert again is child
    assert house.told.code(1) == "crashed"
    house.offer(2, now=3.0)
    assert house.told.run_[-1] == ("0", 2)


def test_reload_changes_limits_and_keeps_who_waits() -> None:
    house = House(1, PoolLimits(max_waiting=2, workers=frozenset({"7"})))
    for id in (1, 2, 3):
        house.offer(id)
    house.pool.reload({"default": PoolLimits(max_waiting=1, retries=0)}, Rules(poison_limit=1))
    house.offer(4)
    assert list(house.told.failures) == [4]
    house.pool.answered(house.children[0], 2.0, ok=True)
    house.offer(5)
    assert list(house.told.failures) == [4, 5]
    assert house.pool.pools["default"].workers == {"7"}
    house.dies(house.children[0], 3.0)
    assert house.told.notes[-2:] == ["poisoned", "crashed"]


def test_child_that_claims_the_slot_of_a_living_one_takes_over_and_lets_it_end_its_call() -> None:
    house = House(1)
    house.offer(1)
    old = house.children[0]
    late = house.pool.child_joined("0", 20, 2, object(), 2.0, warm=True)
    house.offer(2)
    assert late.call is not None
    assert house.pool.answered(old, 3.0, ok=True) is not None
    assert house.told.orders == [("retire", 10)]
    assert not house.told.failures
