"""How whoever waits for a unit is told what it failed with, whatever that is."""

from __future__ import annotations

import asyncio
from typing import Any

from cordata.errors import CordataError, StoreUnavailable


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """End a future with what a unit raised, if anybody still waits for it.

    SystemExit and KeyboardInterrupt are a unit's failure as well: raised where units are run they
    would end the process, and with it the units of all others.
    """
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif isinstance(error, StopIteration | GeneratorExit):
        # No future takes the one, and the other one closes all coroutines that wait for it.
        told = RuntimeError(f"a unit raised {type(error).__name__}")
        told.__cause__ = error
        future.set_exception(told)
    else:
        future.set_exception(error)


def again(error: CordataError) -> CordataError:
    """An error object of its own for each caller, since a raised one keeps its traceback."""
    if isinstance(error, StoreUnavailable):
        return type(error)(str(error), retry_after_s=error.retry_after_s, hint=error.hint)
    return type(error)(str(error), hint=error.hint)
