"""One call: what to run, its state, and the future of its answer.

```
 submitted --> QUEUED --sent--> SENT --begun, answered--> over
                 ^                |
                 '--not begun:----'-- deadline, cancel: over for the caller; the child gets Cancel
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

from cordata.errors import CallCancelled, PoolClosed
from cordata.pool.client.values import error_of
from cordata.pool.shared.protocol import CommandOptions, End, Failure, Result

#: A slow reader of a stream sends credit at least this often, also before half of its window is
#: used: the child ends streams that are not read.
CREDIT_EVERY_S = 1.0


class CallOptions(TypedDict, total=False):
    """How a call runs. Defaults are those of `@app.command`, then of `[pool]`."""

    #: Id of the session that its command gets; "": none.
    session: str
    #: Seconds for the whole call, waiting and running.
    timeout: float | None
    #: Seconds that it may wait before it runs.
    queue_timeout: float | None
    #: It may run more than once: it runs again when its process dies, ...
    idempotent: bool | None
    #: ... at most this many times.
    retries: int | None
    #: 0 to 9, higher goes first.
    priority: int
    #: What the result is converted to.
    type: Any


class CallRunner(Protocol):
    """Runs calls: in the children of a pool, or, in a test, in a thread."""

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop of the callers."""

    @property
    def options(self) -> Mapping[str, CommandOptions]:
        """The options of `@app.command` of each command that is known by now."""

    def submit(self, call: Call) -> None:
        """Run the call. Raises: PoolClosed, PoolSaturated; with all other errors the call fails."""

    def cancel(self, call: Call, *, hard: bool) -> None:
        """Cancel the call; `hard`: kill its child if it does not end soon."""

    def credit(self, call: Call, count: int) -> None:
        """Let `count` more parts of its stream come."""

    def close(self) -> None:
        """End every call with PoolClosed."""


