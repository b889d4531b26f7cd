"""What goes out as one statement: that of one unit, or the merged one of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from cordata.store.postgres.book import Book, Merged
from cordata.store.postgres.merge import UNIT_COLUMN
from cordata.store.postgres.result import Result, encode
from cordata.store.postgres.share import Share
from cordata.store.postgres.shared import SharedTransaction
from cordata.store.postgres.statement import Kind


class Untold(Exception):
    """A merged statement did not tell what each unit's own would have told."""


class Packet:
    """One statement, with the shares of its units."""

    __slots__ = ("_formats", "_given", "_merged", "_sql", "_values", "shares")

    def __init__(
        self, shares: Sequence[Share], merged: Merged | None, given: tuple[int, ...] = ()
    ) -> None:
        """`merged`: None for a single share; `given`: see Statement. Raises: PermanentError."""
        self.shares = shares
        self._given = given
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
        """Give each share what is its own of the result. Raises: Untold."""
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
            self._receive_added(result)

    def _receive_added(self, result: Result) -> None:
        """Of an INSERT of one row each."""
        if self._given and result.count != len(self.shares):
            self._receive_offered(result.rows())
            return
        # They come back in the order in which they went.
        rows = [] if self._given else result.rows()
        if result.count != len(self.shares) or (rows and len(rows) != len(self.shares)):
            raise Untold  # a trigger or a rule kept some of them back
        for share in self.shares:
            share.count = 1
        for share, row in zip(self.shares, rows, strict=False):
            share.rows = [row]

    def _receive_offered(self, rows: Sequence[dict[str, Any]]) -> None:
        """Of rows some of which were there already, or came twice: then the first one adds it."""
        added = Counter(tuple(row.values()) for row in rows)
        for share in self.shares:
            key = tuple([_text(share.args[index]) for index in self._given])
            if added[key]:
                added[key] -= 1
                share.count = 1
        if added.total():
            raise Untold  # the server writes a value in another way than we do


def _text(value: object) -> str | None:
    data = encode(value)
    return None if data is None else data.decode()


def packets_of(runs: Iterable[Sequence[Share]], book: Book, *, merge: bool = True) -> list[Packet]:
    """The packets for runs of one query each. Raises: PermanentError for a value."""
    found: list[Packet] = []
    for shares in runs:
        merged = book.merged(shares[0].query, len(shares)) if merge and len(shares) > 1 else None
        if merged is not None and _tells_apart(book, shares):
            found.append(Packet(shares, merged, book[shares[0].query].given))
        else:
            found += [Packet((share,), None) for share in shares]
    return found


def _tells_apart(book: Book, shares: Sequence[Share]) -> bool:
    """Whether a merged statement tells what each unit's own would have told."""
    statement = book[shares[0].query]
    if statement.kind is Kind.READ or statement.given:
        return True
    if statement.kind is Kind.ADD and statement.single:
        return True
    return not any(share.wants for share in shares)
