"""Which child gets which call: at a call's arrival, and whenever a child becomes free.

When all children are busy, the next calls in line are sent ahead, so that a child which ends a call
need not wait for the manager's turn: at most DEPTH to a child, and no more than BUDGET_US of work
as commands ran lately. Not sent ahead: streams, large ones, a command that is slow or was never
seen, a call whose session another one is using, or is to be bound to a worker by this call. What
cannot go holds up what stands behind it: the order of the queue is the order of sending.

Very short calls share one child though others are free, as long as it is done with all of them
within AWAKE_US: with eight callers of an echo, two processes that take turns at the caches and the
cores cost half of what five do. For the same reason such a call goes to the child that was at work
last, and not to the one that its session prefers, if both have the session's data.
"""

from __future__ import annotations

from collections import OrderedDict

from cordata.core.pool.call import WAITING, Call
from cordata.core.pool.copies import has_copy
from cordata.core.pool.reason import why_nobody
from cordata.core.pool.registry import Child
from cordata.core.pool.sending import BUDGET_US, Sending
from cordata.core.pool.shelf import Session

#: Larger ones are not sent ahead: a child in a long call reads nothing.
AHEAD_BYTES = 16_384
#: To wake a process takes about so much of its own time, and of those whose caches it takes.
AWAKE_US = 150.0
#: A session that is sent along without a thought.
LIGHT_BYTES = 4096


