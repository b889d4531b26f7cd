"""An application with a job of each kind: daily, by scope, and one with nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from cordata import App, Context

app = App("diary")


@app.job("daily")
async def daily(ctx: Context, scope: str, period: str) -> None:
    """Once a day."""


async def nothing(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """Whatever the time is."""
    return []


@app.job("idle", due=nothing)
async def idle(ctx: Context, scope: str, period: str) -> None:
    """Runs when it is named."""


async def two(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """Due for ever."""
    return [("north", "p1"), ("south", "p1")]


@app.job("halves", due=two)
async def halves(ctx: Context, scope: str, period: str) -> None:
    """Fails in the south."""
    if scope == "south":
        raise RuntimeError("broken")
