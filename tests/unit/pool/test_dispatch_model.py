"""The dispatcher under any order of events: its rules hold after each, at the end all is empty.

The recorder stands for the manager's links, and checks each order as it is given.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, NamedTuple

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
from cordata.core.pool.copies import Sent, send
from cordata.core.pool.dispatch import Dispatcher
from cordata.core.pool.limits import Failure, PoolLimits, Rules
from cordata.core.pool.message import CallFrame, Delta
from cordata.core.pool.order import ChildEvent
from cordata.core.pool.placing import AWAKE_US
from cordata.core.pool.registry import Child
from cordata.core.pool.sending import DEPTH
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import Session, SessionLimits
from cordata.core.pool.state import State

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
#: How long runs took: children send nothing, or the commands are quick, or slow.
run_us = st.sampled_from((0, 20, 20, 900, 90_000))


class Made(NamedTuple):
    """What lies in a child's socket: a call, and what its frame says of the session."""

    call: Call
    order: int
    sent: Sent | None
    data: dict[str, Raw]


class Process:
    """A child as it is: it begins what lies there in order, and answers that before the next."""

    def __init__(self) -> None:
        self.inbox: deque[Made] = deque()
        self.in_hand: Made | None = None
        #: What it has said, and the manager has not read.
        self.said: deque[tuple[str, int, Any]] = deque()
        self.begun, self.serial, self.mark = 0, 0, 0
        self.skip: set[int] = set()
        self.kept: dict[str, dict[str, Raw]] = {}

    def forget(self) -> None:
        """A connection ended."""
        self.inbox.clear()
        self.said.clear()
        self.kept.clear()
        self.in_hand, self.begun, self.mark = None, 0, 0


