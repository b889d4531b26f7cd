"""Named statements, read once in a process: to read them takes longer than many a test."""

from __future__ import annotations

from functools import cache

from cordata.store import Queries


@cache
def queries_of(dialect: str, *packages: str) -> Queries:
    """As `Queries.load` gives them; nobody changes them."""
    return Queries.load(packages, dialect)
