"""The alerts of one process on their way into the store: few kinds, however many there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from cordata.core.alert import Group, add_to

#: Kinds kept apart.
_LIMIT = 500


class Buffer:
    """Filled from any thread, emptied by one service."""

    def __init__(self, limit: int = _LIMIT) -> None:
        #: Called when something was added; from whatever thread that happens in.
        self.wake: Callable[[], None] | None = None
        self._limit = limit
        self._guard = threading.Lock()
        self._groups: dict[str, Group] = {}

    def add(self, groups: Iterable[Group]) -> None:
        """Count these in; never blocks for long, never raises."""
        with self._guard:
            add_to(self._groups, groups, self._limit)
        if self.wake is not None:
            self.wake()

    def take(self) -> list[Group]:
        """All there is; it is the caller's now."""
        with self._guard:
            taken, self._groups = self._groups, {}
        return list(taken.values())

    def put_back(self, groups: list[Group]) -> None:
        """What could not be stored goes before what came since."""
        with self._guard:
            since, self._groups = self._groups, {group.fingerprint: group for group in groups}
            add_to(self._groups, since.values(), self._limit)

    def __len__(self) -> int:
        return len(self._groups)
