"""Which call of a client goes to which of the children that it has on loan, and which waits.

A call waits here while every child has as much as it may have, and goes in the order of asking;
one of a session waits for the child that has the session. What cannot go straight at all goes to
the manager: streams, large ones, commands of which no run is known or that are long, and calls of
sessions that are not lent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from cordata.core.pool.codec import encode
from cordata.core.pool.loan import MOST, PATIENCE_S
from cordata.core.pool.message import CallFrame
from cordata.core.pool.order import LentRun
from cordata.core.pool.pace import Pace
from cordata.core.pool.placing import AHEAD_BYTES, AWAKE_US
from cordata.core.pool.sending import BUDGET_US, DEPTH
from cordata.errors import PoolSaturated
from cordata.pool.client.borrowed import Borrowed
from cordata.pool.client.places import Places
from cordata.pool.client.request import Request

#: Whose deadline is further away is looked at every PATIENCE_S, with all that a child was given: to
#: set and clear an alarm for each call costs more than that.
_SOON_S = 1.0
#: A session moves to another child rather than to wait for so much work, ...
_MOVE_US = 2 * AWAKE_US
#: ... if that has had nothing to do for so long.
_IDLE_S = 0.0005


class Choosing:
    """See the module. `again` sends requests to the manager; `is_open`: one is still waited for;
    `watch`: the deadline of one is seen to, which otherwise is looked at now and then.
    """

    def __init__(
        self,
        *,
        again: Callable[[list[Request]], None],
        is_open: Callable[[Request], bool],
        watch: Callable[[Request], None],
    ) -> None:
        self._again, self._is_open, self._watch = again, is_open, watch
        #: Those that take calls, the one that is woken first first.
        self.open: list[Borrowed] = []
        self.pace = Pace()
        self._places = Places()
        self._waiting: deque[Request] = deque()
        #: That may wait, here and at each child.
        self._most = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, request: Request) -> bool:
        """Give it to a child, or let it wait for one; False: it is for the manager. Raises:
        PoolSaturated.
        """
        message = request.message
        if type(message) is not CallFrame:
            self._places.forget(getattr(message, "s", ""))
            return False
        if message.credits or message.priority or message.queue_timeout_s is not None:
            return False
        cost_us = self.pace.expected_us(message.command)
        if cost_us > BUDGET_US or message.attempts or len(message.payload) > AHEAD_BYTES:
            return False
        if message.session:
            return self._take_session(request, message, cost_us)
        found = None if self._head(self._waiting) else self._pick(cost_us)
        if found is not None:
            self._give(found, request, message, cost_us)
        elif all(one.slow for one in self.open):
            return False  # the manager may have others
        else:
            self._wait(request, self._waiting)
        return True

    def _take_session(self, request: Request, message: CallFrame, cost_us: float) -> bool:
        own, until = self._places.of(message.session)
        if own is None or monotonic() >= until:
            if own is None or own.slow:
                own = self._places.choose(message.session, self.open, cost_us)
            if own is not None:
                self._mean(request, message, own)
            return False
        # The fast path: it has work, and not too much of it.
        if own.given and not own.waiting and own.load_us <= _MOVE_US and own.has_room(cost_us):
            self._give(own, request, message, cost_us)
            return True
        better = self._better(own, cost_us)
        if better is not None:
            self._mean(request, message, better)  # the session moves
            return False
        if own.has_room(cost_us) and not self._head(own.waiting):
            self._give(own, request, message, cost_us)
            return True
        if own.slow:
            return False
        self._wait(request, own.waiting)
        return True

    @staticmethod
    def _mean(request: Request, message: CallFrame, to: Borrowed) -> None:
        """The manager is to hand it to this child."""
        message.at = to.id
        request.toward = to
        to.coming += 1

    def _better(self, own: Borrowed, cost_us: float) -> Borrowed | None:
        """Than the session's own child: one that is free, for a call that would have to wait there
        for longer than it takes to move; for a very short one, one that is awake when its own is
        not. None: it stays.
        """
        if own.load_us + len(own.waiting) * cost_us > _MOVE_US:
            # One that has just answered gets its own sessions' next calls in a moment.
            idle_since = monotonic() - _IDLE_S
            found = (one for one in self.open if not (one.given or one.slow))
            return next((one for one in found if one.idle_at <= idle_since), None)
        # Only if one child is enough for all: else they would take sessions from one another.
        if not own.given and sum(len(one.given) for one in self.open) < DEPTH:
            for one in self.open:
                if one.given and one.load_us + cost_us <= AWAKE_US and one.has_room(cost_us):
                    return one
        return None

    def _wait(self, request: Request, queue: deque[Request]) -> None:
        """Raises: PoolSaturated, as the manager would say: nobody else has calls that wait."""
        count = len(self._waiting) + sum(len(one.waiting) for one in self.open)
        if count >= self._most:
            raise PoolSaturated("too many calls wait")
        queue.append(request)
        self._watch(request)
        self._arm()

    def _pick(self, cost_us: float) -> Borrowed | None:
        """The first one that is done with it soon, else the one with least to do; None: none."""
        best: Borrowed | None = None
        for one in self.open:
            if one.has_room(cost_us):
                if not one.given or one.load_us + cost_us <= AWAKE_US:
                    return one
                if best is None or one.load_us < best.load_us:
                    best = one
        return best

    def _give(self, to: Borrowed, request: Request, message: CallFrame, cost_us: float) -> None:
        order = to.order + 1
        left_s = request.deadline - monotonic()
        run = LentRun(
            request.id,
            order,
            message.command,
            message.payload,
            left_s if left_s > 0.0 else 0.0,
            message.session,
            message.request_id,
        )
        frame = encode(run)
        to.order = order
        request.link, request.order, request.cost_us = to.link, order, cost_us
        to.given[request.id] = request
        to.load_us += cost_us
        to.put(frame)
        if left_s < _SOON_S:
            self._watch(request)
        if self._timer is None:
            self._arm()
        if order == MOST:
            self._end(to)

    def _arm(self) -> None:
        """Look at the children in a while."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._tick)

    def _refill(self, to: Borrowed) -> None:
        """It has room: for who waits longest, of those who may run there."""
        while request := self._next(to):
            message = request.message
            assert isinstance(message, CallFrame)
            self._give(to, request, message, self.pace.expected_us(message.command))

    def _next(self, to: Borrowed) -> Request | None:
        heads = [queue for queue in (to.waiting, self._waiting) if self._head(queue)]
        if not heads:
            return None
        first = min(heads, key=lambda queue: queue[0].id)
        message = first[0].message
        assert isinstance(message, CallFrame)
        if not to.has_room(self.pace.expected_us(message.command)):
            return None
        return first.popleft()

    def _head(self, queue: deque[Request]) -> Request | None:
        """Who is next, without those that were given up."""
        while queue and not self._is_open(queue[0]):
            queue.popleft()
        return queue[0] if queue else None

    def _share(self) -> None:
        """Who has nothing to do gets a session that waits elsewhere, through the manager."""
        for idle in self.open:
            if idle.given or idle.slow:
                continue
            self._refill(idle)
            for one in () if idle.given else self.open:
                if request := self._head(one.waiting):
                    message = one.waiting.popleft().message
                    assert isinstance(message, CallFrame)
                    self._places.put(message.session, idle, 0.0)
                    message.at = idle.id
                    self._again([request])
                    break

    def _tick(self) -> None:
        """Look at the children; of Loans."""

    def _end(self, one: Borrowed) -> None:
        """It gets no more calls; of Loans."""
