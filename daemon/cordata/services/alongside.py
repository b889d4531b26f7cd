"""Side loops for the length of a block: a TaskGroup whose errors keep their own type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def alongside(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `loops` while inside and cancel them at the end.

    Raises: what the block raised, as it is; or the error of the first loop that failed, which
    cancels the block.
    """
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again below
                failure = error
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if failure is not None:
        raise failure
