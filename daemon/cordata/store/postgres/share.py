"""One statement of one unit among those that go out together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordata.store.queries import Query


class Share:
    """A statement of a unit; afterwards, its own part of the results."""

    __slots__ = ("args", "count", "query", "rows", "unit", "wants")

    def __init__(self, unit: int, query: Query, args: Sequence[object], wants: str) -> None:
        """`unit`: its number in the group; `wants`: as of an Ask; "" when nobody waits."""
        self.unit = unit
        self.query = query
        self.args = args
        self.wants = wants
        #: Rows changed or found.
        self.count = 0
        self.rows: list[dict[str, Any]] = []
