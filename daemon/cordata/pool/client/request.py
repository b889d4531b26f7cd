"""What a client waits for: a call's result, a stream's parts, or the answer to a question."""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from cordata.core.pool.message import Ask, CallFrame, GlobalOp, Reply, SessionOp
from cordata.errors import CallCancelled, ProtocolError
from cordata.pool.client.wire import CREDIT_EVERY_S

if TYPE_CHECKING:
    from cordata.pool.client.borrowed import Borrowed
    from cordata.pool.client.link import Link


class Exchanging(Protocol):
    """Where requests go: to a manager, or in a test to commands in the same process."""

    @property
    def loop(self) -> AbstractEventLoop:
        """Where they are waited for."""

    def submit(self, request: Request) -> None:
        """Have it answered. Raises: PoolClosed, PoolSaturated."""

    def cancel(self, request: Request, *, hard: bool) -> None:
        """Have it end with CallCancelled."""

    def abandon(self, request: Request) -> None:
        """Nobody waits for it any more."""

    def credit(self, request: Request, count: int) -> None:
        """So many more parts may come."""

    def close(self) -> None:
        """End every request with PoolClosed."""


class Request:
    """One id of a client, from its first sending to its last answer."""

    __slots__ = (
        *("_future", "cost_us", "deadline", "end", "exchange", "id", "late", "link", "message"),
        *("order", "tick", "toward"),
    )

    def __init__(
        self, message: CallFrame | SessionOp | GlobalOp | Ask, exchange: Exchanging, deadline: float
    ) -> None:
        self.message = message
        self.exchange = exchange
        #: Monotonic.
        self.deadline = deadline
        self.id = -1
        #: Its place in the wheel.
        self.tick = -1
        #: The deadline has passed, and the manager has a little while to say so.
        self.late = False
        #: The connection that it was given to, and the end of its frame there; None: to none yet.
        self.link: Link | None = None
        self.end = 0
        #: At a child on loan: the call's number there, and how long it is likely to take.
        self.order = 0
        self.cost_us = 0.0
        #: The child for which it is meant, while the manager has it.
        self.toward: Borrowed | None = None
        self._future: Future[Any] = exchange.loop.create_future()

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._future.__await__())
        except CancelledError:
            self.exchange.abandon(self)
            raise

    @property
    def untouched(self) -> bool:
        """Whether nothing of its answer has come, so that it could begin anew."""
        return True

    @property
    def ran_before(self) -> bool:
        """Whether a manager that is gone may have run it."""
        return isinstance(self.message, CallFrame) and self.message.attempts > 0

    def answered(self, payload: Raw) -> None:
        """A result. Its last answer, as those below."""
        self.failed(ProtocolError("a result, where none was expected"))

    def replied(self, reply: Reply) -> None:
        """A reply."""
        if not self._future.done():
            self._future.set_result(reply)

    def chunk(self, payload: Raw) -> None:
        """A part of a stream; not its last answer."""

    def ended(self) -> None:
        """A stream is complete."""
        self.failed(ProtocolError("the end of a stream, where none was expected"))

    def failed(self, error: Exception) -> None:
        """There is no answer but this."""
        if not self._future.done():
            self._future.set_exception(error)
            if isinstance(error, CallCancelled):
                self._future.exception()  # whoever cancelled it need not await it

    def inherited(self, error: Exception) -> None:
        """As `failed`, in a forked process: nobody need await it here."""
        self.failed(error)
        if not self._future.cancelled():
            self._future.exception()


class Call(Request):
    """A call that was started: await it for its result, once. Cancelling that cancels the call."""

    __slots__ = ("_decode",)

    def __init__(
        self,
        message: CallFrame,
        exchange: Exchanging,
        deadline: float,
        decode: Callable[[Raw], Any],
    ) -> None:
        super().__init__(message, exchange, deadline)
        self._decode = decode

    def cancel(self, *, hard: bool = False) -> None:
        """Nobody wants the result: awaiting it raises CallCancelled, unless it was under way.

        A waiting call never runs. A running one is told, and may go on; `hard` has its child
        killed and replaced when it does not end within the pool's `cancel_grace_s`.
        """
        self.exchange.cancel(self, hard=hard)

    def done(self) -> bool:
        """Whether awaiting it returns at once."""
        return self._future.done()

    def answered(self, payload: Raw) -> None:
        """Its result."""
        if self._future.done():
            return
        try:
            value = self._decode(payload)
        except Exception as error:  # noqa: BLE001 - the result is no `type`: its caller's to know
            self._future.set_exception(error)
        else:
            self._future.set_result(value)

    def replied(self, reply: Reply) -> None:
        """No answer to a call."""
        self.failed(ProtocolError("a reply to a call"))


class Stream(Request):
    """A call whose parts are read one by one; no more than its window lies here."""

    __slots__ = (
        *("_decode", "_error", "_over", "_parts", "_taken", "_told_at", "_touched", "_window"),
    )

    def __init__(
        self,
        message: CallFrame,
        exchange: Exchanging,
        deadline: float,
        decode: Callable[[Raw], Any],
    ) -> None:
        super().__init__(message, exchange, deadline)
        self._decode = decode
        self._window = message.credits
        self._parts: deque[Raw] = deque()
        #: Parts taken since credits were sent last.
        self._taken = 0
        #: When credits were sent last.
        self._told_at = monotonic()
        self._touched = False
        self._over = False
        self._error: Exception | None = None

    @property
    def untouched(self) -> bool:
        """Parts that were read cannot be taken back."""
        return not self._touched

    async def next(self) -> list[Any]:
        """The next part, alone in a list; empty: the stream is complete. Raises: its error."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._over:
                return []
            await self._future
            self._future = self.exchange.loop.create_future()
        part = self._parts.popleft()
        self._taken += 1
        # Half of a window at a time: neither a frame per part nor a pause for each window.
        now = monotonic()
        half = 2 * self._taken >= self._window
        if (half or now - self._told_at >= CREDIT_EVERY_S) and not self._over:
            self.exchange.credit(self, self._taken)
            self._taken, self._told_at = 0, now
        return [self._decode(part)]

    def answered(self, payload: Raw) -> None:
        """One value: a stream of one part."""
        self.chunk(payload)
        self.ended()

    def replied(self, reply: Reply) -> None:
        """No answer to a call."""
        self.failed(ProtocolError("a reply to a call"))

    def chunk(self, payload: Raw) -> None:
        """The next part."""
        self._touched = True
        self._parts.append(payload)
        self._wake()

    def ended(self) -> None:
        """No more parts come."""
        self._over = True
        self._wake()

    def failed(self, error: Exception) -> None:
        """No more parts come; who has read those that did is told why."""
        self._error = error
        self.ended()

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
