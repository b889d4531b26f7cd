"""What is known of the statements of this process, and their merged forms.

    text --read_statement--> Statement --describe on the server--> Merged

A merged form needs the types of the parameters, which only the server knows. They are asked for
once, when a statement was seen several times in one batch; so does the server say whether the
merged form is one that it takes, and of an INSERT, which columns no two rows may have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import postgres

from cordata.store.postgres.array import EncodeArray, array_encoder
from cordata.store.postgres.connection import Connection
from cordata.store.postgres.fault import ServerError
from cordata.store.postgres.merge import read_statement
from cordata.store.postgres.statement import Kind, Statement
from cordata.store.queries import Query

#: From so many units on one statement for all costs less than one for each, where the server keeps
#: prepared statements; measured: an INSERT 2 us less per row, a SELECT 3 us from 16 on.
_FEWEST = {Kind.READ: 12}
_FEWEST_WRITES = 3
#: Where every statement is parsed and planned anew.
_FEWEST_UNPREPARED = 2


#: The columns of a table's unique indexes; NULL for an expression. One of some rows only is none.
_UNIQUE = (
    "SELECT i.indexrelid::bigint AS index, a.attname::text AS name FROM pg_index AS i"
    " CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, at)"
    " LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number"
    " WHERE i.indrelid = to_regclass(quote_ident($1)) AND i.indisunique AND i.indpred IS NULL"
    " AND k.at <= i.indnkeyatts ORDER BY i.indexrelid, k.at"
)

#: For each unique index the parameters that are its columns.
Keys = tuple[tuple[int, ...], ...]


class Merged(NamedTuple):
    """One statement for many units."""

    sql: str
    #: For each parameter, what makes an array of its values.
    encoders: tuple[EncodeArray, ...]


class Book(dict[Query, Statement]):
    """By query, what is known of it."""

    def __init__(self, *, prepared: bool) -> None:
        super().__init__()
        self._prepared = prepared
        #: None: it has no merged form.
        self._merged: dict[Query, Merged | None] = {}
        self._wanted: set[Query] = set()
        #: Of statements that add a row which must not be there yet.
        self.unique: dict[Query, Keys] = {}

    def __missing__(self, query: Query) -> Statement:
        if query.calls_unknown:  # what it does nobody can tell by its text
            statement = Statement(kind=Kind.OTHER)
        else:
            statement = read_statement(query.sql, query.width)
        self[query] = statement
        if not statement.merged:
            self._merged[query] = None
        return statement

    def merged(self, query: Query, count: int) -> Merged | None:
        """The merged form if it is worth while for so many units, and known by now."""
        if count < 2:
            return None
        fewest = _FEWEST_UNPREPARED
        if self._prepared:
            fewest = _FEWEST.get(self[query].kind, _FEWEST_WRITES)
        if count < fewest:
            return None
        try:
            return self._merged[query]
        except KeyError:
            self[query]
            if query not in self._merged:
                self._wanted.add(query)
            return None

    def forget(self, query: Query) -> None:
        """Its merged form is not valid any more."""
        self._merged[query] = None

    @property
    def curious(self) -> bool:
        """Whether there is something to learn."""
        return bool(self._wanted)

    async def learn(self, connection: Connection) -> None:
        """Ask the server, outside of a transaction. Raises: ConnectionLost."""
        while self._wanted:
            query = self._wanted.pop()
            self._merged[query] = None
            try:
                oids = await connection.describe(query.sql)
                found = _merged(self[query], oids)
                if found is not None:
                    await connection.describe(found.sql)
                if self[query].kind is Kind.ADD and self[query].single:
                    rows = (await connection.execute(_UNIQUE, (self[query].table,))).rows()
                    if keys := _keys(self[query].columns, rows):
                        self.unique[query] = keys
            except ServerError:
                continue
            self._merged[query] = found


def _keys(columns: Mapping[str, int], rows: Sequence[Mapping[str, Any]]) -> Keys:
    """Those that the parameters tell."""
    indexes: dict[int, list[int | None]] = {}
    for row in rows:
        indexes.setdefault(row["index"], []).append(columns.get(row["name"]))
    return tuple(
        tuple([n for n in index if n is not None])
        for index in indexes.values()
        if None not in index
    )


def _merged(statement: Statement, oids: Sequence[int]) -> Merged | None:
    infos = [postgres.types.get(oid) for oid in oids]
    names: list[str] = []
    encoders: list[EncodeArray] = []
    for oid, info in zip(oids, infos, strict=True):
        # An array type is found under the name of its elements; of those no array can be made.
        if info is None or info.oid != oid or not info.array_oid:
            return None
        names.append(info.regtype)
        encoders.append(array_encoder(info.name, oid))
    return Merged(statement.merge(names), tuple(encoders))
