"""Calls functions of the application so that an error of one fails only that call.

`call` runs the function in a new task. `call_here` runs it in the caller's task, which is several
times faster for a handler that never waits; `is_cancelled` then says whether the caller or the
handler itself cancelled that task. `EventAttempt` is one attempt at an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

from cordata import clock, trace
from cordata.core.commit_guard import CommitGuard
from cordata.log import fields, logger, request_id
from cordata.services.loop import background
from cordata.steps import measured
from cordata.unawaited import require_awaits

log = logger("cordata.engine")

#: Time for the cleanup of a cancelled handler, before a warning that it still runs.
CLEANUP_S = 1.0


async def call(
    name: str, handler: Callable[..., Awaitable[None]], *args: object, timeout_s: float
) -> BaseException | None:
    """Call a handler, and cancel it after `timeout_s`. Returns what it raised, or None.

    `name` is for the log. Raises: CancelledError when the caller is cancelled, and the handler
    with it.
    """
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_run(name, handler, args))
        limit = _Limit(name, task, timeout_s)
        limit.begin()
        task.add_done_callback(lambda _: limit.over())
    return limit.error_of(asyncio.CancelledError() if task.cancelled() else task.result())


async def keep_running(
    loop: Callable[[], Coroutine[Any, Any, None]], is_over: Callable[[], bool]
) -> None:
    """Run `loop`, which calls handlers, in an inner task, until `is_over()`.

    A handler may cancel the task that it runs in, or leave something behind that does it later.
    Then `loop` runs in another one. Cancelling the caller's task cancels the inner one.
    """
    while not is_over():
        async with asyncio.TaskGroup() as group:
            group.create_task(loop())


async def call_here(
    name: str,
    handler: Callable[..., Awaitable[None]],
    *args: object,
    timeout_s: float,
    is_cancelled: Callable[[], bool],
) -> BaseException | None:
    """As `call`, in the task of the caller.

    `is_cancelled`: whether the caller's task is cancelled from outside; else the handler cancelled
    itself.
    """
    task = asyncio.current_task()
    assert task is not None
    error: BaseException | None = None
    limit = _Limit(name, task, timeout_s)
    try:
        with require_awaits():
            await measured(name, handler(*args), waits=limit.begin)
    except BaseException as raised:  # noqa: BLE001 - the per-message boundary
        error = raised
    limit.over()
    if limit.expired:
        task.uncancel()
    if error is not None and task.cancelling() and is_cancelled():
        raise asyncio.CancelledError  # even if the handler raised another error
    if (limit.expired or task.cancelling()) and not is_cancelled():
        await _forget_cancellation(task, is_cancelled)
    return limit.error_of(error)


class EventAttempt:
    """An attempt of a consumer group or subscription at an event.

    Within its block, log lines and spans are those of the attempt; `call` calls the handler.
    """

    __slots__ = ("_event_id", "_headers", "_name", "_number", "_source", "_token")

    def __init__(
        self, headers: Mapping[str, str], event_id: str, *, source: str, name: str, number: int
    ) -> None:
        """`source`: the event's type or category. `name`: the group or subscription."""
        self._headers = headers
        self._event_id = event_id
        self._source = source
        self._name = name
        self._number = number

    def __enter__(self) -> Self:
        self._token = request_id.set(str(self._headers.get("request_id", "")))
        trace.begin_message(self._headers, self._event_id, self._name, self._number)
        return self

    def __exit__(self, *error: object) -> None:
        request_id.reset(self._token)
        trace.end()

    async def call(
        self,
        handler: Callable[..., Awaitable[None]],
        *args: object,
        guard: CommitGuard,
        timeout_s: float,
        is_cancelled: Callable[[], bool],
    ) -> BaseException | None:
        """`call_here`, then export a span.

        Once it returns, the outcome cannot change: a commit that a task of the handler has begun
        has ended, and no other can begin.
        """
        exporter = trace.exporter
        begun_us = 0 if exporter is None else clock.now_us()
        error = await call_here(
            self._name, handler, *args, timeout_s=timeout_s, is_cancelled=is_cancelled
        )
        ended = asyncio.Event()
        if not guard.end(ended.set):
            await ended.wait()  # the store's timeouts limit it
        if exporter is not None and (span := trace.current_trace()) is not None:
            exporter.export(
                span,
                self._name,
                kind="consumer",
                begun_us=begun_us,
                attributes={
                    "messaging.system": "cordata",
                    "messaging.destination.name": self._source,
                    "messaging.message.id": self._event_id,
                    "cordata.attempt": self._number,
                    "cordata.request_id": request_id.get(),
                },
                error="" if error is None else type(error).__name__,
            )
        return error


async def _forget_cancellation(
    task: asyncio.Task[object], is_cancelled: Callable[[], bool]
) -> None:
    """Undo the task's cancellation, also one not delivered yet, which Python before 3.13 keeps."""
    while task.cancelling():
        task.uncancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if is_cancelled():
            raise


class _Limit:
    """The timeout of a call. Its timer starts when the handler first waits: before that, nothing
    could cancel it.
    """

    def __init__(self, name: str, task: asyncio.Task[Any], timeout_s: float) -> None:
        self._name = name
        self._task = task
        self._timeout_s = timeout_s
        self.expired = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the timer: the handler waits for the first time, or runs in a new task."""
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)

    def over(self) -> None:
        """Stop the timer: the handler has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def error_of(self, error: BaseException | None) -> BaseException | None:
        """The error to report: TimeoutError instead of the cancellation that it caused."""
        if self.expired and isinstance(error, asyncio.CancelledError):
            return TimeoutError().with_traceback(error.__traceback__)
        return error

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()
        self._timer = asyncio.get_running_loop().call_later(CLEANUP_S, self._tell)

    def _tell(self) -> None:
        log_ignored_cancellation(self._name, f"its {self._timeout_s:g} s were over")


@contextmanager
def after(delay_s: float | None, act: Callable[[], None]) -> Iterator[None]:
    """Call `act()` when the block has run for `delay_s` seconds; None: never."""
    if delay_s is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(delay_s, act)
    try:
        yield
    finally:
        timer.cancel()


@asynccontextmanager
async def cut_off(stop: asyncio.Event, delay_s: float | None, name: str) -> AsyncIterator[None]:
    """Cancel the block `delay_s` seconds after `stop`, without an error; None: never."""
    if delay_s is None:
        yield
        return
    loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)

    async def watch() -> None:
        await stop.wait()
        limit.reschedule(loop.time() + delay_s)

    try:
        async with limit, background(watch()):
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        log.warning("%s: what still ran was cancelled by the stop, and runs again later", name)


def log_cut_off(name: str, count: int) -> None:
    """One line about handlers that a stop cancels."""
    log.warning(
        "%s: %d handlers outlast [worker] stop_timeout_s: they are cancelled, and their events"
        " handled again, without counting an attempt",
        name,
        count,
        extra=fields(group=name),
    )


def log_ignored_cancellation(name: str, why: str) -> None:
    """One line about a handler that does not end."""
    log.warning(
        "%s: the handler goes on although %s; it swallows its cancellation, and nothing but"
        " the end of this process will end it",
        name,
        why,
        extra=fields(group=name),
    )


async def _run(
    name: str, handler: Callable[..., Awaitable[None]], args: tuple[object, ...]
) -> BaseException | None:
    """Run a handler. Returns what it raised: a task that raises SystemExit ends the process."""
    try:
        with require_awaits():
            await measured(name, handler(*args))
    except BaseException as error:  # noqa: BLE001 - the per-message boundary
        return error
    return None
