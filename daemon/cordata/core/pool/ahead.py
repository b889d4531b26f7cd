"""Calls that lie at a child behind the one in hand: their turn, and how they are taken back.

A child begins its calls in the order they were sent, and answers each before it begins the next. So
when its connection has ended, and all that it said was read, none but the first can have begun: the
others go back to their place in line, at no cost.

A child that has one call in hand for long is looked at (PATIENCE_S; sooner where others are free):
its worker marks, on the page that both share, how far the child may go, and says how far it had
come. What it had not begun stands in line again, at the place it had, and goes to whoever is free;
the child meets the frames later, and gives each of them back unrun. A child on loan is looked at
with one call, too, since it may be in a long one of its client: then it is stuck, and gets nothing
until it is heard of again. Of two words on one call the
second finds nothing. So a call sent ahead begins after all that were sent to that child before, and
may begin later than a younger one elsewhere, but only by BUDGET_US of short calls, or by PATIENCE_S
and a moment behind a long one.
"""

from __future__ import annotations

from cordata.core.pool.call import AHEAD, DETACHED, RUNNING, WAITING, Call
from cordata.core.pool.placing import Placing
from cordata.core.pool.registry import Child
from cordata.core.pool.sending import PATIENCE_S, SHORT_PATIENCE_S
from cordata.core.pool.state import BUSY, READY, TERMINATING, UNHEALTHY

#: A call ahead whose time has passed is answered after this, if its child has not given it back.
SOON_S = 0.05
#: A worker that has not answered is asked again after this.
ASK_AGAIN_S = 0.5


class Ahead(Placing):
    """See the module."""

    def next_in_hand(self, child: Child, now: float) -> bool:
        """The child, which ended a call, begins what lies ahead; False: nothing does."""
        if not child.ahead:
            return False
        call = child.ahead.popleft()
        self.waiting[child.pool].lend(call, -1)
        child.call, child.took_at, child.killed = call, now, False
        if child.state is UNHEALTHY:
            self.registry.move(child, READY, now)
            self.registry.move(child, BUSY, now)
        if call.stage is AHEAD:
            call.stage = RUNNING
            if now >= call.deadline:  # then it was told to give it back
                self.wait_until(call, now + SOON_S)
            elif call.due < 0 or call.queue_deadline < call.deadline:
                self.wait_until(call, call.deadline)
        else:
            self.effects.cancel(child, call)
        self.registry.roomy[child.pool][child] = None
        if self.waiting[child.pool].count:
            self.fill(child, now)
        return True

    def given_back(self, child: Child, order: int, now: float) -> None:
        """The child will not run the call that was sent to it as number `order`."""
        self._take(child, [call for call in child.held() if call.order == order], now)

    def taken_back(self, child: Child, begun: int, upto: int, now: float) -> None:
        """Its worker: of the calls up to number `upto`, those behind `begun` will not begin."""
        calls = [call for call in child.held() if begun < call.order <= upto]
        if calls and calls[0] is child.call and child.loan is not None and not child.lost:
            child.stuck = True
            self.effects.recall(child)
        self._take(child, calls, now)

    def recall(self, child: Child, now: float) -> None:
        """The child has ended, and answered all but the one in hand."""
        self._take(child, list(child.ahead), now)

    def heard(self, child: Child, now: float) -> None:
        """A child that was stuck is not any more."""
        child.stuck = False
        self.registry.index(child)
        self.hand_on(child, now)

    def look_at(self) -> float | None:
        """When to `look`."""
        return self._look_at or None

    def look(self, now: float) -> None:
        """Have back what lies behind long calls."""
        self._look_at = 0.0
        for child in self.registry.by_pid.values():
            if child.ahead or (child.loan is not None and child.call is not None):
                idle = self.registry.idle[child.pool]
                patience_s = SHORT_PATIENCE_S if idle else PATIENCE_S
                look_at = now + patience_s
                self._look_at = min(look_at, self._look_at or look_at)
                order, at = child.asked
                if now - child.took_at >= patience_s and (
                    order != child.order or now - at >= ASK_AGAIN_S
                ):
                    child.asked = (child.order, now)
                    self.effects.take_back(child)

    def _take(self, child: Child, calls: list[Call], now: float) -> None:
        if not calls:
            return
        in_hand = child.call
        for call in calls:
            if call is in_hand:
                child.call = None
            else:
                child.ahead.remove(call)
                self.waiting[child.pool].lend(call, -1)
            self.off(child, call)
            self.had_back += 1
        for call in calls:
            self._stand_again(call, now)
        if in_hand is not None and child.call is None and not self.next_in_hand(child, now):
            self.released(child, now)

    def _stand_again(self, call: Call, now: float) -> None:
        """In line, as if it had never left, unless it has ended meanwhile."""
        call.child = None
        if call.stage is DETACHED:
            self.end(call)
        elif now >= call.queue_deadline:
            self.waited_too_long(call, now)
        elif self.stopped:
            self.refuse(call, "not_run", "the pool stops")
        elif not self.refused_as_poisoned(call, now):
            call.stage = WAITING
            self.place(call, now, back=True)

    def waited_too_long(self, call: Call, now: float, why: str = "") -> None:
        """Its deadline, or that of its wait alone, has passed; `why`: but that all are busy."""
        more = f": {why}" if why else ""
        if now >= call.deadline:
            text = f"the deadline passed in the queue{more}"
            self.refuse(call, "deadline", text, ran=call.attempts > 0)
        else:
            self.refuse(call, "queue_timeout", f"no child was free in time{more}")

    def released(self, child: Child, now: float) -> None:
        """Its hands are empty: it leaves, or takes the next call."""
        if child.retire:
            if child.state is not TERMINATING and not child.lost:
                self.registry.move(child, TERMINATING, now)
                self.effects.retire(child)
        elif child.state is BUSY or child.state is UNHEALTHY:
            child.killed = False
            self.registry.move(child, READY, now)
            self.hand_on(child, now)
