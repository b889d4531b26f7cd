"""Every request of one client: which is where, and what becomes of it when the manager goes away.

    submit --> unsent --a link is ready and has room--> sent --last answer--> over
                 ^                                       |
                 |-- the manager never had it whole: not_run, or its link was lost before ---|
                 |-- its link was lost, and it may run twice: once more, with what is left --|
                 '- (else it fails as restarted) --------'
A request that is over leaves the table; whatever still comes for its id is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from cordata.core.frame import TooLarge
from cordata.core.pool.codec import encode
from cordata.core.pool.message import (
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    End,
    ErrorFrame,
    Goaway,
    Hello,
    Reply,
    Result,
    ToClient,
    Welcome,
)
from cordata.errors import (
    CallCancelled,
    DeadlineExceeded,
    FrameTooLarge,
    PoolClosed,
    PoolRestarted,
    PoolSaturated,
    PoolUnavailable,
)
from cordata.pool.client.alarm import Alarm
from cordata.pool.client.dialling import Dialling
from cordata.pool.client.link import Link
from cordata.pool.client.request import Request
from cordata.pool.client.wire import (
    ANSWER_GRACE_S,
    FORKED,
    MAX_TAKEN,
    error_of,
    may_repeat,
)


class Exchange(Dialling):
    """Connections to one manager, made when there is something to send."""

    def __init__(self, path: str, hello: Callable[[], Hello], *, max_waiting: int) -> None:
        super().__init__(path, hello)
        self._max_waiting = max_waiting
        self._requests: dict[int, Request] = {}
        #: Those of them that no manager can have, in the order in which they go out.
        self._unsent: OrderedDict[int, Request] = OrderedDict()
        self._last_id = 0
        #: Connections that only answer what they have.
        self._leaving: set[Link] = set()
        self._alarm = Alarm(self._due)
        self.closed = False

    def __len__(self) -> int:
        return len(self._requests)

    def submit(self, request: Request) -> None:
        """Send it, or keep it until there is a manager. Raises: PoolClosed, PoolSaturated."""
        if self.closed:
            raise PoolClosed("the client is closed")
        if len(self._unsent) >= self._max_waiting:
            raise PoolSaturated(f"{len(self._unsent)} calls wait for the pool's manager")
        self._last_id += 1
        request.id = request.message.id = self._last_id
        self._requests[request.id] = request
        if self._straight(request):
            return
        self._watch(request)
        link = self._link
        if link is not None and link.ready and not self._unsent and link.has_room:
            self._send(request, link)
        else:
            self._unsent[request.id] = request
            self._pump()

    def cancel(self, request: Request, *, hard: bool) -> None:
        """Have the manager end it."""
        if self._requests.get(request.id) is not request:
            return
        if request.link is None:
            self._over(request).failed(CallCancelled("it was cancelled before it was sent"))
        else:
            request.link.tell(Cancel(id=request.id, hard=hard))

    def abandon(self, request: Request) -> None:
        """Nobody waits for it any more."""
        if self._requests.get(request.id) is request:
            self._over(request)
            if request.link is not None:
                request.link.tell(Cancel(id=request.id))

    def credit(self, request: Request, count: int) -> None:
        """So many more parts may come."""
        if request.link is not None:
            request.link.tell(Credit(id=request.id, n=count))

    def close(self) -> None:
        """End all connections, and every request with PoolClosed."""
        self.closed = True
        self._alarm.close()
        if self._dialling is not None:
            self._dialling.cancel()
        for link in (*self._leaving, *((self._link,) if self._link else ())):
            link.close()
        self._leaving.clear()
        self._link = None
        for request in list(self._requests.values()):
            self._over(request).failed(PoolClosed("the client was closed"))

    def disown(self) -> None:
        """After a fork, in the child: connections and requests are the parent's."""
        self.closed = True
        for link in (*self._leaving, *((self._link,) if self._link else ())):
            link.disown()
        for request in self._requests.values():
            request.inherited(PoolClosed(FORKED))

    def _over(self, request: Request) -> Request:
        """It leaves the table."""
        del self._requests[request.id]
        if request.tick >= 0:
            self._alarm.clear(request)
        if request.link is None:
            self._unsent.pop(request.id, None)
        return request

    def _watch(self, request: Request) -> None:
        """See to its deadline."""
        if request.tick < 0:
            self._alarm.set(request, request.deadline)

    # --- what goes out

    def _pump(self) -> None:
        link = self._link
        if link is None:
            if self._unsent and self._dialling is None and not self.closed:
                self._dial_after(self._pause_s)
            return
        while self._unsent and link.ready and link.has_room and not link.closed:
            _, request = self._unsent.popitem(last=False)
            self._send(request, link)

    def _wanted(self) -> bool:
        return bool(self._unsent)

    def _send(self, request: Request, link: Link) -> None:
        message = request.message
        if isinstance(message, CallFrame):
            message.timeout_s = max(0.0, request.deadline - monotonic())
        try:
            frame = encode(message, max_bytes=link.max_bytes)
        except FrameTooLarge as error:
            self._over(request).failed(error)
            return
        request.link = link
        request.end = link.send(frame)

    # --- what comes in

    def _heard(self, link: Link, message: ToClient | TooLarge) -> None:
        if isinstance(message, Result):
            request = self._ends(link, message.id, message.x)
            if request is not None:
                self._over(request).answered(message.payload)
        elif isinstance(message, Welcome):
            link.ready, link.max_bytes = True, message.max
            self._pause_s, self._reason = 0.0, ""
            self._pump()
        elif isinstance(message, Goaway):
            self._leave(link)
        elif isinstance(message, ErrorFrame):
            self._failed(link, message)
        elif isinstance(message, TooLarge):
            self._too_large(link, message)
        elif isinstance(message, (Chunk, Reply, End)):
            request = self._requests.get(message.id)
            if request is None or request.link is not link:
                return
            if isinstance(message, Chunk):
                request.chunk(message.payload)
            elif isinstance(message, Reply):
                self._over(request).replied(message)
            else:
                self._over(request).ended()
        else:
            self._other(link, message)

    def _other(self, link: Link, message: ToClient) -> None:
        """What is nothing to this class."""

    def _straight(self, request: Request) -> bool:
        """Whether it goes another way than through the manager."""
        return False

    def _ends(self, link: Link, id: int, run_us: int) -> Request | None:
        """Whose last answer came, after so long; None: nobody waits for it any more."""
        request = self._requests.get(id)
        return request if request is not None and request.link is link else None

    def _failed(self, link: Link, frame: ErrorFrame) -> None:
        if frame.id is None:
            self._refused(link, frame)
            return
        request = self._ends(link, frame.id, frame.x)
        if request is None:
            return
        if frame.code == "not_run":
            self._not_run(link, request)
        else:
            self._over(request).failed(error_of(frame))

    def _not_run(self, link: Link, request: Request) -> None:
        self._leave(link)
        self._again([request])

    def _refused(self, link: Link, frame: ErrorFrame) -> None:
        """The manager speaks of the connection. Instead of a welcome: it will not have us."""
        error = error_of(frame)
        self._reason = str(error)
        if not link.ready:
            for request in list(self._unsent.values()):
                self._over(request).failed(error)

    def _too_large(self, link: Link, frame: TooLarge) -> None:
        request = None if frame.id is None else self._requests.get(frame.id)
        if request is not None and request.link is link:
            self.abandon(request)
            text = f"an answer of {frame.length} bytes came, which is more than is taken"
            length, limit = frame.length, MAX_TAKEN
            request.failed(FrameTooLarge(text, length_bytes=length, limit_bytes=limit))

    def _leave(self, link: Link) -> None:
        """It answers what it has; new requests need another connection."""
        link.leaving = True
        if link is self._link:
            self._link = None
            self._leaving.add(link)
            self._grow_pause()
            self._pump()

    def _lost(self, link: Link, reason: str) -> None:
        self._leaving.discard(link)
        self._reason = self._reason or reason
        if link is self._link:
            self._link = None
            self._grow_pause()
        again = []
        for request in [one for one in self._requests.values() if one.link is link]:
            if request.end <= link.sent:
                if not self._may_go_again(request, reason):
                    continue
            again.append(request)
        self._again(again)

    def _may_go_again(self, request: Request, reason: str) -> bool:
        """One that may have run; else it has failed."""
        if not (may_repeat(request.message) and request.untouched):
            text = f"the pool was lost while it may have been running ({reason})"
            self._over(request).failed(PoolRestarted(text))
            return False
        if isinstance(request.message, CallFrame):
            request.message.attempts += 1
        return True

    def _again(self, requests: list[Request]) -> None:
        """They go out first, in the order in which they did before."""
        for request in reversed(requests):
            self._watch(request)
            request.link = None
            self._unsent[request.id] = request
            self._unsent.move_to_end(request.id, last=False)
        self._pump()

    def _due(self, request: Request) -> None:
        """Its deadline has passed; the manager has a little while to say whether it ran."""
        if request.link is not None and not request.late:
            request.late = True
            self._alarm.set(request, monotonic() + ANSWER_GRACE_S)
            return
        self.abandon(request)
        if request.link is not None:
            request.failed(DeadlineExceeded("no answer came before the deadline"))
        elif self._link is not None and self._link.ready:
            text = "the manager took nothing more"
            request.failed(DeadlineExceeded(text, ran=request.ran_before))
        else:
            reason = f" ({self._reason})" if self._reason else ""
            request.failed(PoolUnavailable(f"nobody answered at {self._path}{reason}"))
