"""Which child gets which call: at a call's arrival, and whenever a child becomes free.

When all children are busy, the next calls in line are sent ahead, so that a child which ends a call
need not wait for the manager's turn: at most DEPTH to a child, and no more than BUDGET_US of work
as commands ran lately. Not sent ahead: streams, large ones, a command that is slow or was never
seen, a call whose session another one is using, or is to be bound to a worker by this call. What
cannot go holds up what stands behind it: the order of the queue is the order of sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from cordata.core.pool.call import Call, Stage
from cordata.core.pool.deadline import Wheel
from cordata.core.pool.effects import Effects
from cordata.core.pool.limits import DEFAULT, Failure, PoolLimits, Rules, pool_of_worker
from cordata.core.pool.message import NIL
from cordata.core.pool.pace import Pace
from cordata.core.pool.poison import Poison
from cordata.core.pool.registry import Child, Registry, State
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import Session
from cordata.core.pool.waiting import Waiting

#: So many calls at most lie at a child behind the one in hand, ...
DEPTH = 4
#: ... and all of them together, with that one, are to be done within it. A child that has one call
#: in hand for so long gets no more.
BUDGET_US = 4000.0
#: Larger ones are not sent ahead: a child in a long call reads nothing.
AHEAD_BYTES = 16_384
#: A child that has one call in hand for so long has the others taken back.
PATIENCE_S = 0.01


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
        self.pace = Pace()
        #: Calls of each session that are at a child.
        self.in_use: dict[str, int] = {}
        #: When to look for children that are slow, with calls behind; 0.0: nothing lies ahead.
        self._look_at = 0.0
        self.stopped = False
        self.retries = 0
        #: Calls that were sent ahead, and those of them that were taken back.
        self.sent_ahead = 0
        self.had_back = 0
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
        pinned, session = "", None
        if call.session:
            session = self.sessions.touch(call.session, now)
            if session is None:
                self.refuse(call, "no_session", f"there is no session {call.session!r}")
                return
            if session.worker:
                slot = self.registry.by_worker.get(session.worker)
                pool = slot.pool if slot is not None else self._pool_of(session.worker)
                pinned = session.worker if pool == call.pool else ""
        strict = pinned and session is not None and session.affinity != "hint"
        child = self.registry.free(call.pool, pinned) if pinned else None
        if child is None and not strict:
            child = self.registry.free(call.pool)
        if child is not None:
            self._start(child, call, now, session)
        elif strict and session is not None and session.affinity == "strict_fail":
            self.refuse(call, "preferred_busy", f"worker {pinned} is not free")
        elif self.waiting[call.pool].add(call, worker=pinned if strict else "", back=back):
            self._wait_until(call, call.queue_deadline)
            self._advance(call.pool, pinned if strict else "", now)
        else:
            self.effects.note("saturated", call, waiting=len(self.waiting[call.pool]))
            self.refuse(call, "saturated", "too many calls wait", retry_after_s=1.0)

    def hand_on(self, child: Child, now: float) -> None:
        """A child may be free: give it the oldest call that it may run, until one does run."""
        waiting = self.waiting[child.pool]
        idle = self.registry.idle[child.pool]
        while waiting.count and child in idle:
            call = waiting.take(child.worker, now)
            if call is None:
                return
            self._start_if_it_may(child, call, now)
        self.fill(child, now)

    def fill(self, child: Child, now: float) -> None:
        """Send a busy child what it may have ahead: its share of those who wait, one at least."""
        waiting = self.waiting[child.pool]
        if waiting.count:
            share = 1 + waiting.count // max(1, len(self.registry.roomy.get(child.pool, ())))
            while (
                len(child.ahead) < share
                and self._has_room(child, now)
                and self._send_ahead(child, now)
            ):
                pass

    def _advance(self, pool: str, worker: str, now: float) -> None:
        """A call began to wait: it, or who is before it, may go ahead. `worker`: there only."""
        if worker:
            slot = self.registry.by_worker.get(worker)
            if slot is not None and slot.child is not None and self._has_room(slot.child, now):
                self._send_ahead(slot.child, now)
            return
        roomy = self.registry.roomy.get(pool)
        while roomy:
            child = next(iter(roomy))
            del roomy[child]
            if self._has_room(child, now):
                roomy[child] = None  # at the end: they take turns
                self._send_ahead(child, now)
                return

    def _has_room(self, child: Child, now: float) -> bool:
        """Whether it works off short calls, and will be there to do so."""
        call = child.call
        if call is None or call.credits or len(child.ahead) >= DEPTH:
            return False
        slot = self.registry.by_worker[child.worker]
        return (
            call.stage is Stage.RUNNING
            and child.load_us < BUDGET_US
            and child.state is State.BUSY
            and slot.child is child
            and not (child.lost or child.retire or child.due or slot.draining or self.stopped)
            and (now - child.took_at) * 1e6 < BUDGET_US
        )

    def _send_ahead(self, child: Child, now: float) -> bool:
        """The next in line, if it may go; False: it waits here, and all behind it."""
        waiting, session = self.waiting[child.pool], None
        call = waiting.head(child.worker)
        if call is None or call.credits or call.size_bytes > AHEAD_BYTES:
            return False
        if child.load_us + self.pace.expected_us(call.command) > BUDGET_US:
            return False
        if call.session:
            session = self.sessions.peek(call.session, now)
            if session is None or call.session in self.in_use:
                return False
            if session.affinity != "hint" and session.worker != child.worker:
                return False
        waiting.take(child.worker, now)
        if not self.refused_as_poisoned(call, now):
            if session is not None:
                self.sessions.use(session, now)
            self._start(child, call, now, session)
        return True

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
        session = None
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
        self._start(child, call, now, session)

    def refused_as_poisoned(self, call: Call, now: float) -> bool:
        """Whether the command is refused for a while; then the call is over."""
        until = self.poison.refused_until(call.command, now)
        if until is None:
            return False
        text = f"command {call.command!r} killed its children and is refused for a while"
        self.refuse(call, "poisoned", text, retry_after_s=until - now)
        return True

    def _start(self, child: Child, call: Call, now: float, session: Session | None) -> None:
        """Hand it over, or send it ahead; one that cannot be sent is refused."""
        child.order += 1
        call.order = child.order
        failure = self.effects.run(child, call)
        if failure is not None:
            self.refuse(call, failure.code, failure.text, **failure.data)
            return
        call.child = child
        call.cost_us = self.pace.expected_us(call.command)
        child.load_us += call.cost_us
        if session is not None:
            self.in_use[session.id] = self.in_use.get(session.id, 0) + 1
            if session.worker != child.worker:
                self._pin(session, child, now)
        if child.call is not None:
            call.stage = Stage.AHEAD
            child.ahead.append(call)
            self.waiting[child.pool].lend(call)
            self.sent_ahead += 1
            self._look_at = self._look_at or now + PATIENCE_S
            return
        call.stage = Stage.RUNNING
        child.call = call
        child.took_at = now
        self._wait_until(call, call.deadline)
        self.registry.move(child, State.BUSY, now)
        if call.cost_us < BUDGET_US:
            self.registry.roomy.setdefault(child.pool, {})[child] = None

    def off(self, child: Child, call: Call) -> None:
        """The child does not have the call any more."""
        held = child.call is not None or child.ahead
        child.load_us = child.load_us - call.cost_us if held else 0.0
        if call.session:
            left = self.in_use[call.session] - 1
            if left:
                self.in_use[call.session] = left
            else:
                del self.in_use[call.session]

    def _pin(self, session: Session, child: Child, now: float) -> None:
        """The first worker becomes the session's own; another one only when that is away."""
        if session.worker:
            slot = self.registry.by_worker.get(session.worker)
            if session.affinity != "hint" or (slot is not None and slot.conn is not None):
                return
        self.sessions.prefer(session, child.worker, now)

    def _wait_until(self, call: Call, at: float) -> None:
        """Look at the call again at this time; it has one entry only."""
        call.due = self.wheel.move(call, call.due, at)

    def _unwatch(self, call: Call) -> None:
        if call.due >= 0:
            self.wheel.remove(call.due, call)
            call.due = -1

    def _pool_of(self, worker: str) -> str:
        return pool_of_worker(self.in_order, worker)

    def _moved(self, child: Child, before: State, to: State) -> None:
        self.effects.moved(child, before, to)
