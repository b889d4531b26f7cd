"""The dispatcher under any order of events: its rules hold after each, at the end all is empty.

The recorder stands for the manager's links, and checks each order as it is given.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec import Raw

from cordata.core.pool.call import Call, Stage
from cordata.core.pool.copies import send
from cordata.core.pool.dispatch import Dispatcher
from cordata.core.pool.limits import Failure, PoolLimits, Rules
from cordata.core.pool.message import CallFrame, Delta
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.registry import Child, State
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import SessionLimits

WORKERS = ("0", "1", "2", "9")
POOLS = {
    "default": PoolLimits(max_waiting=6, retries=1, call_timeout_s=8.0),
    "other": PoolLimits(
        name="other",
        workers=frozenset({"9"}),
        commands=("rare*",),
        max_waiting=3,
        fair=True,
        call_timeout_s=20.0,
    ),
}
COMMANDS = ("echo", "echo", "crash", "rare_one")
SESSIONS = ("", "", "soft", "queue", "fail", "none")
index = st.integers(0, 1000)


class Recorder:
    """Effects that check what may not happen."""

    def __init__(self) -> None:
        self.answered: dict[int, str] = {}
        self.begun: dict[int, int] = {}
        self.unsendable = False
        self.now = 0.0
        #: What each child keeps of each session, as it was told.
        self.kept: dict[tuple[Child, str], dict[str, Raw]] = {}
        self.sessions: SessionTable | None = None

    def run(self, child: Child, call: Call) -> Failure | None:
        assert child.conn is not None and not child.lost, "handed to a dead child"
        assert child.call is None, "handed to a busy child"
        assert call.serial not in self.answered, "started after it was over"
        assert self.now < call.deadline + 0.011, "started after its deadline"
        if self.unsendable:
            return Failure("frame_too_large", "too large")
        began = self.begun.get(call.serial, 0)
        assert began == 0 or call.idempotent, "run twice without being declared so"
        assert began <= POOLS[call.pool].retries, "run too often"
        if call.session:
            assert self.sessions is not None
            session = self.sessions.peek(call.session, self.now)
            assert session is not None
            sent = send(child, session)
            for id in sent.forget:
                self.kept.pop((child, id), None)
            if sent.copy.full is not None:
                self.kept[child, session.id] = dict(sent.copy.full)
            assert self.kept[child, session.id] == session.data, "the child has an old copy"
        self.begun[call.serial] = began + 1
        return None

    def fail(self, call: Call, failure: Failure) -> None:
        self.over(call, failure.code)

    def over(self, call: Call, how: str) -> None:
        assert call.serial not in self.answered, f"answered twice: {how}"
        assert call.client is not None, "answered though it is gone"
        self.answered[call.serial] = how

    def cancel(self, child: Child, call: Call) -> None:
        assert child.call is call

    def kill(self, child: Child, call: Call, why: str) -> None:
        assert child.call is call and call.stage is Stage.DETACHED

    def retire(self, child: Child) -> None:
        assert child.call is None and child.retire

    def moved(self, child: Child, before: State, to: State) -> None:
        pass

    def note(self, event: str, call: Call, **fields: object) -> None:
        pass


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.effects = Recorder()
        self.sessions = SessionTable(
            SessionLimits(), new_id=lambda: "x", to_wall_us=lambda at: round(at * 1e6)
        )
        self.effects.sessions = self.sessions
        self.pool = Dispatcher(
            POOLS, Rules(poison_limit=2, poison_pause_s=5), self.sessions, self.effects
        )
        self.calls: list[Call] = []
        self.conns: dict[str, object] = {}
        self.living: dict[int, Child] = {}
        self.pid = 0
        for id in ("soft", "queue", "fail"):
            self.open_session(id)

    def open_session(self, id: str) -> None:
        kinds = {"soft": "hint", "queue": "strict_queue", "fail": "strict_fail"}
        self.sessions.create(id, self.now, data={}, ttl_s=15.0, affinity=kinds[id])  # type: ignore[arg-type]

    # Workers and children

    @rule(worker=st.sampled_from(WORKERS))
    def worker_joins(self, worker: str) -> None:
        if worker not in self.conns:
            self.conns[worker] = object()
            commands = ["rare_one"] if worker == "9" else ["echo", "crash"]
            self.pool.worker_joined(worker, self.conns[worker], "", commands, self.now)

    @rule(
        worker=st.sampled_from(WORKERS), spare=st.booleans(), told=st.booleans(), warm=st.booleans()
    )
    def child_starts(self, worker: str, spare: bool, told: bool, warm: bool) -> None:
        slot = self.pool.registry.by_worker.get(worker)
        there = [c for c in self.living.values() if c.worker == worker and c.spare == spare]
        if slot is None or slot.conn is None or there or (spare and slot.child is None):
            return
        self.pid += 1
        if told:
            event = ChildEvent("started", self.pid, 7, why="spare" if spare else "")
            self.pool.child_event(worker, event, self.now)
        conn = object()
        child = self.pool.child_joined(
            worker, self.pid, 7, conn, self.now, spare=spare, warm=warm and not spare
        )
        self.living[self.pid] = child

    def pick(self, which: int) -> Child:
        return self.living[sorted(self.living)[which % len(self.living)]]

    @precondition(lambda self: self.living)
    @rule(which=index, warm=st.booleans())
    def another_claims_the_slot(self, which: int, warm: bool) -> None:
        worker = self.pick(which).worker
        if self.conns.get(worker) is not None:
            self.pid += 1
            self.living[self.pid] = self.pool.child_joined(
                worker, self.pid, 7, object(), self.now, warm=warm
            )

    @initialize()
    def all_is_well(self) -> None:
        for worker in WORKERS:
            self.back_to_work(worker)

    @rule(worker=st.sampled_from(WORKERS))
    def back_to_work(self, worker: str) -> None:
        """Most of the time there are children to be had."""
        self.worker_joins(worker)
        self.child_starts(worker, spare=False, told=True, warm=True)
        for child in list(self.living.values()):
            if child.worker == worker:
                self.pool.child_ready(child, self.now)

    @precondition(lambda self: self.living)
    @rule(which=index)
    def child_is_ready(self, which: int) -> None:
        self.pool.child_ready(self.pick(which), self.now)

    @precondition(lambda self: self.living)
    @rule(which=index, ok=st.booleans(), value=st.integers(0, 9))
    def child_answers(self, which: int, ok: bool, value: int) -> None:
        child = self.pick(which)
        call = child.call
        if call is None:
            return
        delta = None
        if call.session and value < 5:
            delta = Delta(v=child.copies[call.session][0], set={"k": Raw(bytes([value]))})
            if ok:
                self.effects.kept[child, call.session] = {
                    **self.effects.kept[child, call.session],
                    "k": Raw(bytes([value])),
                }
        waited = call.stage is Stage.RUNNING
        answered = self.pool.answered(child, self.now, ok=ok, delta=delta)
        assert (answered is call) == waited
        if answered:
            self.effects.over(call, "answer")

    @precondition(lambda self: self.living)
    @rule(
        which=index, began=st.booleans(), eof_first=st.booleans(), why=st.sampled_from(("", "hang"))
    )
    def child_dies(self, which: int, began: bool, eof_first: bool, why: str) -> None:
        child = self.pick(which)
        del self.living[child.pid]
        conn, call = child.conn, child.call
        if call is not None and not began:
            # The page proves that this run did not begin.
            self.effects.begun[call.serial] -= 1
        serial = call.serial if call is not None and began else 0
        event = ChildEvent("exited", child.pid, 7, why=why, sig=9, n=serial)
        if eof_first:
            self.pool.child_lost(child, conn, self.now)
            self.pool.child_event(child.worker, event, self.now)
        else:
            self.pool.child_event(child.worker, event, self.now)
            self.pool.child_lost(child, conn, self.now)

    @precondition(lambda self: self.living)
    @rule(which=index)
    def child_dies_and_nobody_tells(self, which: int) -> None:
        child = self.pick(which)
        del self.living[child.pid]
        self.pool.child_lost(child, child.conn, self.now)

    @precondition(lambda self: self.living)
    @rule(which=index)
    def child_comes_back(self, which: int) -> None:
        child = self.pick(which)
        if child.state not in (State.READY, State.BUSY):
            return
        for key in [key for key in self.effects.kept if key[0] is child]:
            del self.effects.kept[key]
        self.pool.child_lost(child, child.conn, self.now)
        if self.conns.get(child.worker) is not None:
            again = self.pool.child_joined(
                child.worker, child.pid, 7, object(), self.now, warm=True
            )
            self.living[child.pid] = again
        else:
            del self.living[child.pid]

    @precondition(lambda self: self.living)
    @rule(which=index, ev=st.sampled_from(("unhealthy", "retired", "warm", "due")))
    def worker_tells(self, which: int, ev: Any) -> None:
        child = self.pick(which)
        self.pool.child_event(child.worker, ChildEvent(ev, child.pid, 7), self.now)

    @rule(worker=st.sampled_from(WORKERS), on=st.booleans())
    def drain(self, worker: str, on: bool) -> None:
        self.pool.drain(worker, on, self.now)

    @rule(worker=st.sampled_from(WORKERS), children_first=st.booleans())
    def worker_dies(self, worker: str, children_first: bool) -> None:
        conn = self.conns.pop(worker, None)
        if conn is None:
            return
        own = [child for child in self.living.values() if child.worker == worker]
        if not children_first:
            self.pool.worker_lost(worker, conn, self.now)
        for child in own:
            del self.living[child.pid]
            self.pool.child_lost(child, child.conn, self.now)
        if children_first:
            self.pool.worker_lost(worker, conn, self.now)
        assert worker not in self.pool.registry.by_worker

    # Calls

    @rule(
        command=st.sampled_from(COMMANDS),
        session=st.sampled_from(SESSIONS),
        idempotent=st.booleans(),
        priority=st.sampled_from((0, 0, 9)),
        queue_s=st.sampled_from((None, 1.0)),
        source=st.integers(0, 2),
        count=st.integers(1, 3),
    )
    def call_arrives(
        self,
        command: str,
        session: str,
        idempotent: bool,
        priority: int,
        queue_s: float | None,
        source: int,
        count: int,
    ) -> None:
        for _ in range(count):
            frame = CallFrame(
                id=1,
                command=command,
                session=session,
                idempotent=idempotent,
                priority=priority,
                queue_timeout_s=queue_s,
            )
            call = self.pool.call_of(frame, client=self, source=source, size_bytes=5, now=self.now)
            self.calls.append(call)
            self.pool.offer(call, self.now)

    @rule(command=st.sampled_from(COMMANDS))
    def call_cannot_be_sent(self, command: str) -> None:
        self.effects.unsendable = True
        frame = CallFrame(id=1, command=command)
        call = self.pool.call_of(frame, client=self, source=0, size_bytes=5, now=self.now)
        self.calls.append(call)
        self.pool.offer(call, self.now)
        self.effects.unsendable = False

    @rule(session=st.sampled_from(SESSIONS), idempotent=st.booleans(), value=st.integers(0, 9))
    def calls_come_and_go(self, session: str, idempotent: bool, value: int) -> None:
        """The daily life between the accidents."""
        for command in ("echo", "rare_one", "echo"):
            self.call_arrives(command, session, idempotent, 0, None, value % 3, 2)
        for which in range(value):
            if self.living:
                self.child_answers(which, which % 3 > 0, value)

    def open_calls(self) -> list[Call]:
        return [call for call in self.calls if call.stage is not Stage.OVER]

    @precondition(lambda self: self.open_calls())
    @rule(which=index, hard=st.booleans())
    def cancel(self, which: int, hard: bool) -> None:
        calls = self.open_calls()
        self.pool.cancel(calls[which % len(calls)], self.now, hard=hard)

    @rule(source=st.integers(0, 2))
    def client_goes(self, source: int) -> None:
        calls = [call for call in self.open_calls() if call.source == source and call.client]
        self.pool.client_gone(calls, self.now)
        for call in calls:
            self.effects.answered.setdefault(call.serial, "gone")

    @rule(step_s=st.sampled_from((0.0, 0.02, 0.5, 1.1, 4.0, 9.0)))
    def time_passes(self, step_s: float) -> None:
        self.now += step_s
        self.effects.now = self.now
        self.pool.expire(self.now)
        for id in ("soft", "queue", "fail"):
            if self.sessions.peek(id, self.now) is None:
                self.open_session(id)

    # What must always be so

    @invariant()
    def each_call_is_in_one_place(self) -> None:
        waiting = sum(len(queue) for queue in self.pool.waiting.values())
        calls = self.open_calls()
        assert waiting == len([call for call in calls if call.stage is Stage.WAITING])
        assert len(self.pool.wheel) == len(calls) == len([c for c in calls if c.due >= 0])
        in_hand = {c.call for c in self.pool.registry.by_pid.values() if c.call is not None}
        assert in_hand == {call for call in calls if call.stage is not Stage.WAITING}
        for call in calls:
            assert call.stage is Stage.WAITING or call.child is not None
            if call.stage is not Stage.DETACHED:
                assert call.serial not in self.effects.answered
        for call in self.calls:
            if call.stage in (Stage.OVER, Stage.DETACHED):
                assert call.serial in self.effects.answered, "ended without a word"
        self.calls = calls

    @invariant()
    def nobody_waits_while_a_child_is_free(self) -> None:
        for name, idle in self.pool.registry.idle.items():
            waiting = self.pool.waiting[name]
            assert not (idle and len(waiting._main)), "a call waits beside a free child"
            for child in idle:
                assert child.call is None and child.state is State.READY
                assert child.worker not in waiting._lanes

    @invariant()
    def the_living_are_known(self) -> None:
        known = self.pool.registry.by_pid
        for child in self.living.values():
            assert known.get(child.fingerprint) is child
            assert child.conn is not None
            if child.call is None and child.state is State.READY:
                slot = self.pool.registry.by_worker[child.worker]
                free = child in self.pool.registry.idle[slot.pool]
                assert free or slot.draining or child.retire

    def teardown(self) -> None:
        for worker in WORKERS:
            self.worker_dies(worker, True)
        self.pool.client_gone([c for c in self.open_calls() if c.client], self.now)
        pool = self.pool
        assert (len(pool.wheel), pool.wheel.next_at()) == (0, None)
        assert not pool.registry.by_worker
        assert not pool.registry.by_pid
        assert not any(pool.registry.idle.values())
        for waiting in pool.waiting.values():
            assert (len(waiting), waiting.bytes, waiting._lanes) == (0, 0, {})


AnyOrder.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestAnyOrder = AnyOrder.TestCase
