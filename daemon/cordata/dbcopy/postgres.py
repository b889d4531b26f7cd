"""The side of a copy that is PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg

from cordata.backup.postgres import Server, connected, require_unused
from cordata.config.sections import StoreConfig
from cordata.dbcopy.side import Column, Row, Side, Table, quoted, refused

#: Every column that a statement can write, with its place in the primary key. Text is ordered byte
#: by byte, as on SQLite; where the column is not, no index helps.
_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
       coalesce(l.collname NOT IN ('C', 'POSIX'), false),
       array_position(i.indkey::smallint[], a.attnum)
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attgenerated = ''
LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
    AND NOT c.relispartition
"""
#: Type of a column -> of its values as they are read and sent.
_SENT = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "bigint"),
    **dict.fromkeys(("text", "character varying"), "text"),
    "boolean": "integer",
    "bytea": "bytea",
    "double precision": "float8",
}
#: Two statements each: without the foreign key or trigger, and with it again.
_RELAX = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
       format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname,
              pg_get_constraintdef(oid))
FROM pg_constraint
WHERE contype = 'f' AND connamespace = current_schema()::regnamespace AND conparentid = 0
UNION ALL
SELECT format('ALTER TABLE %s DISABLE TRIGGER %I', t.tgrelid::regclass, t.tgname),
       format('ALTER TABLE %s ENABLE TRIGGER %I', t.tgrelid::regclass, t.tgname)
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND t.tgenabled = 'O' AND c.relnamespace = current_schema()::regnamespace
"""
_SETTINGS = (
    "SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '10s', false),"
    " set_config('idle_in_transaction_session_timeout', '0', false),"
    " set_config('synchronous_commit', 'on', false)"
)


class PostgresSide(Side):
    """A session with the server."""

    def __init__(self, name: str, server: Server) -> None:
        super().__init__(name)
        self._server = server
        self._connection = server.connection
        self._cursor = server.connection.cursor(binary=True)

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """As in Side."""
        cursor = self._cursor
        cursor.execute(_bound(sql), values) if values else cursor.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def run_script(self, script: str) -> None:
        """As in Side."""
        self._connection.execute(script.encode())

    def transaction(self) -> AbstractContextManager[object]:
        """As in Side."""
        return self._connection.transaction()

    def tables(self) -> dict[str, Table]:
        """As in Side."""
        found: dict[str, list[Column]] = {}
        for table, name, type_, collated, place in self.fetch(_COLUMNS):
            own, sent = quoted(name), _SENT.get(type_, "")
            cast = "::boolean" if type_ == "boolean" else ""
            column = Column(
                name=name,
                place=place,
                read=f"{own}::integer" if cast else own,
                order=f'{own} COLLATE "C"' if collated and type_ in _SENT else own,
                mark=f"?::{sent}{cast}",
                sent=sent,
                cast=cast,
                unknown_type="" if type_ in _SENT else type_,
            )
            found.setdefault(table, []).append(column)
        return {name: Table.of(name, columns) for name, columns in found.items()}

    def change(self, table: Table, gone: Sequence[Row], new: Sequence[Row]) -> None:
        """As in Side."""
        name, key = quoted(table.name), table.columns[: table.width]
        same = " AND ".join(
            f"own.{quoted(one.name)} = gone.{quoted(one.name)}{one.cast}" for one in key
        )
        names = ", ".join(map(quoted, table.names))
        values = ", ".join(f"{quoted(one.name)}{one.cast}" for one in table.columns)
        add = f"INSERT INTO {name} ({names}) OVERRIDING SYSTEM VALUE SELECT {values}"
        try:
            with self.transaction():
                if gone:
                    page = self._page("gone", key)
                    self._send(f"DELETE FROM {name} AS own USING {page} WHERE {same}", gone)
                if new:
                    page = self._page("new", table.columns)
                    self._send(f"{add} FROM {page} ON CONFLICT DO NOTHING", new)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            text = error.diag.message_primary or str(error)
            raise refused(table, text) from error

    def _page(self, name: str, columns: Sequence[Column]) -> str:
        """Rows as parameters: an array for each column."""
        arrays = ", ".join(f"?::{one.sent}[]" for one in columns)
        return f"unnest({arrays}) AS {name} ({', '.join(quoted(one.name) for one in columns)})"

    def _send(self, sql: str, rows: Sequence[Row]) -> None:
        self.fetch(sql, [*map(list, zip(*rows, strict=True))])

    def lock(self, tables: Sequence[str]) -> None:
        """As in Side."""
        self._connection.execute(b"BEGIN")
        self._connection.execute(
            f"LOCK TABLE {', '.join(map(quoted, tables))} IN SHARE MODE".encode()
        )

    def require_unused(self) -> None:
        """As in Side."""
        require_unused(self._server)

    def unlock(self) -> None:
        """As in Side."""
        self._connection.execute(b"COMMIT")

    def relax(self) -> list[str]:
        """As in Side."""
        found = self.fetch(_RELAX)
        for without, _ in found:
            self.run_script(without)
        return [again for _, again in found]

    def settle(self, tables: Sequence[Table]) -> None:
        """As in Side. The constraints themselves are checked when they are added again."""
        for table in tables:
            for name in table.names:
                [(sequence,)] = self.fetch(
                    "SELECT pg_get_serial_sequence(?, ?)", (quoted(table.name), name)
                )
                if sequence is not None:
                    self.fetch(
                        f"SELECT setval(?, max({quoted(name)})) FROM {quoted(table.name)}"
                        f" HAVING max({quoted(name)}) > 0",
                        (sequence,),
                    )


@contextmanager
def opened(config: StoreConfig, password: str | None, state_dir: Path) -> Iterator[PostgresSide]:
    """A session. Raises: CordataError."""
    with connected(config, password, state_dir) as server:
        server.connection.execute(_SETTINGS)
        yield PostgresSide(config.url, server)


def _bound(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%b").encode()