class Placing(Sending):
    """See the module."""

    def place(self, call: Call, now: float, *, back: bool = False) -> None:
        """Run it at once where a child is free, else let it wait; or refuse it."""
        pinned, session = "", None
        call.cost_us = self.pace.expected_us(call.command)
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
        # During a rolling upgrade: the command if not all workers know it, else "".
        only = call.command if self.registry.partly_known(call.pool, call.command) else ""
        if strict and only and not self.registry.knows(pinned, only):
            self.refuse(call, "preferred_busy", f"worker {pinned} does not know {only!r}")
            return
        if call.wanted is not None and self._goes_to(call.wanted, call, session, now):
            return
        if not (only or call.nested) and self._goes_ahead(call, pinned, session, now):
            return
        child = None if strict else self.registry.free(call.pool, command=only)
        if pinned and (child is None or not _as_good(child, call, session)):
            child = self.registry.free(call.pool, pinned, only) or child
        if child is not None:
            self.start(child, call, now, session)
        elif call.nested:
            # It might wait for the child that its own caller holds.
            text = f"all processes of pool {call.pool} are busy, one of them with the command that"
            more = f" calls {call.command!r}: give that a pool of its own ([pool.NAME] commands)"
            self.refuse(call, "saturated", text + more, retry_after_s=1.0)
        elif strict and session is not None and session.affinity == "strict_fail":
            why = why_nobody(self.registry, self.pools[call.pool], pinned)
            self.refuse(call, "preferred_busy", why or f"worker {pinned} is not free")
        elif self.waiting[call.pool].add(
            call, worker=pinned if strict else "", command=only, back=back
        ):
            self.wait_until(call, call.queue_deadline)
            self._advance(call.pool, pinned if strict else "", now)
        else:
            self.effects.note("saturated", call, waiting=len(self.waiting[call.pool]))
            self.refuse(call, "saturated", "too many calls wait", retry_after_s=1.0)

    def _goes_to(self, child: Child, call: Call, session: Session | None, now: float) -> bool:
        """Give it to the borrowed child of its client that has least to do; False: not possible."""
        call.wanted = None
        if child not in self.registry.idle[call.pool] or self.waiting[call.pool].count:
            return False
        if not self.registry.knows(child.worker, call.command):
            return False
        if session is not None and session.affinity != "hint":
            return False
        self.start(child, call, now, session)
        return True

    def _goes_ahead(self, call: Call, pinned: str, session: Session | None, now: float) -> bool:
        """Send it to a busy child at once, since nobody waits before it; False: it may not go."""
        roomy, waiting = self.registry.roomy[call.pool], self.waiting[call.pool]
        if not roomy or waiting.count or call.credits or call.size_bytes > AHEAD_BYTES:
            return False
        if session is not None and (session.affinity != "hint" or session.calls):
            return False
        if self.registry.idle[call.pool]:
            limit_us, child = AWAKE_US, self._awake(roomy, pinned, session, now)
        else:
            limit_us, child = BUDGET_US, self._in_turn(roomy, now)
        if child is None or child.load_us + call.cost_us > limit_us:
            return False
        if not waiting.has_room(call):
            return False
        self.wait_until(call, call.queue_deadline)
        self.start(child, call, now, session)
        return True

    def _awake(
        self,
        roomy: OrderedDict[Child, None],
        pinned: str,
        session: Session | None,
        now: float,
    ) -> Child | None:
        """The busy child that was woken last, if it has the session's data; else the one that the
        session prefers. So short a call has no use for what else its own one may have at hand, so
        that a session which is soon sent goes to the former if the latter sleeps.
        """
        child = next(reversed(roomy))
        if pinned and session is not None and not has_copy(child, session):
            slot = self.registry.by_worker.get(pinned)
            own = slot.child if slot is not None else None
            if own is not None and own in roomy and self.has_room(own, now):
                return own
            if session.bytes > LIGHT_BYTES:
                return None
        return child if self.has_room(child, now) else None

    def _in_turn(self, roomy: OrderedDict[Child, None], now: float) -> Child | None:
        """The next one that may get a call; the others will be back when they end one."""
        while roomy:
            child = next(iter(roomy))
            if self.has_room(child, now):
                roomy.move_to_end(child)
                return child
            del roomy[child]
        return None

    def hand_on(self, child: Child, now: float) -> None:
        """A child may be free: give it the oldest call that it may run, until one does run."""
        waiting = self.waiting[child.pool]
        idle = self.registry.idle[child.pool]
        while waiting.count and child in idle:
            call = waiting.take(child.worker, now)
            if call is None:
                return
            self._start_if_it_may(child, call, now)
        if waiting.count:
            self.fill(child, now)

    def fill(self, child: Child, now: float) -> None:
        """Send a busy child what it may have ahead: its share of those who wait, one at least."""
        waiting = self.waiting[child.pool]
        share = 1 + waiting.count // max(1, len(self.registry.roomy[child.pool]))
        while (
            len(child.ahead) < share and self.has_room(child, now) and self._send_ahead(child, now)
        ):
            pass

    def _advance(self, pool: str, worker: str, now: float) -> None:
        """A call began to wait: it, or who is before it, may go ahead. `worker`: there only."""
        if worker:
            slot = self.registry.by_worker.get(worker)
            if slot is not None and slot.child is not None and self.has_room(slot.child, now):
                self._send_ahead(slot.child, now)
            return
        child = self._in_turn(self.registry.roomy[pool], now)
        if child is not None:
            self._send_ahead(child, now)

    def _send_ahead(self, child: Child, now: float) -> bool:
        """The next in line, if it may go; False: it waits here, and all behind it."""
        waiting, session = self.waiting[child.pool], None
        call = waiting.head(child.worker)
        if call is None or call.credits or call.size_bytes > AHEAD_BYTES:
            return False
        if not self.registry.knows(child.worker, call.command):
            return False
        call.cost_us = self.pace.expected_us(call.command)
        if child.load_us + call.cost_us > BUDGET_US:
            return False
        if call.session:
            session = self.sessions.peek(call.session, now)
            if session is None or session.calls:
                return False
            if session.affinity != "hint" and session.worker != child.worker:
                return False
        waiting.take(child.worker, now)
        if not self.refused_as_poisoned(call, now):
            if session is not None:
                self.sessions.use(session, now)
            self.start(child, call, now, session)
        return True

    def _start_if_it_may(self, child: Child, call: Call, now: float) -> None:
        """Run a call that waited, unless what it needs has gone meanwhile."""
        if self.refused_as_poisoned(call, now):
            return
        if not self.registry.knows(child.worker, call.command):
            # It began to wait when all workers knew the command.
            call.stage = WAITING
            self.place(call, now, back=True)
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
                    call.stage = WAITING
                    self.place(call, now, back=True)
                    return
        call.cost_us = self.pace.expected_us(call.command)
        self.start(child, call, now, session)


def _as_good(child: Child, call: Call, session: Session | None) -> bool:
    """Whether the child that was at work last is as good for the call as the session's own one."""
    return call.cost_us <= AWAKE_US and session is not None and has_copy(child, session)
