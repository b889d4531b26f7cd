"""One call of a handler, in a task of its own.

Whatever is done to that task is the handler's affair: one that cancels itself, or leaves something
behind that does so later, cannot take along the place in which it was called. And whether that
place is cancelled is plain, too: nobody but who runs it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cordata.log import fields, logger

log = logger("cordata.engine")

#: A handler that was cancelled has so long for its cleanup; then it is told that it goes on.
_CLEANUP_S = 1.0


async def call(
    name: str, handler: Callable[..., Awaitable[None]], *args: object, timeout_s: float
) -> BaseException | None:
    """Call a handler, and cancel it when it takes too long; what it raised, whatever that is.

    `name` is for the log. Raises: CancelledError, when whoever calls is cancelled, and the handler
    with it.
    """
    async with asyncio.TaskGroup() as group:
        limit = _Limit(name, group.create_task(_kept(handler, args)), timeout_s)
        error = await limit.ended()
    return error


class _Limit:
    """Of a call: its time, and that of whoever calls."""

    def __init__(
        self, name: str, task: asyncio.Task[BaseException | None], timeout_s: float
    ) -> None:
        self._name = name
        self._task = task
        self._timeout_s = timeout_s
        self._expired = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(timeout_s, self._expire)
        task.add_done_callback(lambda _: self._timer.cancel())

    async def ended(self) -> BaseException | None:
        """Wait for the end of the handler; what it raised."""
        try:
            error = await asyncio.shield(self._task)
        except asyncio.CancelledError as cancelled:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                self._cut_off("it was cut off")
                raise
            error = cancelled  # before it had begun
        if self._expired and isinstance(error, asyncio.CancelledError):
            return TimeoutError().with_traceback(error.__traceback__)
        return error

    def _expire(self) -> None:
        self._expired = True
        self._cut_off(f"its {self._timeout_s:g} s were over")

    def _cut_off(self, why: str) -> None:
        self._timer.cancel()
        if self._task.cancel():
            self._timer = self._loop.call_later(_CLEANUP_S, self._tell, why)

    def _tell(self, why: str) -> None:
        log.warning(
            "%s: the handler goes on although %s; it swallows its cancellation, and nothing but"
            " the end of this process will end it",
            self._name,
            why,
            extra=fields(group=self._name),
        )


async def _kept(
    handler: Callable[..., Awaitable[None]], args: tuple[object, ...]
) -> BaseException | None:
    """What a handler raised: a task that ended with SystemExit would end the process."""
    try:
        await handler(*args)
    except BaseException as error:  # noqa: BLE001 - the per-message boundary
        return error
    return None