class Recorder:
    """Effects that check what may not happen."""

    def __init__(self) -> None:
        self.answered: dict[int, str] = {}
        self.begun: dict[int, int] = {}
        self.unsendable = False
        self.now = 0.0
        self.processes: dict[Child, Process] = {}
        #: What workers found when they took calls back, and the manager has not read.
        self.found: list[tuple[Child, int, int]] = []
        self.pool: Dispatcher | None = None
        self.ahead = 0

    def process(self, child: Child) -> Process:
        return self.processes.setdefault(child, Process())

    def run(self, child: Child, call: Call, session: Session | None) -> Failure | None:
        assert self.pool is not None
        assert child.conn is not None and not child.lost, "handed to a dead child"
        assert call.serial not in self.answered, "started after it was over"
        assert self.now < call.deadline + 0.011, "started after its deadline"
        waiting = self.pool.waiting[call.pool]
        first = waiting._main.peek_key()
        assert session is (
            self.pool.sessions.peek(call.session, self.now) if call.session else None
        )
        if session is None or session.affinity == "hint":
            assert call.pool != "default" or first is None or call.key <= first, "out of turn"
        if child.call is not None:
            self.ahead += 1
            assert child.state is State.BUSY and not child.retire, "sent ahead to one who leaves"
            assert len(child.ahead) < DEPTH and not call.credits
            assert session is None or not session.calls, "ahead, while its session is in use"
            if self.pool.registry.idle.get(child.pool):
                held_us = sum(each.cost_us for each in child.held())
                assert held_us + self.pool.pace.expected_us(call.command) <= AWAKE_US
        if self.unsendable:
            return Failure("frame_too_large", "too large")
        began = self.begun.get(call.serial, 0)
        assert began == 0 or call.idempotent, "run twice without being declared so"
        sent, data = None, {}
        if session is not None:
            sent, data = send(child, session), dict(session.data)
        self.process(child).inbox.append(Made(call, call.order, sent, data))
        return None

    def begin(self, process: Process) -> None:
        """The child looks at what lies there next: it begins that, or gives it back."""
        made = process.inbox.popleft()
        call, sent = made.call, made.sent
        if sent is not None:
            copy, forget = sent
            for id in forget:
                process.kept.pop(id, None)
            if copy.full is not None:
                process.kept[call.session] = dict(copy.full)
        if made.order <= process.mark or call.serial in process.skip:
            process.said.append(("back", made.order, None))
            return
        assert call.serial not in self.answered, "begun after it was over"
        began = self.begun[call.serial] = self.begun.get(call.serial, 0) + 1
        assert began == 1 or call.idempotent, "begun twice without being declared so"
        assert began <= POOLS[call.pool].retries + 1, "run too often"
        if sent is not None:
            assert process.kept[call.session] == made.data, "the child has an old copy"
        process.in_hand, process.begun, process.serial = made, made.order, call.serial

    def fail(self, call: Call, failure: Failure) -> None:
        self.over(call, failure.code)

    def over(self, call: Call, how: str) -> None:
        assert call.serial not in self.answered, f"answered twice: {how}"
        assert call.client is not None, "answered though it is gone"
        self.answered[call.serial] = how

    def cancel(self, child: Child, call: Call) -> None:
        assert child.call is call
        self.process(child).skip.add(call.serial)

    def skip(self, child: Child, call: Call) -> None:
        assert call in child.ahead
        self.process(child).skip.add(call.serial)

    def take_back(self, child: Child) -> None:
        process = self.process(child)
        process.mark = child.order
        self.found.append((child, process.begun, child.order))
        if process.in_hand is None and process.inbox and process.inbox[0].order % 2:
            # It was about to begin the next one, and saw the mark when the worker saw that.
            self.found[-1] = (child, process.inbox[0].order, child.order)

    def kill(self, child: Child, call: Call, why: str) -> None:
        assert child.call is call and call.stage is Stage.DETACHED

    def recall(self, child: Child) -> None:
        assert child.loan is not None

    def retire(self, child: Child) -> None:
        assert child.call is None and child.retire

    def hang_up(self, child: Child) -> None:
        pass

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
        self.pool = Dispatcher(
            POOLS, Rules(poison_limit=2, poison_pause_s=5), self.sessions, self.effects
        )
        self.effects.pool = self.pool
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

    @initialize(us=run_us)
    def all_is_well(self, us: int) -> None:
        for command in COMMANDS:
            self.pool.pace.ran(command, us)
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
    @rule(which=index, ok=st.booleans(), value=st.integers(0, 9), us=run_us)
    def child_answers(self, which: int, ok: bool, value: int, us: int) -> None:
        """It ends what it has in hand; the manager has not read it yet."""
        process = self.effects.process(self.pick(which))
        while process.in_hand is None and process.inbox:
            self.effects.begin(process)
        made, process.in_hand = process.in_hand, None
        if made is None:
            return
        delta, id = None, made.call.session
        if made.sent is not None and value < 5:
            delta = Delta(v=made.sent[0].v, set={"k": Raw(bytes([value]))})
            if ok:
                process.kept[id] = {**process.kept[id], "k": Raw(bytes([value]))}
        process.said.append(("ok" if ok else "failed", us, delta))

    @precondition(lambda self: self.living)
    @rule(which=index)
    def child_begins(self, which: int) -> None:
        process = self.effects.process(self.pick(which))
        if process.in_hand is None and process.inbox:
            self.effects.begin(process)

    @precondition(lambda self: self.living)
    @rule(which=index, count=st.sampled_from((1, 9)))
    def manager_hears(self, which: int, count: int) -> None:
        self.hear(self.pick(which), count)

    def hear(self, child: Child, count: int = 99) -> None:
        """Answers and calls that were given back, as the manager reads them."""
        process = self.effects.process(child)
        while process.said and count:
            what, number, delta = process.said.popleft()
            count -= 1
            if what == "back":
                self.pool.given_back(child, number, self.now)
                continue
            call = child.call
            assert call is not None
            waited = call.stage is Stage.RUNNING
            answered = self.pool.answered(
                child, self.now, ok=what == "ok", delta=delta, run_us=number
            )
            assert (answered is call) == waited
            if answered:
                self.effects.over(call, "answer")

    def hear_out(self, child: Child) -> None:
        child.lost = True
        self.hear(child)

    @rule(count=st.integers(1, 3))
    def worker_takes_back(self, count: int) -> None:
        for _ in range(min(count, len(self.effects.found))):
            child, begun, upto = self.effects.found.pop(0)
            if child.pid in self.living:
                self.pool.taken_back(child, begun, upto, self.now)

    @precondition(lambda self: self.living)
    @rule(which=index, eof_first=st.booleans(), why=st.sampled_from(("", "hang")))
    def child_dies(self, which: int, eof_first: bool, why: str) -> None:
        child = self.pick(which)
        del self.living[child.pid]
        conn, serial = child.conn, self.effects.process(child).serial
        self.hear_out(child)
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
        self.hear_out(child)
        self.pool.child_lost(child, child.conn, self.now)

    @precondition(lambda self: self.living)
    @rule(which=index, cut=st.booleans(), steps=st.integers(0, 3))
    def child_comes_back(self, which: int, cut: bool, steps: int) -> None:
        child = self.pick(which)
        if child.state not in (State.READY, State.BUSY):
            return
        if not cut:
            self.hear_out(child)
        self.pool.child_lost(child, child.conn, self.now, cut=cut)
        process = self.effects.process(child)
        for _ in range(steps if cut else 0):  # it reads what is there before it sees the end
            if process.in_hand is None and process.inbox:
                self.effects.begin(process)
            process.in_hand = None
        process.forget()
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
            self.hear_out(child)
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

    @rule(
        session=st.sampled_from(SESSIONS),
        idempotent=st.booleans(),
        value=st.integers(0, 9),
        us=run_us,
    )
    def calls_come_and_go(self, session: str, idempotent: bool, value: int, us: int) -> None:
        """The daily life between the accidents."""
        for command in ("echo", "rare_one", "echo"):
            self.call_arrives(command, session, idempotent, 0, None, value % 3, 2)
        for which in range(value):
            if self.living:
                self.child_answers(which, which % 3 > 0, value, us)
                if which % 2:
                    self.manager_hears(which, 9)

    @rule(which=index, idempotent=st.booleans(), told=st.booleans(), then=st.integers(0, 3))
    def a_call_takes_long(self, which: int, idempotent: bool, told: bool, then: int) -> None:
        """What lies behind it is had back, and the child meets the frames, or is cut off."""
        self.call_arrives("echo", "", idempotent, 0, None, which % 3, 3)
        self.call_arrives("echo", "", idempotent, 0, None, which % 3, 3)
        if not self.living:
            return
        self.child_begins(which)
        if told:
            self.time_passes(0.02)
            self.worker_takes_back(3)
        if then == 3:
            self.child_comes_back(which, True, 2)
        for _ in range(then % 3):
            self.child_answers(which, True, 9, 20)
            self.child_begins(which)
            self.manager_hears(which, 9)

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
        children = self.pool.registry.by_pid.values()
        held = [call for child in children for call in child.held()]
        assert len(held) == len(set(held))
        assert set(held) == {call for call in calls if call.stage is not Stage.WAITING}
        lent = sum(queue.ahead for queue in self.pool.waiting.values())
        assert lent == sum(len(child.ahead) for child in children)
        assert all(c.call or not c.ahead for c in children)
        used = Counter(call.held for call in held if call.held is not None)
        assert all(session.calls == count for session, count in used.items())
        living = self.pool.sessions._sessions.values()
        assert all(session.calls == 0 for session in living if session not in used)
        assert all(call.held is None for call in calls if call not in held)
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
        assert not any(session.calls for session in pool.sessions._sessions.values())
        assert not pool.registry.by_worker
        assert not pool.registry.by_pid
        assert not any(pool.registry.idle.values())
        for waiting in pool.waiting.values():
            assert (len(waiting), waiting.bytes, waiting._lanes) == (0, 0, {})
            assert (waiting.ahead, waiting.ahead_bytes) == (0, 0)
        assert not any(pool.registry.roomy.values())


AnyOrder.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestAnyOrder = AnyOrder.TestCase
