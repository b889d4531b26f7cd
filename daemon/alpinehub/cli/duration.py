"""Durations and moments as they are typed: 90s, 30m, 24h, 7d, 2026-01-31. Callbacks of options."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,6})([smhd]?)")


def _seconds(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else None


def duration(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Whole seconds."""
    found = _seconds(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no duration; one is 90s, 30m, 24h or 7d")
    return found


def since(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """A moment, so long ago or a date in UTC, in microseconds since the epoch; 0 for none."""
    if value is None:
        return 0
    ago = _seconds(value)
    if ago is not None:
        return int((datetime.now(UTC).timestamp() - ago) * 1_000_000)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time; one is 2h, 7d or 2026-01-31") from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000_000)
