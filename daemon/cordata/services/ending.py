"""The end of an attempt: what a handler left behind can change nothing any more."""

from __future__ import annotations

import asyncio

from cordata.core.once import Once


async def end(once: Once) -> None:
    """Close an attempt, and wait for its commit if that is under way in a task of the handler's.

    So the outcome that is told afterwards is the last word on it. The store bounds the wait.
    """
    settled = asyncio.Event()
    if not once.end(settled.set):
        await settled.wait()
