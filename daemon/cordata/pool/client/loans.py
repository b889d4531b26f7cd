"""The children that a client has on loan: see core/pool/loan.py for what that is.

What a child gives back, has not begun when it is in a long call, or had not begun when its loan
ended, goes to the manager like any other call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from cordata.core.pool import page
from cordata.core.pool.loan import serial_of
from cordata.core.pool.message import CallFrame, Cancel, ErrorFrame, Lent, Loan, Lost
from cordata.core.pool.sending import BUDGET_US
from cordata.pool import descriptors
from cordata.pool.client.borrowed import Borrowed
from cordata.pool.client.choosing import Choosing
from cordata.pool.client.link import Link
from cordata.pool.client.request import Request

#: The manager has so long to say how a child died.
_REPORT_S = 1.5


class Loans(Choosing):
    """See the module. `again` sends requests to the manager, in their order; `passed`: the answer
    to a request comes from there; `conclude`: how a call ended in which its child died; `due`: the
    deadline of one has passed.
    """

    def __init__(
        self,
        *,
        again: Callable[[list[Request]], None],
        passed: Callable[[Request], None],
        conclude: Callable[[Request, ErrorFrame], None],
        is_open: Callable[[Request], bool],
        watch: Callable[[Request], None],
        due: Callable[[Request], None],
    ) -> None:
        super().__init__(again=again, is_open=is_open, watch=watch)
        self._passed, self._conclude, self._due = passed, conclude, due
        self._ending: list[Borrowed] = []
        #: Children that died in a call, with that; and words of it that came before their end.
        self._dead: dict[Borrowed, Request] = {}
        #: Calls that the child had ended, as it seems, of which no answer has come.
        self._doubtful: dict[int, Request] = {}
        self._reports: dict[int, Lost] = {}

    def answered(self, by: Borrowed, id: int, run_us: int) -> Request | None:
        """A call has its last answer; None: it is not here any more."""
        request = by.pop(id)
        if request is None:
            return None
        by.answers += 1
        by.flying -= 1
        by.slow = False
        message = request.message
        if type(message) is CallFrame:
            self.pace.ran(message.command, run_us)
        if (by.waiting or self._waiting) and not by.ending:
            self._refill(by)
        if by.out:
            by.schedule()
        return request

    def heard_elsewhere(self, id: int, run_us: int) -> None:
        """The manager answered a call that nobody waits for; a child may have had it."""
        for one in (*self.open, *self._ending):
            if id in one.given:
                self.answered(one, id, run_us)
                return

    def not_run(self, request: Request) -> None:
        """The child gives it back."""
        if isinstance(request.message, CallFrame):
            self._places.forget(request.message.session)
        self._again([request])

    @staticmethod
    def _place_of(request: Request) -> Borrowed | None:
        by = request.link.borrowed if request.link is not None else None
        return by if by is not None and request.id in by.given else None

    def has_begun(self, request: Request) -> bool:
        """Whether the child runs it, or did."""
        by = self._place_of(request)
        return by is not None and page.read(by.page).order >= request.order

    def cancel(self, request: Request, *, hard: bool) -> None:
        """Nobody waits for it any more."""
        by = self._place_of(request)
        if by is None:
            return
        serial = serial_of(by.id, request.order)
        by.flush()  # the child drops a cancel of what has not come
        by.link.tell(Cancel(id=request.id, n=serial))
        if hard:
            loop = asyncio.get_running_loop()
            loop.call_later(by.grace_s, self._kill, by, request.id, serial)

    def _kill(self, by: Borrowed, id: int, serial: int) -> None:
        if id in by.given:
            by.manager.tell(Cancel(id=id, hard=True, n=serial))

    def _tick(self) -> None:
        """Children that have answered nothing for so long are looked at."""
        self._timer = None
        self._share()
        working = [one for one in (*self.open, *self._ending) if one.given]
        now = monotonic()
        for one in working:
            for request in [r for r in one.given.values() if r.deadline <= now and r.tick < 0]:
                if self._is_open(request) and not request.late:
                    self._due(request)
            if one.seen != one.answers:
                one.seen = one.answers
            elif not one.slow:
                one.slow = True
                one.flush()  # what is taken back is met by the child, and counted out
                page.mark(one.page, one.order)
                asyncio.get_running_loop().call_later(page.SETTLE_S, self._have_back, one)
        if working or self._waiting or any(one.waiting for one in self.open):
            self._arm()

    def _have_back(self, one: Borrowed) -> None:
        """What it had not begun when it was marked will not begin."""
        if one.link.closed:
            return  # then its end has told
        begun = page.read(one.page).order
        marked = page.marked(one.page)
        requests = [request for request in one.given.values() if begun < request.order <= marked]
        for request in requests:
            one.pop(request.id)
        one.flying = sum(request.order <= one.written for request in one.given.values())
        one.schedule()
        if not one.given and not one.ending:
            one.slow = False
            self._refill(one)
        if one.slow:
            requests += self._drained(one.waiting)
        if all(other.slow for other in self.open):
            requests += self._drained(self._waiting)
        self._send_back(requests)

    def _send_back(self, requests: list[Request]) -> None:
        found = [request for request in requests if self._is_open(request)]
        for request in found:
            assert isinstance(request.message, CallFrame)
            best = self._pick(BUDGET_US)
            request.message.at = 0 if best is None else best.id
        if found:
            self._again(sorted(found, key=lambda request: request.id))

    @staticmethod
    def _drained(queue: deque[Request]) -> Iterator[Request]:
        while queue:
            yield queue.popleft()

    # --- loans come and go

    def borrow(self, loan: Loan, manager: Link, make: Callable[[Borrowed], Link]) -> None:
        """The manager lends a child. Its descriptors have come."""
        files, manager.files = manager.files[:2], manager.files[2:]
        if len(files) < 2 or manager.leaving:
            descriptors.close(files)
            return
        try:
            one = Borrowed(loan, manager, files)
        except OSError:
            return  # no memory for the page: the child finds nobody at the other end
        one.link = make(one)
        self._most = loan.q
        self.open.append(one)
        self._refill(one)

    def lent(self, word: Lent) -> None:
        """A session may be used where it was used last."""
        one = next((one for one in self.open if one.id == word.l), None)
        if one is not None:
            self._places.put(word.s, one, monotonic() + word.d)

    def leave(self) -> None:
        """The manager is gone, or going: its loans are answered, and get no more."""
        for one in list(self.open):
            self._end(one)

    def _end(self, one: Borrowed) -> None:
        one.ending = True
        self.open.remove(one)
        self._ending.append(one)
        self._places.leave(one)
        requests = list(self._drained(one.waiting))
        if all(other.slow for other in self.open):
            requests += self._drained(self._waiting)
        self._send_back(requests)

    def returned(self, one: Borrowed) -> None:
        """Its socket ended: the manager wanted it back, or it is dead; the page knows what ran."""
        if not one.ending:
            self._end(one)
        self._ending.remove(one)
        hand = page.read(one.page)
        again: list[Request] = []
        for request in one.given.values():
            if not self._is_open(request):
                continue
            if request.order > hand.order:
                again.append(request)
            elif request.order == hand.order and (hand.busy or one.id in self._reports):
                self._died(one, request)
            else:
                self._passed(request)
                if request.order == hand.order:  # or it was killed right before it began this one
                    self._doubtful[one.id] = request
                    asyncio.get_running_loop().call_later(
                        _REPORT_S, self._doubtful.pop, one.id, None
                    )
        one.given.clear()
        one.close()
        self._reports.pop(one.id, None)
        self._send_back(again)

    def _died(self, one: Borrowed, request: Request) -> None:
        self._watch(request)
        if isinstance(request.message, CallFrame):
            self.pace.forget(request.message.command)
        report = self._reports.get(one.id)
        if report is not None:
            self._conclude(request, ErrorFrame(code="crashed", m=report.m, data=report.data))
            return
        self._dead[one] = request
        asyncio.get_running_loop().call_later(_REPORT_S, self._unheard, one)

    def lost(self, word: Lost) -> None:
        """How a child died."""
        # What the manager had to answer came before this.
        dead = next((one for one in self._dead if one.id == word.l), None)
        request = self._doubtful.pop(word.l, None) if dead is None else self._dead.pop(dead)
        if request is not None:
            self._conclude(request, ErrorFrame(code="crashed", m=word.m, data=word.data))
        elif any(one.id == word.l for one in (*self.open, *self._ending)):
            self._reports[word.l] = word

    def nobody_tells(self) -> None:
        """The manager is gone, and the next one counts its loans from 1 again."""
        self._doubtful.clear()
        self._reports.clear()
        for one in list(self._dead):
            self._unheard(one)

    def _unheard(self, one: Borrowed) -> None:
        request = self._dead.pop(one, None)
        if request is not None:
            text, data = f"the child of worker {one.worker} is gone", {"worker": one.worker}
            self._conclude(request, ErrorFrame(code="crashed", m=text, data=data))

    def disown(self) -> None:
        """After a fork, in the child: the loans are the parent's."""
        for one in (*self.open, *self._ending):
            one.link.disown()

    def close(self) -> None:
        """The client ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for one in (*self.open, *self._ending):
            one.close()
        self.open.clear()
        self._ending.clear()
        self._waiting.clear()
