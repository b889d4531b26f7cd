"""An application with one of everything that a command can reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cordata import App, Context

app = App("shop")


@app.settings("shop")
@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """[shop]."""

    owner: str = "Ann"
    api_token: str = ""


async def due(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
    """Two scopes, one period."""
    return [("north", "p1"), ("south", "p1")]


@app.job("count", due=due)
async def count(ctx: Context, scope: str, period: str) -> None:
    """Says what it did."""
    ctx.log.info("counted %s %s", scope, period)


@app.job("fail", due=due)
async def fail(ctx: Context, scope: str, period: str) -> None:
    """Never succeeds."""
    raise RuntimeError("broken")
