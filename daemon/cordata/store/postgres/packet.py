"""What goes out as one statement: that of one unit, or the merged one of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cordata.store.postgres.book import Book, Merged
from cordata.store.postgres.merge import UNIT_COLUMN
from cordata.store.postgres.result import Result, encode
from cordata.store.postgres.share import Share
from cordata.store.postgres.shared import SharedTransaction
from cordata.store.postgres.statement import Kind


class Packet:
    """One statement, with the shares of its units."""

    __slots__ = ("_formats", "_merged", "_sql", "_values", "shares")

    def __init__(self, shares: Sequence[Share], merged: Merged | None) -> None:
        """`merged`: None for a single share. Raises: PermanentError for a value."""
        self.shares = shares
        self._merged = merged is not None
        self._formats: list[int] | None = None
        self._values: list[bytes | None]
        if merged is None:
            self._sql = shares[0].query.sql
            self._values = [encode(value) for value in shares[0].args]
        else:
            self._sql = merged.sql
            columns = zip(*[share.args for share in shares], strict=True)
            pairs = [make(column) for make, column in zip(merged.encoders, columns, strict=True)]
            self._values = [data for data, _ in pairs]
            self._formats = [form for _, form in pairs]

    def send(self, transaction: SharedTransaction) -> None:
        """Queue it."""
        transaction.send_encoded(self._sql, self._values, self._formats)

    def receive(self, result: Result) -> None:
        """Give each share what is its own of the result."""
        first = self.shares[0]
        if not self._merged:
            if first.wants == "rows":
                first.rows = result.rows()
            elif first.wants:
                first.count = result.count
        elif first.query.reads:
            for row in result.rows():
                share = self.shares[row.pop(UNIT_COLUMN) - 1]
                share.rows.append(row)
                share.count += 1
        elif any(share.wants for share in self.shares):
            # Each added one row, and they come back in the order in which they went.
            rows = result.rows()
            for share in self.shares:
                share.count = 1
            for share, row in zip(self.shares, rows, strict=bool(rows)):
                share.rows = [row]


def packets_of(runs: Iterable[Sequence[Share]], book: Book, *, merge: bool = True) -> list[Packet]:
    """The packets for runs of one query each. Raises: PermanentError for a value."""
    found: list[Packet] = []
    for shares in runs:
        merged = book.merged(shares[0].query, len(shares)) if merge and len(shares) > 1 else None
        if merged is not None and _tells_apart(book, shares):
            found.append(Packet(shares, merged))
        else:
            found += [Packet((share,), None) for share in shares]
    return found


def _tells_apart(book: Book, shares: Sequence[Share]) -> bool:
    """Whether a merged statement tells what each unit's own would have told."""
    statement = book[shares[0].query]
    if statement.kind is Kind.READ or (statement.kind is Kind.ADD and statement.single):
        return True
    return not any(share.wants for share in shares)
