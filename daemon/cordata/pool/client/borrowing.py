"""An exchange that uses the children which the manager lends: core/pool/loan.py tells why."""

from __future__ import annotations

from collections.abc import Callable

from cordata.core.frame import TooLarge
from cordata.core.pool.message import (
    CallFrame,
    ErrorFrame,
    Hello,
    Lent,
    Loan,
    Lost,
    Result,
    ToClient,
)
from cordata.errors import CallCancelled, DeadlineExceeded, PoolSaturated
from cordata.pool.client.borrowed import Borrowed
from cordata.pool.client.exchange import Exchange
from cordata.pool.client.link import Link
from cordata.pool.client.loans import Loans
from cordata.pool.client.request import Request
from cordata.pool.client.wire import error_of, may_repeat


class Borrowing(Exchange):
    """As Exchange. The link of a request is that to the child, while it has the call."""

    def __init__(self, path: str, hello: Callable[[], Hello], *, max_waiting: int) -> None:
        super().__init__(path, hello, max_waiting=max_waiting)
        self._loans = Loans(
            again=self._again,
            passed=self._passed,
            conclude=self._crashed,
            is_open=self._is_open,
            watch=self._watch,
            due=self._due,
        )

    def cancel(self, request: Request, *, hard: bool) -> None:
        """Have it ended."""
        link = request.link
        if self._is_open(request) and link is not None and link.borrowed is not None:
            self._loans.cancel(request, hard=hard)
            self._over(request).failed(CallCancelled("cancelled while its child had it"))
        else:
            super().cancel(request, hard=hard)

    def abandon(self, request: Request) -> None:
        """Nobody waits for it any more."""
        link = request.link
        if self._is_open(request) and link is not None and link.borrowed is not None:
            self._over(request)
            self._loans.cancel(request, hard=False)
        else:
            super().abandon(request)

    def close(self) -> None:
        """End all connections, and every request with PoolClosed."""
        self._loans.close()
        super().close()

    def disown(self) -> None:
        """After a fork, in the child: connections and requests are the parent's."""
        self._loans.disown()
        super().disown()

    def _over(self, request: Request) -> Request:
        if request.toward is not None:
            request.toward.coming -= 1
            request.toward = None
        return super()._over(request)

    def _straight(self, request: Request) -> bool:
        loans = self._loans
        try:
            return bool(loans.open) and not self._unsent and loans.take(request)
        except PoolSaturated:
            self._over(request)
            raise

    def _heard_child(self, link: Link, message: ToClient | TooLarge) -> None:
        """As `_heard`, from a child on loan."""
        if type(message) is Result and link.borrowed is not None:
            # The fast path: what `_heard` does in its ways.
            request = self._loans.answered(link.borrowed, message.id, message.x)
            if request is not None and self._requests.get(message.id) is request:
                del self._requests[message.id]
                if request.tick >= 0:
                    self._alarm.clear(request)
                request.answered(message.payload)
        else:
            self._heard(link, message)

    def _ends(self, link: Link, id: int, run_us: int) -> Request | None:
        request, loans = self._requests.get(id), self._loans
        if link.borrowed is not None:
            loans.answered(link.borrowed, id, run_us)
            return request if request is not None and request.link is link else None
        if request is None:
            loans.heard_elsewhere(id, run_us)
            return None
        if request.link is None or request.link.manager is not link:
            return None
        if request.link.borrowed is not None:
            # The child ran it, and the manager kept what it changed.
            loans.answered(request.link.borrowed, id, run_us)
        elif loans.open and isinstance(request.message, CallFrame):
            loans.pace.ran(request.message.command, run_us)
        return request

    def _other(self, link: Link, message: ToClient) -> None:
        if isinstance(message, Loan):
            self._loans.borrow(message, link, self._link_to)
        elif isinstance(message, Lent):
            self._loans.lent(message)
        elif isinstance(message, Lost):
            self._loans.lost(message)

    def _not_run(self, link: Link, request: Request) -> None:
        if link.borrowed is not None:
            self._loans.not_run(request)
        else:
            super()._not_run(link, request)

    def _leave(self, link: Link) -> None:
        if link is self._link:
            self._loans.leave()
        super()._leave(link)

    def _lost(self, link: Link, reason: str) -> None:
        if link is self._link:
            self._loans.leave()
            self._loans.nobody_tells()
        super()._lost(link, reason)

    def _due(self, request: Request) -> None:
        link = request.link
        if link is None or link.borrowed is None or request.late:
            super()._due(request)
        elif self._loans.has_begun(request):
            self.abandon(request)  # the command is told
            request.failed(DeadlineExceeded("the deadline passed while it ran"))
        else:
            self._loans.cancel(
                request, hard=False
            )  # then it does not begin, and the manager says so
            super()._due(request)

    def _link_to(self, borrowed: Borrowed) -> Link:
        return Link(
            self._path,
            self._hello(),
            heard=self._heard_child,
            lost=lambda link, _: self._loans.returned(borrowed),
            room_again=lambda: None,
            borrowed=borrowed,
        )

    def _is_open(self, request: Request) -> bool:
        return self._requests.get(request.id) is request

    def _passed(self, request: Request) -> None:
        """The child has answered, to the manager, who keeps what the call changed."""
        assert request.link is not None
        manager = request.link.manager
        request.link, request.end = manager, 0
        self._watch(request)
        if manager.closed and self._may_go_again(request, "it had the answer"):
            self._again([request])

    def _crashed(self, request: Request, frame: ErrorFrame) -> None:
        """Its child died in it."""
        if not self._is_open(request):
            return
        message = request.message
        if may_repeat(message) and isinstance(message, CallFrame):
            message.attempts += 1
            message.at = 0
            self._again([request])
        else:
            self._over(request).failed(error_of(frame))
