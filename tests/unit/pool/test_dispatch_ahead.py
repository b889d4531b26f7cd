"""Calls sent ahead to a busy child: which ones go, and how they come back."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, msgpack
from tests.unit.pool.test_dispatch import House

from cordata.core.pool.call import Stage
from cordata.core.pool.copies import send
from cordata.core.pool.limits import PoolLimits
from cordata.core.pool.message import Delta
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.placing import LIGHT_BYTES
from cordata.core.pool.sending import DEPTH, SHORT_PATIENCE_S
from cordata.core.pool.state import State


def house(workers: int, limits: PoolLimits | None = None, **us: int) -> House:
    """`echo` and `crash` ran in 50 microseconds lately, if nothing else is said."""
    made = House(workers, limits)
    for command, number in {"echo": 50, "crash": 50, **us}.items():
        made.pool.pace.ran(command, number)
    return made


def test_calls_go_ahead_in_order_and_in_turns_and_no_more_than_may() -> None:
    two = house(2, echo=100)
    for id in range(1, 100):
        two.offer(id)
    ahead = [[call.id for call in child.ahead] for child in two.children]
    last = 2 + 2 * DEPTH
    assert sorted(ahead) == [list(range(3, last, 2)), list(range(4, last + 1, 2))]
    assert two.pool.waiting["default"].count == 99 - 2 - 2 * DEPTH
    child = two.children[0]
    first, second = child.held()[:2]
    assert two.pool.answered(child, 1.1, ok=True) is first
    assert (child.call, second.stage, child.state) == (second, Stage.RUNNING, State.BUSY)
    assert (child.ahead[-1].id, len(child.ahead)) == (last + 1, DEPTH)


def test_slow_unknown_large_and_streaming_calls_wait_and_so_do_those_behind() -> None:
    for fields in (
        {"command": "crash"},
        {"command": "never_seen"},
        {"credits": 3},
        {"session": "s"},
    ):
        one = house(1, crash=90_000)
        one.pool.registry.learn(one.pool.registry.by_worker["0"], ["echo", "crash", "never_seen"])
        one.sessions.create("s", 0.0, data={}, ttl_s=99.0, affinity="hint", worker="")
        one.offer(1, session="s")
        one.offer(2, **fields)
        one.offer(3)
        assert (one.told.run_, len(one.children[0].ahead)) == ([("0", 1)], 0), fields
    one = house(1)
    one.offer(1)
    call = one.offer(2)
    assert call.stage is Stage.AHEAD
    for fields, held in ({"credits": 3}, 0), ({"command": "crash"}, 0):
        slow = house(1, crash=90_000)
        slow.offer(1, **fields)
        slow.offer(2)
        assert len(slow.children[0].ahead) == held, fields


def test_very_short_calls_share_a_child_that_is_soon_done_though_another_is_free() -> None:
    two = house(2)  # 50 microseconds each: three are done when another child would be awake
    for id in (1, 2, 3):
        two.offer(id)
    (awake,) = [child for child in two.children if child.call is not None]
    assert [call.id for call in awake.held()] == [1, 2, 3]
    (free,) = [child for child in two.children if child is not awake]
    two.offer(4)
    assert [call.id for call in free.held()] == [4]
    for id in (5, 6):  # nobody is free now: they take turns
        two.offer(id)
    assert [[call.id for call in child.held()] for child in (awake, free)] == [[1, 2, 3, 5], [4, 6]]


def test_call_that_may_not_wait_behind_another_one_takes_a_free_child() -> None:
    for fields in (
        {"command": "crash"},
        {"credits": 3},
        {"size_bytes": 20_000},
        {"session": "soft"},
        {"session": "queue"},
        {"session": "bound_elsewhere"},
    ):
        two = house(2, crash=120)
        for id, kind in (("soft", "hint"), ("queue", "strict_queue")):
            two.sessions.create(id, 0.0, data={}, ttl_s=99.0, affinity=kind)  # type: ignore[arg-type]
        two.offer(1, session="soft" if fields.get("session") == "soft" else "")
        (awake,) = [child for child in two.children if child.call is not None]
        elsewhere = "1" if awake.worker == "0" else "0"
        large = {"k": Raw(msgpack.encode(bytes(LIGHT_BYTES)))}
        two.sessions.create("bound_elsewhere", 0.0, data=large, ttl_s=99.0, worker=elsewhere)
        two.offer(2, **fields)
        assert [len(child.held()) for child in two.children] == [1, 1], fields


def test_very_short_call_of_a_small_session_does_not_wake_the_child_it_prefers() -> None:
    two = house(2)
    two.offer(1)
    (awake,) = [child for child in two.children if child.call is not None]
    elsewhere = "1" if awake.worker == "0" else "0"
    two.sessions.create("s", 0.0, data={}, ttl_s=99.0, worker=elsewhere)
    two.offer(2, session="s")
    assert [call.id for call in awake.held()] == [1, 2]
    session = two.sessions.peek("s", 1.0)
    assert session is not None and session.worker == elsewhere  # it still prefers that one


def test_very_short_call_goes_to_the_child_at_work_last_if_that_has_the_session_as_it_is() -> None:
    two = house(2, crash=90_000)
    last = two.pool.registry.free("default")
    assert last is not None
    own = next(child for child in two.children if child is not last)
    session = two.sessions.create("s", 0.0, data={}, ttl_s=99.0, worker=own.worker)
    send(last, session)
    for id, command, changed, child in (
        (1, "echo", False, last),
        (2, "crash", False, own),  # long enough for what else its own one has at hand
        (3, "echo", True, own),
    ):
        if changed:
            two.sessions.apply("s", Delta(cnt={"n": 1}), 1.0)
        two.offer(id, session="s", command=command)
        assert [call.id for call in child.held()] == [id]
        two.pool.answered(child, 1.0, ok=True)
        two.pool.registry.move(last, State.BUSY, 1.0)  # it is the one that was at work last
        two.pool.registry.move(last, State.READY, 1.0)


def test_very_short_call_shares_the_child_that_woke_last_if_that_has_the_session_as_it_is() -> None:
    for has_it in (True, False):
        three = house(3, echo=100, crash=20)
        three.offer(1)
        (first,) = [child for child in three.children if child.call is not None]
        three.offer(2)  # too long for both at one child
        (last,) = [one for one in three.children if one.call is not None and one is not first]
        session = three.sessions.create("s", 0.0, data={}, ttl_s=99.0, worker=first.worker)
        if has_it:
            send(last, session)
        three.offer(3, session="s", command="crash")
        assert [call.id for call in (last if has_it else first).held()][1:] == [3]


def test_call_takes_a_free_child_when_no_more_may_wait() -> None:
    two = house(2, PoolLimits(max_waiting=1, call_timeout_s=10.0))
    for id in (1, 2, 3):
        two.offer(id)
    assert sorted(len(child.held()) for child in two.children) == [1, 2]


def test_call_behind_a_long_one_is_had_back_soon_when_another_child_is_free() -> None:
    two = house(2)
    two.offer(1)
    two.offer(2)
    (slow,) = [child for child in two.children if child.call is not None]
    (free,) = [child for child in two.children if child is not slow]
    assert two.pool.next_at() == 1.0 + SHORT_PATIENCE_S
    two.pool.expire(1.0 + SHORT_PATIENCE_S)
    assert two.told.orders == [("take_back", slow.worker, 2)]
    two.pool.taken_back(slow, 1, 2, 1.005)
    assert [[call.id for call in child.held()] for child in (slow, free)] == [[1], [2]]


def test_word_on_runs_of_a_former_connection_says_nothing_of_those_that_came_after() -> None:
    one = house(1)
    for id in (1, 2, 3):
        one.offer(id)
    child = one.children[0]
    one.pool.expire(1.02)
    assert one.told.orders == [("take_back", child.worker, 3)]
    one.pool.child_lost(child, child.conn, 1.021)
    one.pool.child_joined(child.worker, child.pid, child.start, object(), 1.022, warm=True)
    held = [call.id for call in child.held()]
    assert held == [2, 3]
    one.pool.taken_back(child, 0, 3, 1.023)
    assert [call.id for call in child.held()] == held


def test_call_ahead_counts_as_waiting() -> None:
    one = house(1, PoolLimits(max_waiting=2, call_timeout_s=10.0))
    for id in (1, 2, 3, 4):
        one.offer(id)
    assert one.told.code(4) == "saturated"
    assert [call.id for call in one.children[0].ahead] == [2, 3]


def test_what_lies_behind_a_long_call_is_had_back_and_runs_elsewhere() -> None:
    two = house(2, echo=100)
    for id in range(1, 7):
        two.offer(id)
    slow, quick = two.children
    ids = [call.id for call in slow.held()]
    for now in (1.001, 1.002, 1.003):
        two.pool.answered(quick, now, ok=True)
    assert quick.state is State.READY
    assert two.pool.next_at() == 1.01
    two.pool.expire(1.011)
    orders = [call.order for call in slow.held()]
    assert two.told.orders == [("take_back", slow.worker, orders[-1])]
    two.pool.taken_back(slow, orders[0], orders[-1], 1.012)
    assert [call.id for call in slow.held()] == ids[:1]
    assert [call.id for call in quick.held()] == ids[1:]
    # Nothing goes to the one that is at it for so long; the other gets the next.
    assert [call.id for call in two.pool.waiting["default"].take_all(1.1)] == []
    for order in orders[1:]:
        two.pool.given_back(slow, order, 1.5)  # the child's own word finds nothing
    assert (slow.held()[0].id, len(slow.held()), two.told.failures) == (ids[0], 1, {})
    assert two.pool.answered(slow, 2.0, ok=True) is not None


def test_child_gives_back_what_it_was_about_to_begin_when_both_saw_it() -> None:
    one = house(1)
    for id in (1, 2):
        one.offer(id)
    child = one.children[0]
    one.pool.expire(1.02)
    one.pool.answered(child, 1.02, ok=True)
    one.pool.taken_back(child, 2, 2, 1.021)  # the worker thinks that it began
    call = child.call
    assert call is not None and call.id == 2
    one.pool.given_back(child, 2, 1.022)
    assert (child.call, call.order, call.stage) == (call, 3, Stage.RUNNING)
    assert one.told.run_ == [("0", 1), ("0", 2), ("0", 2)]


def test_dead_child_takes_only_the_call_in_hand_along() -> None:
    two = house(2, crash=100)
    for id in range(1, 7):
        two.offer(id, command="crash")
    dead, other = two.children
    in_hand, *behind = dead.held()
    two.dies(dead, 1.1)
    assert list(two.told.failures) == [in_hand.id]
    assert two.told.code(in_hand.id) == "crashed"
    assert two.pool.crashes == {"crash": 1}
    assert [call.attempts for call in behind] == [0, 0]
    for now in (1.2, 1.3, 1.4, 1.5, 1.6):
        assert two.pool.answered(other, now, ok=True) is not None
    assert other.state is State.READY


def test_call_that_the_page_says_was_not_begun_runs_again_with_those_behind() -> None:
    two = house(2)
    ids = [two.offer(id).id for id in (1, 2, 3, 4)]
    two.dies(two.children[0], 1.1, n=0)
    for now in (1.2, 1.3, 1.4, 1.5):
        two.pool.answered(two.children[1], now, ok=True)
    assert (two.told.failures, {id for _, id in two.told.run_}) == ({}, set(ids))


def test_connection_that_we_cut_leaves_it_open_what_was_begun() -> None:
    two = house(2)
    calls = [two.offer(id, idempotent=id == 3) for id in range(1, 7)]
    child = calls[0].child
    assert child is not None
    held = child.held()
    two.pool.child_lost(child, child.conn, 1.1, cut=True)
    assert (child.held(), two.told.failures) == (held, {})
    event = ChildEvent("exited", child.pid, 1, sig=9, n=held[1].serial)
    two.pool.child_event(child.worker, event, 1.2)
    ended = [id for id in two.told.failures]
    assert ended == [call.id for call in held[:2] if not call.idempotent]
    assert two.pool.crashes == {"echo": 1}


def test_calls_that_are_due_at_once_all_end_when_the_first_one_ends_the_others() -> None:
    one = house(1)
    calls = [one.offer(id) for id in (1, 2, 3)]
    child = one.children[0]
    assert child.held() == calls
    one.pool.child_lost(child, child.conn, 1.1, cut=True)
    one.pool.expire(20.0)  # the loop was held up; all three are due
    assert set(one.told.failures) == {1, 2, 3}
    assert len(one.pool.wheel) == 0


def test_call_ahead_that_nobody_wants_is_skipped() -> None:
    one = house(1)
    first, cancelled, gone, last = (one.offer(id) for id in (1, 2, 3, 4))
    one.pool.cancel(cancelled, 1.001, hard=True)
    one.pool.client_gone([gone], 1.001)
    assert one.told.code(2) == "cancelled"
    assert one.told.orders == [("skip", 2), ("skip", 3)]
    child = one.children[0]
    assert one.pool.answered(child, 1.002, ok=True) is first
    for order in (2, 3):
        one.pool.given_back(child, order, 1.003)
    assert (child.call, cancelled.stage, gone.stage) == (last, Stage.OVER, Stage.OVER)
    one.pool.expire(9.0)
    assert ("kill", 2, "cancelled") not in one.told.orders
    assert one.pool.answered(child, 9.1, ok=True) is last


def test_call_ahead_never_begins_after_its_time() -> None:
    one = house(1)
    one.offer(1)
    one.offer(2, timeout_s=0.5)
    one.offer(3, queue_timeout_s=0.5)
    one.pool.expire(1.511)
    assert {("skip", 2), ("skip", 3)} <= set(one.told.orders)
    one.pool.taken_back(one.children[0], 1, 3, 1.52)
    assert (one.told.code(2), one.told.code(3)) == ("deadline", "queue_timeout")
    assert one.told.failures[2].data == {"ran": False}


def test_late_call_of_which_no_word_comes_is_answered_all_the_same() -> None:
    one = house(1)
    one.offer(1)
    one.offer(2, timeout_s=0.5)
    one.pool.expire(1.511)
    one.pool.expire(1.57)
    assert (one.told.code(2), one.told.failures[2].data) == ("deadline", {"ran": True})
    child = one.children[0]
    one.pool.answered(child, 1.6, ok=True)
    assert one.told.orders[-1] == ("cancel", 2)
    assert one.pool.answered(child, 1.7, ok=True) is None
    assert child.state is State.READY


def test_who_leaves_gets_nothing_ahead_and_ends_what_it_has() -> None:
    for leave in ("due", "retired", "drain"):
        one = house(1)
        for id in (1, 2):
            one.offer(id)
        child = one.children[0]
        if leave == "drain":
            one.pool.drain("0", True, 1.0)
        else:
            one.pool.child_event("0", ChildEvent(leave, child.pid, 1), 1.0)  # type: ignore[arg-type]
        one.offer(3)
        assert [call.id for call in child.ahead] == [2], leave
        one.pool.answered(child, 1.1, ok=True)
        one.pool.answered(child, 1.2, ok=True)
        assert (len(one.told.run_) == 3) == (leave == "due")


def test_stopped_pool_does_not_run_what_it_has_back() -> None:
    one = house(1)
    for id in (1, 2):
        one.offer(id)
    assert one.pool.stop(1.0) == []
    one.pool.taken_back(one.children[0], 1, 2, 1.02)
    assert one.told.code(2) == "not_run"


def test_session_is_used_by_one_call_ahead_and_its_changes_are_seen_by_the_next() -> None:
    one = house(1)
    one.sessions.create("s", 0.0, data={}, ttl_s=99.0, affinity="hint", worker="")
    one.offer(1)
    one.offer(2, session="s")
    one.offer(3, session="s")
    child = one.children[0]
    assert [call.id for call in child.ahead] == [2]
    one.pool.answered(child, 1.1, ok=True)
    delta = Delta(v=0, cnt={"seen": 1})
    one.pool.answered(child, 1.2, ok=True, delta=delta)
    assert one.told.run_[-1] == ("0", 3)
    session: Any = one.sessions.peek("s", 1.2)
    assert session.counters == {"seen": 1}


def test_strict_session_without_a_worker_is_not_bound_by_a_call_ahead() -> None:
    one = house(1)
    one.sessions.create("s", 0.0, data={}, ttl_s=99.0, affinity="strict_queue", worker="")
    one.offer(1)
    one.offer(2, session="s")
    assert not one.children[0].ahead
    one.pool.answered(one.children[0], 1.1, ok=True)
    one.offer(3)
    one.offer(4)
    assert [call.id for call in one.children[0].ahead] == [3, 4]


def test_worker_that_does_not_answer_is_asked_again_after_half_a_second_only() -> None:
    one = house(1)
    for id in (1, 2):
        one.offer(id)
    now = 1.0
    while now < 1.9:
        at = one.pool.next_at()
        assert at is not None
        now = at
        one.pool.expire(now)
    assert len(one.told.orders) == 2
