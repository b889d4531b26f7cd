"""Lifespans of mounted applications."""

from __future__ import annotations

import asyncio
from typing import Any

from cordata.app import Mount
from cordata.http import compose


async def slow_start(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await asyncio.sleep(0)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def knows_no_lifespan(scope: Any, receive: Any, send: Any) -> None:
    return


async def test_mounts_start_when_one_returned_before_its_turn() -> None:
    composed = compose(
        [Mount(prefix="/a", app=slow_start), Mount(prefix="/b", app=knows_no_lifespan)]
    )
    wanted: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])
        wanted.put_nowait({"type": "lifespan.shutdown"})

    wanted.put_nowait({"type": "lifespan.startup"})
    async with asyncio.timeout(5):
        await composed({"type": "lifespan", "state": {}}, wanted.get, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
