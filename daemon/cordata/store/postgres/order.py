"""In which order the writes of many units go out in one transaction.

The outcome must be that of the units run one after the other, in some order, the same for all
rows. Two orders are in use:

    by step:  all INSERTs of one kind together, then those of the next; UPDATEs and DELETEs of one
              table together, sorted by the rows they name: so two transactions lock in one order
    by unit:  all writes of the first unit, then all of the second, and so on

By step is right as long as nothing that is moved past another unit's write touches the same row.
`Order` decides that from the texts of the statements, once for each mix of units that occurs; what
it cannot be sure of goes by unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from cordata.store.postgres.result import encode
from cordata.store.postgres.share import Share
from cordata.store.postgres.statement import WRITES, Kind, Statement
from cordata.store.queries import Query

#: The statements of a unit, in its own order.
Pattern = tuple[Query, ...]
#: What goes out as one, since its statements are the same and no other stands between them.
Run = list[Share]
#: Orders are remembered for so many mixes of units.
_ORDERS = 1000
#: Longer patterns are looked at before they are remembered.
_LONG = 12


class _Keyed(NamedTuple):
    """A table whose rows are named by parameters, in these columns' order."""

    #: By statement, the parameters that name the row.
    changes: dict[Query, tuple[int, ...]]
    adds: dict[Query, tuple[int, ...]]


class Order:
    """The order for units of these patterns."""

    def __init__(self, patterns: Iterable[Pattern], known: Mapping[Query, Statement]) -> None:
        patterns = list(patterns)
        queries = list(dict.fromkeys(query for pattern in patterns for query in pattern))
        statements = {query: known[query] for query in queries}
        #: Statements that no shared transaction can have.
        self.banned = frozenset(q for q in queries if statements[q].kind not in WRITES)
        #: By table that is written or seen, whether rows are only added to it, unseen.
        self.touched: dict[str, bool] = {}
        self._statements = statements
        self._keyed: list[_Keyed] = []
        self._sorted: dict[Query, tuple[int, ...]] = {}
        self._node: dict[Query, int] = {}
        #: Whether it is by step.
        self.by_step = not self.banned and self._plan(patterns)

    def arrange(
        self, units: Sequence[Sequence[Share]], fixed: int = 0
    ) -> tuple[list[Run], list[int]]:
        """The writes of these units as they go out, and the units in the order that this means.

        The first `fixed` keep their places. Raises: PermanentError for a value.
        """
        if self.by_step and not self._collides(units):
            return self._steps(units), list(range(len(units)))
        rest = sorted(range(fixed, len(units)), key=lambda u: self._first_row(units[u]))
        sequence = [*range(fixed), *rest]
        return [[share] for u in sequence for share in units[u]], sequence

    def bans(self, shares: Sequence[Share]) -> bool:
        """Whether one of these statements needs a transaction of its own."""
        return any(share.query in self.banned for share in shares)

    def touches(self, shares: Sequence[Share], table: str) -> bool:
        """Whether one of these statements writes or sees a table."""
        statements = (self._statements[share.query] for share in shares)
        return any(s.table == table or table in s.sees for s in statements)

    def _plan(self, patterns: Sequence[Pattern]) -> bool:
        tables: dict[str, list[Query]] = {}
        for query, statement in self._statements.items():
            tables.setdefault(statement.table, []).append(query)
            self.touched[statement.table] = (
                self.touched.get(statement.table, True) and statement.kind is Kind.ADD
            )
        seen = {name for s in self._statements.values() for name in s.sees}
        for name in seen:
            self.touched[name] = False
        sure = not seen & tables.keys()
        for queries in tables.values():
            sure = self._plan_table(queries) and sure
        if not sure or any(s.cascades for s in self._statements.values()):
            return False
        nodes = _sort([tuple(self._place(query) for query in pattern) for pattern in patterns])
        if nodes is None:
            return False
        self._node = {query: nodes[self._place(query)] for query in self._statements}
        return True

    def _plan_table(self, queries: Sequence[Query]) -> bool:
        """Whether one table's statements may be moved past each other; how rows are told apart."""
        changes = [q for q in queries if self._statements[q].kind is Kind.CHANGE]
        adds = [q for q in queries if self._statements[q].kind is Kind.ADD]
        offers = len(queries) - len(changes) - len(adds)
        if not changes:
            return not offers or len(queries) == 1
        columns = sorted(set.intersection(*(set(self._statements[q].columns) for q in changes)))
        by_row = {
            q: tuple(self._statements[q].columns[c] for c in columns)
            for q in queries
            if all(c in self._statements[q].columns for c in columns)
        }
        if not columns:
            return False
        self._sorted |= {q: by_row[q] for q in changes}
        if offers or not all(q in by_row for q in adds):
            return False
        if adds:
            keyed = _Keyed({q: by_row[q] for q in changes}, {q: by_row[q] for q in adds})
            self._keyed.append(keyed)
        return True

    def _place(self, query: Query) -> str:
        """Statements of one place go out together."""
        statement = self._statements[query]
        return f"change {statement.table}" if statement.kind is Kind.CHANGE else query.name

    def _steps(self, units: Sequence[Sequence[Share]]) -> list[Run]:
        steps: list[Run] = [[] for _ in range(len(set(self._node.values())))]
        for shares in units:
            for share in shares:
                steps[self._node[share.query]].append(share)
        found: list[Run] = []
        for step in steps:
            if step and step[0].query in self._sorted:
                step.sort(key=self._row)
                found += [[share] for share in step]
            elif step:
                found.append(step)
        return found

    def _row(self, share: Share) -> list[tuple[bool, bytes]]:
        """The row that a statement changes, to sort by."""
        key = _key(share, self._sorted[share.query])
        return [(value is None, value or b"") for value in key]

    def _first_row(self, shares: Sequence[Share]) -> tuple[str, list[tuple[bool, bytes]]]:
        """The first row that a unit changes, to sort by."""
        for share in shares:
            if share.query in self._sorted:
                return self._statements[share.query].table, self._row(share)
        return "", []

    def _collides(self, units: Sequence[Sequence[Share]]) -> bool:
        """Whether a unit changes a row that another one adds."""
        for changes, adds in self._keyed:
            changed: dict[tuple[bytes | None, ...], set[int]] = {}
            added: list[Share] = []
            for shares in units:
                for share in shares:
                    if share.query in changes:
                        key = _key(share, changes[share.query])
                        changed.setdefault(key, set()).add(share.unit)
                    elif share.query in adds:
                        added.append(share)
            for share in added if changed else ():
                if changed.get(_key(share, adds[share.query]), set()) - {share.unit}:
                    return True
        return False


