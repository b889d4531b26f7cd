"""Numbers in sentences for people."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """`1 event`, `0 events`, `1,200 events`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