class Call(Struct, eq=False):
    """A call that was started: await it for its result, once. Cancelling that cancels the call."""

    # A Struct, and only one object for each call, for speed. First what the caller asked for:
    runner: CallRunner
    future: Future[Any]
    command: str
    #: A MessagePack array and a map.
    arguments: Raw
    keywords: Raw
    #: Monotonic times: when it was started, its deadline, and by when it must have begun (infinite:
    #: by the deadline).
    enqueued: float
    deadline: float
    queue_deadline: float
    session: str
    #: None: as `@app.command` says, then as `[pool]` does.
    idempotent: bool | None
    retries: int | None
    priority: int
    request_id: str
    #: Decodes its result, or one part of its stream.
    decode: Callable[[Raw], Any]
    #: The reader of its parts; None: it has one result.
    stream: Stream | None = None
    #: The deadline is the client's default, until a child has sent the options of the command.
    deadline_is_default: bool = False
    traceparent: str = ""
    # Then its state, which the runner changes from `submit` on.
    #: Its number in this client, in order of arrival.
    sequence: int = 0
    pool: str = ""
    #: The only worker that may run it; "": any.
    pinned: str = ""
    #: Its caller is a command that runs in a child of the same pool.
    nested: bool = False
    #: Its entry in the queue; None: it does not wait (the heap may still have a dropped entry).
    entry: object = None
    #: Earlier runs of it, each of which ended with the death of its child.
    deaths: int = 0
    #: The scheduler's ChildState of the child that has it, and its number on that connection.
    child: Any = None
    number: int = 0
    #: It is being revoked, and fails with this error afterwards.
    late_error: Exception | None = None

    def __repr__(self) -> str:
        """Without the arguments, which may be personal data."""
        return f"<Call {self.sequence} {self.command}>"

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self.future.__await__())
        except CancelledError:
            self.runner.cancel(self, hard=False)
            raise

    def cancel(self, *, hard: bool = False) -> None:
        """Cancel the call: awaiting it raises CallCancelled.

        A waiting call never runs. A running command can see it, and may go on; with `hard` its
        child is killed and replaced if it does not end within the pool's `cancel_grace_s`.
        """
        if self.done():
            self.error()  # marks it as seen: it is no longer of interest
        else:
            self.runner.cancel(self, hard=hard)
            self.fail(CallCancelled("the caller cancelled the call"))

    def done(self) -> bool:
        """Whether awaiting it returns at once."""
        return self.future.done()

    @property
    def size_bytes(self) -> int:
        """Size of the encoded arguments."""
        return len(self.arguments) + len(self.keywords)

    @property
    def queued(self) -> bool:
        """Whether it waits in the queue of its pool."""
        return self.entry is not None

    def may_run_again(self, options: CommandOptions, retries: int) -> bool:
        """Whether it may run again after a child died in it: never once a part of a stream came.

        `options`: those of the command in the application that ran it; `retries`: the default
        where neither the caller nor `options` set it. The caller's values come first.
        """
        if self.idempotent is None:
            idempotent = options.idempotent
        else:
            idempotent = self.idempotent
        if self.retries is not None:
            retries = self.retries
        elif options.retries is not None:
            retries = options.retries
        touched = self.stream is not None and self.stream.touched
        return idempotent and self.deaths < retries and not touched

    def answer(self, packet: Result | End | Failure) -> None:
        """Set what its child answered."""
        if self.future.done():
            return
        if isinstance(packet, Failure):
            self.fail(error_of(packet))
        elif isinstance(packet, End):
            self.future.set_result(None)
        elif self.stream is not None:
            self.stream.add(packet.value)
            self.future.set_result(None)
        else:
            try:
                self.future.set_result(self.decode(packet.value))
            except Exception as error:  # noqa: BLE001 - the caller asked for another `type`
                self.future.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Set the error as the answer."""
        if self.future.done():
            return
        self.future.set_exception(error)
        if self.stream is not None or isinstance(error, CallCancelled | PoolClosed):
            self.future.exception()  # marks it as seen: by the stream, or no longer of interest

    def add_done_callback(self, callback: Callable[[Future[Any]], object]) -> None:
        """Have the event loop call `callback` when the call is over."""
        self.future.add_done_callback(callback)

    def error(self) -> BaseException | None:
        """The error of a call that is done; None: it has a result."""
        return CancelledError() if self.future.cancelled() else self.future.exception()


class Stream:
    """Reads the parts of a call one by one; at most `credits` parts wait unread."""

    __slots__ = ("_parts", "_taken", "_told_at", "_wake", "credits", "touched")

    def __init__(self, credits: int) -> None:
        """Raises: ValueError."""
        if not 1 <= credits <= 1024:
            raise ValueError(f"credit is {credits}, it must be 1 to 1024")
        #: Parts that may come before the first is read.
        self.credits = credits
        self._parts: deque[Raw] = deque()
        self._wake: Future[None] | None = None
        self._taken, self._told_at = 0, monotonic()
        #: Whether a part has come.
        self.touched = False

    def add(self, value: Raw) -> None:
        """The next part."""
        self.touched = True
        self._parts.append(value)
        self.wake()

    async def next(self, call: Call) -> list[Any]:
        """The next part, in a list of one; []: the stream is complete. Raises: the call's error."""
        while not self._parts:
            if call.done():
                error = call.error()
                if error is not None:
                    raise error
                return []
            self._wake = call.runner.loop.create_future()
            await self._wake
        part = self._parts.popleft()
        self._taken += 1
        # Half of a window at a time, to avoid both a packet per part and a pause per window.
        now = monotonic()
        half = 2 * self._taken >= self.credits
        if (half or now - self._told_at >= CREDIT_EVERY_S) and not call.done():
            call.runner.credit(call, self._taken)
            self._taken, self._told_at = 0, now
        return [call.decode(part)]

    def wake(self, _: object = None) -> None:
        """A part came, or the call is over."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
