"""Lifespans of mounted applications."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cordata.http import compose


async def slow_start(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await asyncio.sleep(0)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def knows_no_lifespan(scope: Any, receive: Any, send: Any) -> None:
    return


class Noted:
    """Says what it was told; fails at the step named `failing`."""

    def __init__(self, name: str, told: list[str], *, failing: str = "") -> None:
        self.name = name
        self.told = told
        self.failing = failing

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        for step in ("startup", "shutdown"):
            await receive()
            self.told.append(f"{self.name} {step}")
            if step == self.failing:
                await send({"type": f"lifespan.{step}.failed", "message": self.name})
            else:
                await send({"type": f"lifespan.{step}.complete"})


async def run_lifespan(*apps: Any) -> list[dict[str, Any]]:
    """What the composed application answers to its startup, and then to its shutdown."""
    composed = compose({f"/{n}": app for n, app in enumerate(apps)})
    wanted: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)
        wanted.put_nowait({"type": "lifespan.shutdown"})

    wanted.put_nowait({"type": "lifespan.startup"})
    async with asyncio.timeout(60):
        await composed({"type": "lifespan", "state": {}}, wanted.get, send)
    return sent


async def test_mounts_start_when_one_returned_before_its_turn() -> None:
    sent = await run_lifespan(slow_start, knows_no_lifespan)
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_each_mount_is_shut_down_when_another_fails_to() -> None:
    told: list[str] = []
    sent = await run_lifespan(Noted("a", told), Noted("b", told, failing="shutdown"))
    assert told == ["a startup", "b startup", "b shutdown", "a shutdown"]
    assert sent[1]["type"] == "lifespan.shutdown.failed"


@pytest.mark.parametrize("failing", ["", "shutdown"])
async def test_startup_fails_when_one_does_whatever_the_others_do(failing: str) -> None:
    told: list[str] = []
    sent = await run_lifespan(
        Noted("a", told, failing=failing), Noted("b", told, failing="startup"), Noted("c", told)
    )
    assert told[:3] == ["a startup", "b startup", "a shutdown"]
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "lifespan.startup failed: b" in sent[0]["message"]
