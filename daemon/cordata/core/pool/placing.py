"""Which child gets which call: at a call's arrival, and whenever a child becomes free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from cordata.core.pool.call import Call, Stage
from cordata.core.pool.deadline import Wheel
from cordata.core.pool.limits import DEFAULT, Failure, PoolLimits, Rules, pool_of_worker
from cordata.core.pool.message import NIL
from cordata.core.pool.poison import Poison
from cordata.core.pool.registry import Child, Registry, State
from cordata.core.pool.session import SessionTable
from cordata.core.pool.waiting import Waiting


class Effects(Protocol):
    """What the dispatcher wants done: by links in the manager, by a recorder in tests."""

    def run(self, child: Child, call: Call) -> Failure | None:
        """Hand the call to the child; a Failure: it cannot be sent, and the child stays free."""

    def fail(self, call: Call, failure: Failure) -> None:
        """Answer the caller."""

    def cancel(self, child: Child, call: Call) -> None:
        """Tell the child that nobody wants the result."""

    def kill(self, child: Child, call: Call, why: str) -> None:
        """Have the worker kill the child, if it still has this call in hand."""

    def retire(self, child: Child) -> None:
        """Have the worker let the child go; its hands are empty."""

    def moved(self, child: Child, before: State, to: State) -> None:
        """A step of a child's state."""

    def note(self, event: str, call: Call, **fields: object) -> None:
        """Something for the journal: "saturated", "poisoned", "killed", "crashed", "retried"."""


class Placing:
    """Calls, children and the queues between them."""

    def __init__(
        self,
        pools: Mapping[str, PoolLimits],
        rules: Rules,
        sessions: SessionTable,
        effects: Effects,
    ) -> None:
        self.pools = {DEFAULT: PoolLimits(), **pools}
        self.in_order = list(self.pools.values())
        self.rules = rules
        self.sessions = sessions
        self.effects = effects
        self.waiting = {name: Waiting(limits) for name, limits in self.pools.items()}
        self.registry = Registry(self._pool_of, self._moved)
        self.wheel: Wheel[Call] = Wheel()
        self.poison = Poison(rules.poison_limit, rules.poison_pause_s)
        self.stopped = False
        self.retries = 0
        #: Answers by outcome: "ok", "failed" by the command, or the code of our own.
        self.outcomes: Counter[str] = Counter()
        #: Deaths in a call, by command.
        self.crashes: Counter[str] = Counter()

    def reload(self, pools: Mapping[str, PoolLimits], rules: Rules) -> None:
        """Other limits. Which pools there are, their workers and commands need a restart."""
        for name, former in self.pools.items():
            wanted = pools.get(name, former)
            kept = replace(
                wanted, workers=former.workers, commands=former.commands, fair=former.fair
            )
            self.pools[name] = kept
            self.waiting[name].limit(kept)
        self.in_order = list(self.pools.values())
        self.rules = rules
        self.poison.limit, self.poison.pause_s = rules.poison_limit, rules.poison_pause_s

    def place(self, call: Call, now: float, *, back: bool = False) -> None:
        """Run it at once where a child is free, else let it wait; or refuse it."""
        pinned, strict, fail = "", False, False
        if call.session:
            session = self.sessions.touch(call.session, now)
            if session is None:
                self.refuse(call, "no_session", f"there is no session {call.session!r}")
                return
            if session.worker and self._pool_of(session.worker) == call.pool:
                pinned, strict = session.worker, session.affinity != "hint"
                fail = session.affinity == "strict_fail"
        child = self.registry.free(call.pool, pinned) if pinned else None
        if child is None and not strict:
            child = self.registry.free(call.pool)
        if child is not None:
            self._start(child, call, now)
        elif fail:
            self.refuse(call, "preferred_busy", f"worker {pinned} is not free")
        elif self.waiting[call.pool].add(call, worker=pinned if strict else "", back=back):
            self._wait_until(call, call.queue_deadline)
        else:
            self.effects.note("saturated", call, waiting=len(self.waiting[call.pool]))
            self.refuse(call, "saturated", "too many calls wait", retry_after_s=1.0)

    def hand_on(self, child: Child, now: float) -> None:
        """A child may be free: give it the oldest call that it may run, until one does run."""
        slot = self.registry.by_worker[child.worker]
        waiting = self.waiting[slot.pool]
        idle = self.registry.idle[slot.pool]
        while waiting.count and child in idle:
            call = waiting.take(child.worker, now)
            if call is None:
                return
            self._start_if_it_may(child, call, now)

    def refuse(self, call: Call, code: str, text: str, **data: object) -> None:
        """The end of a call that did not run, or runs no more."""
        self.end(call)
        self.outcomes[code] += 1
        self.effects.fail(call, Failure(code, text, data))

    def end(self, call: Call) -> None:
        """No table knows the call any more."""
        self._unwatch(call)
        call.stage = Stage.OVER
        call.payload = NIL
        call.child = None

    def _start_if_it_may(self, child: Child, call: Call, now: float) -> None:
        """Run a call that waited, unless what it needs has gone meanwhile."""
        if self.refused_as_poisoned(call, now):
            return
        if call.session:
            session = self.sessions.touch(call.session, now)
            if session is None:
                self.refuse(call, "no_session", f"session {call.session!r} is gone")
                return
            elsewhere = session.worker not in ("", child.worker)
            if session.affinity != "hint" and elsewhere:
                # It was pinned by a call before this one: wait, or fail, at that worker.
                if self._pool_of(session.worker) == call.pool:
                    call.stage = Stage.WAITING
                    self.place(call, now, back=True)
                    return
        self._start(child, call, now)

    def refused_as_poisoned(self, call: Call, now: float) -> bool:
        """Whether the command is refused for a while; then the call is over."""
        until = self.poison.refused_until(call.command, now)
        if until is None:
            return False
        text = f"command {call.command!r} killed its children and is refused for a while"
        self.refuse(call, "poisoned", text, retry_after_s=until - now)
        return True

    def _start(self, child: Child, call: Call, now: float) -> None:
        """Hand it over; one that cannot be sent is refused, and the child is free as before."""
        failure = self.effects.run(child, call)
        if failure is not None:
            self.refuse(call, failure.code, failure.text, **failure.data)
            return
        call.stage = Stage.RUNNING
        call.child = child
        child.call = call
        self._wait_until(call, call.deadline)
        self.registry.move(child, State.BUSY, now)
        if call.session:
            self._pin(call, child, now)

    def _pin(self, call: Call, child: Child, now: float) -> None:
        """The first worker becomes the session's own; another one only when that is away."""
        session = self.sessions.peek(call.session, now)
        if session is None or session.worker == child.worker:
            return
        if session.worker:
            slot = self.registry.by_worker.get(session.worker)
            if session.affinity != "hint" or (slot is not None and slot.conn is not None):
                return
        self.sessions.prefer(session, child.worker, now)

    def _wait_until(self, call: Call, at: float) -> None:
        """Look at the call again at this time; it has one entry only."""
        self._unwatch(call)
        call.due = self.wheel.add(call, at)

    def _unwatch(self, call: Call) -> None:
        if call.due >= 0:
            self.wheel.remove(call.due, call)
            call.due = -1

    def _pool_of(self, worker: str) -> str:
        return pool_of_worker(self.in_order, worker)

    def _moved(self, child: Child, before: State, to: State) -> None:
        self.effects.moved(child, before, to)
