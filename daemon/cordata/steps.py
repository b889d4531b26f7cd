"""Logs what blocks the event loop: a step of a handler or request that takes too long.

During such a step all other requests and handlers of the process wait.
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

#: A step with more processor time than this is logged.
_STEP_S = 0.1
#: Largest age of the sample of processor time.
_SAMPLE_S = 0.02
#: Its keys are the names of functions.
_log_throttle = LogThrottle()


@types.coroutine
def measured(
    name: str,
    awaitable: Awaitable[T],
    describe: Callable[[], str] | None = None,
    waits: Callable[[], None] | None = None,
) -> Generator[Any, Any, T]:
    """Await it, and log a warning when one step takes more than 0.1 s of processor time.

    At most one line per minute and name. The line has `describe()` instead of the name, if given:
    for names that contain input of users. `waits()` is called before it waits for the first time.
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
                _check(name, begun, describe)
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
    """The loop thread's processor time at a moment: reading it takes 1.6 us, too much per step.

    The sample is at most `_SAMPLE_S` older than a step. The time in between counts as processor
    time of other steps, so that no step is overestimated.
    """

    def __init__(self) -> None:
        self.at, self.processor_s, self.thread = float("-inf"), 0.0, 0

    def take(self, now: float) -> None:
        """Store the current processor time; `now`: `time.perf_counter()`."""
        self.at, self.processor_s = now, time.thread_time()
        self.thread = threading.get_ident()


_sample = _Sample()


def _check(name: str, begun: float, describe: Callable[[], str] | None) -> None:
    """Log a step that took long, if it was processor time."""
    if _sample.thread != threading.get_ident():  # another loop in another thread
        return
    took_s = time.thread_time() - _sample.processor_s - (begun - _sample.at)
    if took_s <= _STEP_S:
        return
    if _log_throttle.is_due(name):
        log.warning(
            "%s blocked the event loop: %.0f ms of processor time in one step; move that to a"
            " command of the pool (@app.command) or a thread (asyncio.to_thread)",
            name if describe is None else describe(),
            took_s * 1000,
            extra=fields(group=name),
        )