class Orders:
    """The orders of this process, each made when its mix of units first occurs."""

    def __init__(self, known: Mapping[Query, Statement]) -> None:
        self._known = known
        self._orders: dict[frozenset[Pattern], Order] = {}

    def of(self, units: Sequence[Sequence[Share]]) -> Order:
        """The one for these units."""
        patterns = frozenset([_pattern(shares) for shares in units])
        order = self._orders.get(patterns)
        if order is None:
            if len(self._orders) >= _ORDERS:
                self._orders.clear()
            order = self._orders[patterns] = Order(patterns, self._known)
        return order


def _pattern(shares: Sequence[Share]) -> Pattern:
    """What matters of it: how often a statement is repeated does not."""
    queries = [share.query for share in shares]
    if len(queries) > _LONG:
        return tuple([query for query, _ in groupby(queries)])
    return tuple(queries)


def crossing(
    before: Order,
    before_units: Sequence[Sequence[Share]],
    before_ranks: Sequence[int],
    order: Order,
    units: Sequence[Sequence[Share]],
    ranks: Sequence[int],
) -> set[int]:
    """The units that write what one of a later rank has written or seen before them.

    `before` was sent earlier; a rank of -1 is later than all others.
    """
    found: set[int] = set()
    for table in before.touched.keys() & order.touched.keys():
        if before.touched[table] and order.touched[table]:
            continue
        latest = max(
            rank
            for shares, rank in zip(before_units, before_ranks, strict=True)
            if before.touches(shares, table)
        )
        found |= {
            u
            for u, rank in enumerate(ranks)
            if 0 <= rank < latest and order.touches(units[u], table)
        }
    return found


def _key(share: Share, indexes: Sequence[int]) -> tuple[bytes | None, ...]:
    return tuple([encode(share.args[i]) for i in indexes])


def _sort(patterns: Sequence[tuple[str, ...]]) -> Mapping[str, int] | None:
    """Numbers for places, so that they grow along every pattern; None: there are none such.

    Where the patterns leave it open, by name: every process locks the tables in one order.
    """
    after: dict[str, set[str]] = {}
    for pattern in patterns:
        for place in pattern:
            after.setdefault(place, set())
        for one, other in pairwise(pattern):
            if one != other:
                after[one].add(other)
    waits = {place: sum(place in others for others in after.values()) for place in after}
    numbers: dict[str, int] = {}
    while ready := [place for place, count in waits.items() if not count]:
        place = min(ready)
        numbers[place] = len(numbers)
        del waits[place]
        for other in after[place]:
            waits[other] -= 1
    return None if waits else numbers
