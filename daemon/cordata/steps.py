"""Logs what blocks the event loop: a step of a handler or request that takes too long.

All requests and handlers of the process wait meanwhile.
"""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from cordata.log import LogThrottle, fields, logger

log = logger("cordata.engine")

T = TypeVar("T")

#: A step with more processor time than this blocks the loop, in seconds.
_STEP_S = 0.1
_SAMPLE_S = 0.02
#: By name of the function.
_log_throttle = LogThrottle()


@types.coroutine
def measured(
    name: str,
    awaitable: Awaitable[T],
    describe: Callable[[], str] | None = None,
    waits: Callable[[], None] | None = None,
) -> Generator[Any, Any, T]:
    """Await it, and warn when one step of it takes too much of the loop thread's processor time.

    At most a line a minute and name. `describe()` is told instead of the name, where names are
    made of what users send. `waits()` is called when it waits for the first time.
    """
    steps: Any = awaitable.__await__()
    value: Any = None
    error: BaseException | None = None
    while True:
        begun = time.perf_counter()
        if begun - _sample.at > _SAMPLE_S:
            _sample.take(begun)
        try:
            wanted = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            if time.perf_counter() - begun > _STEP_S:
                _look(name, begun, describe)
        value = error = None
        if waits is not None:
            waits()
            waits = None
        try:
            value = yield wanted
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - passed on
            error = thrown


class _Sample:
    """The loop thread's processor time at a moment: to ask for it costs 1.6 us, too much per step.

    The moment is at most `_SAMPLE_S` before a step, and no thread takes more than all the time.
    """

    def __init__(self) -> None:
        self.at, self.processor_s, self.thread = float("-inf"), 0.0, 0

    def take(self, now: float) -> None:
        """Remember the processor time of now."""
        self.at, self.processor_s = now, time.thread_time()
        self.thread = threading.get_ident()


_sample = _Sample()


def _look(name: str, begun: float, describe: Callable[[], str] | None) -> None:
    """A step was long: log it if that was processor time."""
    if _sample.thread != threading.get_ident():  # another loop in another thread
        return
    took_s = time.thread_time() - _sample.processor_s - (begun - _sample.at)
    if took_s <= _STEP_S:
        return
    if _log_throttle.is_due(name):
        log.warning(
            "%s blocked the event loop: %.0f ms of processor time in one step; let a command of the"
            " pool (@app.command) or a thread (asyncio.to_thread) do that",
            name if describe is None else describe(),
            took_s * 1000,
            extra=fields(group=name),
        )
