"""The command of `counted`, for the pool's children."""

from __future__ import annotations

from typing import Any


def double(payload: Any, session: Any) -> int:
    """Twice the number; it refuses others."""
    if payload is None:
        raise ValueError("no number")
    return int(payload) * 2
