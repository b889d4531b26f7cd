"""The statements of units that go out together, and the order in which the units stand there."""

from __future__ import annotations

from collections.abc import Sequence

from cordata.store.postgres.book import Book
from cordata.store.postgres.entry import Entry
from cordata.store.postgres.share import Share
from cordata.store.postgres.unit import unsendable
from cordata.store.queries import Query

#: Ranked units first, the others by the first statement of each.
Standing = tuple[bool, int, str, list[tuple[bool, str]]]


def standing(entry: Entry) -> Standing:
    """What to sort by, so that units of two processes that want the same rows meet in one order.

    The rows that are added cannot tell: they bear new ids. But a unit that adds a row looked for
    it before, or offers it. Those that do neither stand as they came.
    """
    if entry.rank >= 0:
        return False, entry.rank, "", []
    if entry.first is None:
        calls = entry.tx.deferred or (entry.ask.calls if entry.ask else ())
        entry.first = True, 0, "", []
        if calls and (calls[0].query.reads or "CONFLICT" in calls[0].query.sql):
            values = [(value is not None, str(value)) for value in calls[0].args]
            entry.first = True, 0, calls[0].query.name, values
    return entry.first


def shares_of(unit: int, entry: Entry) -> list[Share]:
    """What a unit has written but not sent, and what it waits for."""
    shares = [Share(unit, query, args, "") for query, args in entry.tx.deferred]
    if entry.ask is not None:
        wants = entry.ask.wants
        shares += [Share(unit, query, args, wants) for query, args in entry.ask.calls]
    return shares


def may_have_changed(shares: Sequence[Share], book: Book) -> bool:
    """Whether writes that were sent may have changed something."""
    for share in shares:
        if share.wants == "rows" and book[share.query].returns:
            if share.rows:
                return True
        elif share.wants != "count" or share.count:
            return True
    return False


def find_unfit(units: Sequence[Sequence[Share]]) -> int:
    """The first unit with a value that cannot be sent."""
    return next(u for u, shares in enumerate(units) if unsendable(shares))


def rivals(units: Sequence[Sequence[Share]], book: Book, fixed: int) -> list[int]:
    """The units that add a row which an earlier one adds as well, as far as that is known.

    Not among the first `fixed`: it is too late for those.
    """
    keys = book.unique
    if not keys or len(units) < 2:
        return []
    first: dict[tuple[Query, tuple[int, ...], tuple[object, ...]], int] = {}
    found: list[int] = []
    for u, shares in enumerate(units):
        for share in shares:
            for key in keys.get(share.query, ()):
                values = tuple([share.args[index] for index in key])
                try:
                    new = first.setdefault((share.query, key, values), u) == u
                except TypeError:  # a bytearray: let the server compare
                    new = True
                if not new and None not in values and u >= fixed and u not in found:
                    found.append(u)
    return found
