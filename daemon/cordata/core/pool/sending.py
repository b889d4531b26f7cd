"""A call goes to a child, and is gone from it again: what the tables say of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from cordata.core.pool.call import AHEAD, OVER, RUNNING, Call
from cordata.core.pool.deadline import Wheel
from cordata.core.pool.effects import Effects
from cordata.core.pool.limits import DEFAULT, Failure, PoolLimits, Rules, pool_of_worker
from cordata.core.pool.message import NIL
from cordata.core.pool.pace import Pace
from cordata.core.pool.poison import Poison
from cordata.core.pool.registry import Child, Registry
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import Session
from cordata.core.pool.state import BUSY, State
from cordata.core.pool.waiting import Waiting

#: So many calls at most lie at a child behind the one in hand, ...
DEPTH = 16
#: ... and all of them together, with that one, are to be done within it. A child that has one call
#: in hand for so long gets no more.
BUDGET_US = 4000.0
#: A child that has one call in hand for so long has the others taken back, ...
PATIENCE_S = 0.01
#: ... and for so long, when another one is free.
SHORT_PATIENCE_S = 0.004


class Sending:
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
        self.registry = Registry(self._pool_of, self._moved)
        knows = self.registry.knows
        self.waiting = {name: Waiting(limits, knows) for name, limits in self.pools.items()}
        self.wheel: Wheel[Call] = Wheel()
        self.poison = Poison(rules.poison_limit, rules.poison_pause_s)
        self.pace = Pace()
        #: When to look for children that are slow, with calls behind; 0.0: nothing lies ahead.
        self._look_at = 0.0
        #: Runs that were sent, to any child. None has the number of another one, so that a word on
        #: what lay at a child is never taken for one on what came over its next connection.
        self._orders = 0
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

    def refuse(self, call: Call, code: str, text: str, **data: object) -> None:
        """The end of a call that did not run, or runs no more."""
        self.end(call)
        self.outcomes[code] += 1
        self.effects.fail(call, Failure(code, text, data))

    def end(self, call: Call) -> None:
        """No table knows the call any more."""
        self._unwatch(call)
        call.stage = OVER
        call.payload = NIL
        call.child = None

    def refused_as_poisoned(self, call: Call, now: float) -> bool:
        """Whether the command is refused for a while; then the call is over."""
        until = self.poison.refused_until(call.command, now)
        if until is None:
            return False
        left_s = until - now
        text = f"command {call.command!r} killed its children: refused for {left_s:.0f} s more"
        self.refuse(call, "poisoned", text, retry_after_s=left_s)
        return True

    def start(self, child: Child, call: Call, now: float, session: Session | None) -> None:
        """Hand it over, or send it ahead; one that cannot be sent is refused. `cost_us` is set."""
        if child.loan is not None and call.cost_us > BUDGET_US:
            self.effects.recall(child)
        self._orders += 1
        child.order = call.order = self._orders
        failure = self.effects.run(child, call, session)
        if failure is not None:
            self.refuse(call, failure.code, failure.text, **failure.data)
            return
        call.child = child
        child.load_us += call.cost_us
        if session is not None:
            session.calls += 1
            call.held = session
            if session.worker != child.worker and not self._is_pinned(session):
                self.sessions.prefer(session, child.worker, now)
        if child.call is not None:
            call.stage = AHEAD
            child.ahead.append(call)
            self.waiting[child.pool].lend(call)
            self.sent_ahead += 1
            look_at = now + (SHORT_PATIENCE_S if self.registry.idle[child.pool] else PATIENCE_S)
            if not self._look_at or look_at < self._look_at:
                self._look_at = look_at
            return
        call.stage = RUNNING
        child.call = call
        child.took_at = now
        self.wait_until(call, call.deadline)
        self.registry.move(child, BUSY, now)
        if child.loan is not None:
            # It may be in a call of its client, of which nothing is known here.
            self._look_at = min(now + PATIENCE_S, self._look_at or inf)
        if call.cost_us < BUDGET_US:
            self.registry.roomy[child.pool][child] = None

    def off(self, child: Child, call: Call) -> None:
        """The child does not have the call any more."""
        held = child.call is not None or child.ahead
        child.load_us = child.load_us - call.cost_us if held else 0.0
        if call.held is not None:
            call.held.calls -= 1
            call.held = None

    def _is_pinned(self, session: Session) -> bool:
        """The first worker becomes the session's own; another one only when that is away."""
        slot = self.registry.by_worker.get(session.worker)
        if slot is not None and slot.conn is not None:
            return True
        return bool(session.worker) and session.affinity != "hint"

    def wait_until(self, call: Call, at: float) -> None:
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

    def has_room(self, child: Child, now: float) -> bool:
        """Whether it works off short calls, and will be there to do so."""
        call = child.call
        if call is None or call.credits or len(child.ahead) >= DEPTH:
            return False
        slot = self.registry.by_worker[child.worker]
        return (
            call.stage is RUNNING
            and child.load_us < BUDGET_US
            and child.state is BUSY
            and slot.child is child
            and not (child.lost or child.retire or child.due or child.stuck)
            and not (slot.draining or self.stopped)
            and (now - child.took_at) * 1e6 < BUDGET_US
        )
