"""A call as its caller holds it: what to run, where it is, and the future of its answer.

```
 submitted --> QUEUED --sent--> SENT --begun, answered--> over
                 ^                |
                 '--not begun:----'-- deadline, cancel: over for the caller; the child is told
                    taken back, its child left or died
```
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Protocol

from msgspec import Raw

from cordata.errors import CallCancelled
from cordata.pool.paths import ChildAddress

#: A slow reader of a stream says at least this often that it reads, also before half of its window
#: is used: the child ends streams that nobody reads.
CREDIT_EVERY_S = 1.0


class Engine(Protocol):
    """Where calls go: to the children of a pool, or in a test to a thread."""

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop of the callers."""

    def submit(self, call: Call) -> None:
        """Have it run. Raises: PoolClosed, PoolSaturated, CommandPoisoned, CommandUnknown."""

    def cancel(self, call: Call, *, hard: bool) -> None:
        """Nobody waits for it any more."""

    def credit(self, call: Call, count: int) -> None:
        """So many more parts of its stream may come."""

    def close(self) -> None:
        """End every call with PoolClosed."""


class Call:
    """A call that was started: await it for its result, once. Cancelling that cancels the call."""

    __slots__ = (
        *("_decode", "_future", "address", "arguments", "attempts", "command", "deadline"),
        *("engine", "enqueued", "entry", "idempotent", "keywords", "late", "nested", "number"),
        *("pinned", "pool", "priority", "queue_deadline", "request_id", "retries", "sequence"),
        *("session", "size_bytes", "stream"),
    )

    def __init__(
        self,
        engine: Engine,
        command: str,
        arguments: Raw,
        keywords: Raw,
        deadline: float,
        queue_deadline: float,
        session: str,
        idempotent: bool,
        retries: int,
        priority: int,
        request_id: str,
        decode: Callable[[Raw], Any],
        stream: Stream | None = None,
    ) -> None:
        self.engine = engine
        self.command = command
        #: A MessagePack array and a map.
        self.arguments, self.keywords = arguments, keywords
        #: Monotonic, as the next; until then it must have begun.
        self.deadline = deadline
        self.queue_deadline = queue_deadline
        self.session = session
        self.idempotent, self.retries = idempotent, retries
        self.priority = priority
        self.request_id = request_id
        self.size_bytes = len(arguments) + len(keywords)
        #: What reads its parts; None: it has one result.
        self.stream = stream
        #: Its number in this client, in order of arrival; set by `submit`, as all below.
        self.sequence = 0
        self.enqueued = 0.0
        self.pool = ""
        #: The only worker that may run it; "": any.
        self.pinned = ""
        #: It comes from a command that holds a child itself.
        self.nested = False
        #: Its entry in the queue; None: it does not wait there. A dropped one may lie there still.
        self.entry: object | None = None
        #: Runs that ended with a dead child.
        self.attempts = 0
        #: The child that has it, and its number on that connection.
        self.address: ChildAddress | None = None
        self.number = 0
        #: It is being taken back, and then fails with this.
        self.late: Exception | None = None
        self._decode = decode
        self._future: Future[Any] = engine.loop.create_future()
        if stream is not None:
            self._future.add_done_callback(stream.wake)

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._future.__await__())
        except CancelledError:
            self.engine.cancel(self, hard=False)
            raise

    def cancel(self, *, hard: bool = False) -> None:
        """Nobody wants the result: awaiting it raises CallCancelled.

        A waiting call never runs. A running one is told, and may go on; `hard` has its child
        killed and replaced when it does not end within the pool's `cancel_grace_s`.
        """
        if not self.done():
            self.engine.cancel(self, hard=hard)
            self.fail(CallCancelled("the caller cancelled the call"))

    def done(self) -> bool:
        """Whether awaiting it returns at once."""
        return self._future.done()

    @property
    def over(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return self._future.done()

    @property
    def queued(self) -> bool:
        """Whether it waits in the queue of its pool."""
        return self.entry is not None

    @property
    def untouched(self) -> bool:
        """Whether nothing of its answer was read, so that it may run again."""
        return self.stream is None or not self.stream.touched

    def succeed(self, value: Raw) -> None:
        """The command's result."""
        if self._future.done():
            return
        if self.stream is not None:
            self.stream.add(value)
            self._future.set_result(None)
            return
        try:
            self._future.set_result(self._decode(value))
        except Exception as error:  # noqa: BLE001 - the result is no `type`: its caller's to know
            self._future.set_exception(error)

    def end(self) -> None:
        """A stream is complete."""
        if not self._future.done():
            self._future.set_result(None)

    def fail(self, error: Exception) -> None:
        """There is no answer but this."""
        if self._future.done():
            return
        self._future.set_exception(error)
        if self.stream is not None or isinstance(error, CallCancelled):
            self._future.exception()  # told by the stream; who cancelled need not await it

    def abandon(self, error: Exception) -> None:
        """As `fail`, in a forked process: nobody need await it here."""
        self.fail(error)
        if not self._future.cancelled():
            self._future.exception()

    def add_done_callback(self, tell: Callable[[Future[Any]], object]) -> None:
        """Have `tell` called by the event loop when the call is over."""
        self._future.add_done_callback(tell)

    def decode(self, value: Raw) -> Any:
        """One part of its stream."""
        return self._decode(value)

    def error(self) -> BaseException | None:
        """What it failed with; only when it is done."""
        return CancelledError() if self._future.cancelled() else self._future.exception()


class Stream:
    """Reads the parts of a call one by one; no more than its window lie here unread."""

    __slots__ = ("_parts", "_taken", "_told_at", "_wake", "_window", "touched")

    def __init__(self, window: int) -> None:
        self._window = window
        self._parts: deque[Raw] = deque()
        self._wake: Future[None] | None = None
        self._taken, self._told_at = 0, monotonic()
        #: Whether a part came.
        self.touched = False

    @property
    def credits(self) -> int:
        """Parts that may come before the first is read."""
        return self._window

    def add(self, value: Raw) -> None:
        """The next part."""
        self.touched = True
        self._parts.append(value)
        self.wake()

    async def next(self, call: Call) -> list[Any]:
        """The next part, alone in a list; empty: the stream is complete. Raises: its error."""
        while not self._parts:
            if call.done():
                error = call.error()
                if error is not None:
                    raise error
                return []
            self._wake = call.engine.loop.create_future()
            await self._wake
        part = self._parts.popleft()
        self._taken += 1
        # Half of a window at a time: neither a packet per part nor a pause for each window.
        now = monotonic()
        half = 2 * self._taken >= self._window
        if (half or now - self._told_at >= CREDIT_EVERY_S) and not call.done():
            call.engine.credit(call, self._taken)
            self._taken, self._told_at = 0, now
        return [call.decode(part)]

    def wake(self, _: object = None) -> None:
        """A part came, or the call is over."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
