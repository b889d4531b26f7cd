"""An application with a job of each kind: daily, by scope, and one with nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from cordata import App, Context, TransientError

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


async def unknown(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """A bug of the application's."""
    raise LookupError("broken")


@app.job("lost", due=unknown)
async def lost(ctx: Context, scope: str, period: str) -> None:
    """Never gets so far."""


@app.job("waiting", due=two)
async def waiting(ctx: Context, scope: str, period: str) -> None:
    """Fails for now in the north, for good in the south."""
    if scope == "north":
        raise TransientError("away")
    raise RuntimeError("broken")
