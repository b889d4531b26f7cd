"""A call as its caller holds it: what to run, where it is, and the future of its answer.

```
 submitted --> QUEUED --sent--> SENT --begun, answered--> over
                 ^                |
                 '--not begun:----'-- deadline, cancel: over for the caller; the child is told
                    revoked, its child left or died
```
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future
from collections import deque
from collections.abc import Callable, Generator, Mapping
from time import monotonic
from typing import Any, Protocol, TypedDict

from msgspec import Raw, Struct

from cordata.errors import CallCancelled
from cordata.pool.shared.protocol import CommandOptions

#: A slow reader of a stream says at least this often that it reads, also before half of its window
#: is used: the child ends streams that are not read.
CREDIT_EVERY_S = 1.0


class CallOptions(TypedDict, total=False):
    """How a call runs. What is not given is as `@app.command` says, then as `[pool]` does."""

    #: Id of the session that its command gets; "": none.
    session: str
    #: Seconds for all of it, waiting and running.
    timeout: float | None
    #: Of these, at most so many until it runs.
    queue_timeout: float | None
    #: It may run more than once, and does when its process dies, ...
    idempotent: bool | None
    #: ... up to so many times.
    retries: int | None
    #: 0 to 9, higher goes first.
    priority: int
    #: What the result is converted to.
    type: Any


class Engine(Protocol):
    """Where calls go: to the children of a pool, or in a test to a thread."""

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop of the callers."""

    @property
    def options(self) -> Mapping[str, CommandOptions]:
        """What `@app.command` says of each command that is known by now."""

    def submit(self, call: Call) -> None:
        """Have it run. Raises: PoolClosed, PoolSaturated, CommandPoisoned, CommandUnknown."""

    def cancel(self, call: Call, *, hard: bool) -> None:
        """Nobody waits for it any more."""

    def credit(self, call: Call, count: int) -> None:
        """So many more parts of its stream may come."""

    def close(self) -> None:
        """End every call with PoolClosed."""


class Call(Struct, eq=False):
    """A call that was started: await it for its result, once. Cancelling that cancels the call."""

    # A Struct, and one for all, since one is made for every call. First what its caller asked for:
    engine: Engine
    future: Future[Any]
    command: str
    #: A MessagePack array and a map.
    arguments: Raw
    keywords: Raw
    #: When it was started, monotonic as the next two: its deadline, and by when it must have begun
    #: if that is earlier (else infinite).
    enqueued: float
    deadline: float
    queue_deadline: float
    session: str
    #: As its caller said; None: as `@app.command` says, then as `[pool]` does.
    idempotent: bool | None
    retries: int | None
    priority: int
    request_id: str
    #: Makes a value of its result, or of one part of its stream.
    decode: Callable[[Raw], Any]
    #: What reads its parts; None: it has one result.
    stream: Stream | None = None
    #: The deadline is the client's own default until a child has said what its command's is.
    provisional: bool = False
    # Then its state, which belongs to the engine, from `submit` on.
    #: Its number in this client, in order of arrival.
    sequence: int = 0
    pool: str = ""
    #: The only worker that may run it; "": any.
    pinned: str = ""
    #: It comes from a command that holds a child itself.
    nested: bool = False
    #: Its entry in the queue; None: it does not wait there. A dropped one may lie there still.
    entry: object = None
    #: Runs that ended with a dead child.
    attempts: int = 0
    #: The scheduler's ChildState of the child that has it, and its number on that connection.
    child: Any = None
    number: int = 0
    #: It is being revoked, and then fails with this.
    late: Exception | None = None

    def __repr__(self) -> str:
        """Without what it is called with, which may be personal data."""
        return f"<Call {self.sequence} {self.command}>"

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self.future.__await__())
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
        return self.future.done()

    @property
    def size_bytes(self) -> int:
        """Of what its command is called with."""
        return len(self.arguments) + len(self.keywords)

    @property
    def queued(self) -> bool:
        """Whether it waits in the queue of its pool."""
        return self.entry is not None

    @property
    def untouched(self) -> bool:
        """Whether nothing of its answer was read, so that it may run again."""
        return self.stream is None or not self.stream.touched

    def may_run_again(self, options: CommandOptions, retries: int) -> bool:
        """Whether it may be sent again after a child died in it.

        `options`: what the application that ran it says of the command; `retries`: how often where
        neither the caller nor `options` say so. The caller goes before `options`.
        """
        if self.idempotent is None:
            idempotent = options.idempotent
        else:
            idempotent = self.idempotent
        if self.retries is not None:
            retries = self.retries
        elif options.retries is not None:
            retries = options.retries
        return idempotent and self.attempts < retries and self.untouched

    def succeed(self, value: Raw) -> None:
        """The command's result."""
        if self.future.done():
            return
        if self.stream is not None:
            self.stream.add(value)
            self.future.set_result(None)
            return
        try:
            self.future.set_result(self.decode(value))
        except Exception as error:  # noqa: BLE001 - the result is no `type`: its caller's to know
            self.future.set_exception(error)

    def end(self) -> None:
        """A stream is complete."""
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, error: Exception) -> None:
        """There is no answer but this."""
        if self.future.done():
            return
        self.future.set_exception(error)
        if self.stream is not None or isinstance(error, CallCancelled):
            self.future.exception()  # told by the stream; who cancelled need not await it

    def abandon(self, error: Exception) -> None:
        """As `fail`, in a forked process: it need not be awaited here."""
        self.fail(error)
        if not self.future.cancelled():
            self.future.exception()

    def add_done_callback(self, tell: Callable[[Future[Any]], object]) -> None:
        """Have `tell` called by the event loop when the call is over."""
        self.future.add_done_callback(tell)

    def error(self) -> BaseException | None:
        """What it failed with; only when it is done."""
        return CancelledError() if self.future.cancelled() else self.future.exception()


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
