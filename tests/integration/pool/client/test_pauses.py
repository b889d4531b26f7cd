"""How often a client looks for what it waits for: less and less often, as hundreds may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import TypeVarTuple

import pytest

from cordata.pool import Client

Ts = TypeVarTuple("Ts")


class FastLoop(asyncio.SelectorEventLoop):
    """Records the pauses of one kind of timers, and does not wait for them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.pauses = kind, list[float]()
        self.looked = asyncio.Event()

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As that of asyncio."""
        if getattr(callback, "__name__", "") == self.kind:
            self.pauses.append(delay)
            delay = 0.0
            if len(self.pauses) == 12:
                self.looked.set()
        return super().call_later(delay, callback, *args, context=context)


@pytest.mark.parametrize(
    ("kind", "there", "longest_s"),
    [("_look_again", False, 1.0), ("_check_children", True, 0.05)],
)
def test_pause_between_two_looks_grows_while_a_call_waits(
    tmp_path: Path, kind: str, there: bool, longest_s: float
) -> None:
    loop = FastLoop(kind)

    async def wait() -> None:
        async with Client(tmp_path if there else tmp_path / "pool", timeout=600.0) as client:
            call = client.start("echo")
            async with asyncio.timeout(60.0):
                await loop.looked.wait()
            call.cancel()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(wait())
    assert loop.pauses[0] <= 0.02
    assert sorted(loop.pauses) == loop.pauses
    assert loop.pauses[-1] == longest_s
