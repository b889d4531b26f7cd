"""Claims whose answer was lost: committed for this process, which never heard of them.

A store that goes away during a commit leaves open what became of it. If it was a claim, its
messages are in the hands of a process that does not know, and that would keep them by renewing all
it holds. So after such an error it compares what it has with what it is said to have, and gives
back what it did not have twice in a row (once may be a claim that is on its way).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from cordata.broker.message import Held, Outcome
from cordata.core.delivery import Verdict
from cordata.errors import StoreUnavailable
from cordata.store import Store, Unit

T = TypeVar("T")

#: Group and id of a message.
Mark = tuple[str, int | str]
#: Read at a time, beyond those that are known.
_LIMIT = 500


class Strays:
    """Of one process."""

    def __init__(self) -> None:
        #: Whether there may be some.
        self.possible = False
        self._suspects: frozenset[Mark] = frozenset()

    async def claiming(self, store: Store, unit: Unit[T]) -> T:
        """Run a unit that claims. Raises: as `Store.run`."""
        try:
            return await store.run(unit)
        except StoreUnavailable:
            self.possible = True
            raise

    async def look(
        self, held: Callable[[int], Awaitable[Sequence[Held]]], known: Collection[Mark]
    ) -> list[Outcome]:
        """What goes back. `held(limit)` reads what the process is said to have."""
        self.possible = False  # a doubt that comes meanwhile stays
        rows = await held(len(known) + _LIMIT)
        unknown = [row for row in rows if (row.group, row.id) not in known]
        found = [row for row in unknown if (row.group, row.id) in self._suspects]
        self._suspects = frozenset((row.group, row.id) for row in unknown)
        if unknown:
            self.possible = True
        return [
            Outcome(group=row.group, id=row.id, verdict=Verdict.BACK, order_key=row.order_key)
            for row in found
        ]
