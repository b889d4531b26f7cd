"""Entry: one unit of work in the queue, and how it is run."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import Any

from cordata.errors import CordataError, StoreUnavailable
from cordata.store.fence import Fence, check_fence
from cordata.store.sqlite.tx import SqliteTx, drive
from cordata.store.tx import Tx, Unit


class Entry:
    """One unit that waits for its commit."""

    __slots__ = ("alone", "context", "error", "fence", "future", "unit", "value")

    def __init__(self, unit: Unit[Any], fence: Fence | None, future: asyncio.Future[Any]) -> None:
        self.unit = unit
        self.fence = fence
        self.future = future
        self.context: Context = copy_context()
        #: Its shared transaction died: the next one is its own.
        self.alone = False
        self.value: Any = None
        self.error: BaseException | None = None


class Broken(Exception):
    """The shared transaction is gone, and with it the work of all its units."""

    def __init__(self, error: CordataError) -> None:
        super().__init__(str(error))
        self.error = error


async def probe(tx: Tx) -> int:
    """A unit that changes nothing and is written like any other."""
    return await tx.execute("store.probe")


async def _fenced(entry: Entry, tx: Tx) -> Any:
    fence = entry.fence
    assert fence is not None
    await check_fence(tx, fence)
    return await entry.unit(tx)


def run_unit(entry: Entry, tx: SqliteTx) -> Any:
    """Run an entry's unit, its fence first. Raises: what the unit raises; LeaseLost."""
    return drive(entry.unit(tx) if entry.fence is None else _fenced(entry, tx), tx)


def again(error: CordataError) -> CordataError:
    """An error object of its own for each caller, since a raised one keeps its traceback."""
    if isinstance(error, StoreUnavailable):
        return type(error)(str(error), retry_after_s=error.retry_after_s, hint=error.hint)
    return type(error)(str(error), hint=error.hint)
