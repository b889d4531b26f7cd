"""Named SQL statements in files, loaded once; parameters are checked before the driver runs."""

from __future__ import annotations

import copy
import difflib
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

from cordata.errors import ConfigError

_NAME = re.compile(r"^--[ \t]*name:[ \t]*(\S*)[ \t]*$", re.MULTILINE)
#: Options of the calls that take the parameters.
_RESERVED = ("lock", "rows")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: A line in a statement whose unit has to see the newest state: the statement locks, or its result
#: decides something after a lock was taken.
_NEWEST = re.compile(r"^--[ \t]*newest[ \t]*$", re.MULTILINE)
#: A line in a query that runs often.
_PLAN = re.compile(r"^--[ \t]*plan:[ \t]*(\S*)[ \t]*$", re.MULTILINE)
_VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
#: What may contain a colon (literals, quoted identifiers, comments), then a parameter.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/ | ::
      | :(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\[(?P<list>bigint|text)\])?""",
    re.VERBOSE | re.DOTALL,
)
#: The same on PostgreSQL, where brackets are subscripts and strings have further forms.
_TOKEN_POSTGRES = re.compile(
    r"""\b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
      | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | --[^\n]* | /\*.*?\*/ | ::
      | :(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\[(?P<list>bigint|text)\])?""",
    re.VERBOSE | re.DOTALL,
)
#: A row of values. Batched units that run the same statement share one, with one row for each.
_ROW = re.compile(r":row\(([^()]*)\)")
#: A list of values, passed as JSON: one prepared statement for lists of every length.
_LISTS = {
    "sqlite": "(SELECT value FROM json_each(:{name}))",
    "postgres": "(SELECT value::{type} FROM json_array_elements_text(:{name}::json))",
}
_READS = re.compile(
    r"\s*(SELECT|VALUES|EXPLAIN|WITH(?!.*\b(INSERT|UPDATE|DELETE|REPLACE|MERGE)\b))\b",
    re.I | re.DOTALL,
)
_COMMENT = re.compile(r"^\s*--[^\n]*$\n?", re.MULTILINE)
Bind = Callable[[Mapping[str, Any]], Sequence[object]]


class Query:
    """One named statement; `params` are the distinct names of its parameters.

    In `sql` each parameter is a `?` on SQLite, once per occurrence; on PostgreSQL `$1`, `$2` and so
    on, the same number for the same name. `id IN :ids[bigint]`, or `[text]`, takes a list as JSON.
    `VALUES :row(a, b)` is `VALUES (:a, :b)`; on PostgreSQL batched units that run the statement
    share one, with one row for each. Such a statement has no other parameters. Of several `rows=`
    only the sum is checked, so it must never change more rows than that for one row of values.
    """

    __slots__ = (
        "around_row",
        "bind",
        "kept_plan",
        "name",
        "newest",
        "params",
        "reads",
        "row_sql",
        "selects",
        "source",
        "sql",
        "width",
    )

    def __init__(
        self,
        name: str,
        sql: str,
        source: str,
        dialect: str = "sqlite",
        *,
        kept_plan: bool = False,
        newest: bool = False,
    ) -> None:
        names: list[str] = []
        numbers: dict[str, int] = {}
        numbered = dialect == "postgres"
        token = _TOKEN_POSTGRES if numbered else _TOKEN

        def spell(match: re.Match[str]) -> str:
            if match["list"] is None:
                return match[0]
            return _LISTS[dialect].format(name=match["name"], type=match["list"])

        #: The SQL before and after its `:row(...)`, if it has one.
        self.around_row: tuple[str, str] | None = None
        if (row := _ROW.search(sql)) is not None:
            self.around_row = (sql[: row.start()], sql[row.end() :])
            sql = f"({', '.join(f':{one.strip()}' for one in row[1].split(','))})".join(
                self.around_row
            )
        #: What `rows` has returned, by number of rows: texts of several kB.
        self.row_sql: dict[int, str] = {}
        if "[" in sql:
            sql = token.sub(spell, sql)

        def mark(match: re.Match[str]) -> str:
            if (name := match["name"]) is None:
                return match[0]
            names.append(name)
            number = numbers.setdefault(name, len(numbers) + 1)
            return f"${number}" if numbered else "?"

        self.name = name
        self.source = source
        #: On PostgreSQL: whether its plan is cached; other reads are planned each time
        #: (`-- plan: kept`).
        self.kept_plan = kept_plan
        #: On PostgreSQL: whether its unit sees the newest state with each statement, instead of one
        #: snapshot (`lock=True`, `-- newest`).
        self.newest = newest and numbered
        self.sql = token.sub(mark, sql)
        self.params = tuple(numbers)
        self.width = len(self.params)
        #: Whether its first word is that of a query; a function that it calls may still write.
        self.selects = _READS.match(token.sub(" ", sql)) is not None
        #: Whether it only reads (a function that it calls may still write).
        self.reads = self.selects and not self.newest
        #: Mapping -> values by position: six columns take 1.3 us instead of 1.5 to 1.9 by name.
        self.bind: Bind = _binder(self.params if numbered else tuple(names))

    def for_update(self) -> Query:
        """The same query with FOR UPDATE at its end."""
        locking = copy.copy(self)
        locking.sql = f"{self.sql}\nFOR UPDATE"
        locking.newest, locking.reads = True, False
        return locking

    def sql_for_rows(self, count: int) -> str:
        """The SQL of a statement with `:row(...)` for `count` rows, on PostgreSQL."""
        if (sql := self.row_sql.get(count)) is None:
            assert self.around_row is not None
            width = self.width
            rows = [
                f"({', '.join(f'${n * width + column}' for column in range(1, width + 1))})"
                for n in range(count)
            ]
            sql = self.row_sql[count] = ", ".join(rows).join(self.around_row)
        return sql

    def wrong(self, params: Mapping[str, object]) -> ConfigError:
        """The error that says which parameters of a call are missing or unknown."""
        problems = []
        if missing := [p for p in self.params if p not in params]:
            problems.append(f"query {self.name!r} lacks parameter {', '.join(missing)}")
        if extra := [p for p in params if p not in self.params]:
            problems.append(f"query {self.name!r} has no parameter {', '.join(extra)}")
        return ConfigError(*problems, hint=f"it takes {', '.join(self.params) or 'none'}")


def _insert(table: str, columns: Sequence[str], dialect: str) -> Query:
    if wrong := [name for name in (table, *columns) if not _COLUMN.match(name)]:
        raise ConfigError(
            f"insert({table!r}): {wrong[0]!r} is not a plain name",
            hint="letters, digits and _; a table with a schema needs a named statement",
        )
    name = f"insert into {table}"
    if not columns:
        return Query(name, f'INSERT INTO "{table}" DEFAULT VALUES', "insert()", dialect)
    names = ", ".join(f'"{column}"' for column in columns)
    sql = f'INSERT INTO "{table}" ({names}) VALUES :row({", ".join(columns)})'
    return Query(name, sql, "insert()", dialect)


def _binder(params: tuple[str, ...]) -> Bind:
    if not params:
        return lambda given: ()
    if len(params) == 1:
        only = params[0]
        return lambda given: (given[only],)
    return itemgetter(*params)


class _ByName(dict[str, Query]):
    """A dict, so that a hit costs no Python call; a miss raises with the nearest name."""

    def __missing__(self, name: str) -> Query:
        near = difflib.get_close_matches(name, self, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "see the SQL folders of the packages"
        raise ConfigError(f"there is no query {name!r}", hint=hint)


class Queries:
    """All named statements of one process, by name."""

    def __init__(self, queries: Iterable[Query], dialect: str = "sqlite") -> None:
        """Raises: ConfigError naming both files when a name occurs twice."""
        #: Raises ConfigError with the nearest known name for an unknown one.
        self.by_name: dict[str, Query] = _ByName()
        self._dialect = dialect
        self._inserts: dict[tuple[str, ...], Query] = {}
        self._locking: dict[str, Query] = {}
        problems = []
        for query in queries:
            if (other := self.by_name.get(query.name)) is not None:
                problems.append(f"query {query.name!r} is in {query.source} and in {other.source}")
            self.by_name[query.name] = query
        if problems:
            raise ConfigError(*problems, hint="give one of the two another name")

    @classmethod
    def load(cls, packages: Sequence[str], dialect: str) -> Queries:
        """Load `<package>/*.sql` and `<package>/<dialect>/*.sql` of every package, and those of
        the runtime.

        Raises: ConfigError with every problem found: package or folder missing, name missing,
        malformed or used twice, text before the first name, more than one statement.
        """
        found: list[Query] = []
        problems: list[str] = []
        for package in dict.fromkeys(("cordata.store.sql", *packages)):
            shared = package_folder(package)
            paths = sorted(shared.glob("*.sql"))
            if not paths or (shared / dialect).is_dir():
                paths += sorted(sql_folder(package, dialect).glob("*.sql"))
            for path in paths:
                if path.name != "bootstrap.sql":
                    found += parse(path.read_text("utf-8"), str(path), problems, dialect)
        if problems:
            raise ConfigError(*problems)
        return cls(found, dialect)

    def insert(self, table: str, columns: Iterable[str]) -> Query:
        """The statement that adds one row; its parameters are the columns.

        Raises: ConfigError when the name of the table or a column is not plain.
        """
        key = (table, *columns)
        query = self._inserts.get(key)
        if query is None:
            query = self._inserts[key] = _insert(table, key[1:], self._dialect)
        return query

    def locking(self, name: str) -> Query:
        """The query `name` as a statement of PostgreSQL that locks the rows found."""
        query = self.by_name[name]
        if query.newest:
            return query
        locking = self._locking.get(name)
        if locking is None:
            locking = self._locking[name] = query.for_update()
        return locking


def parse(text: str, source: str, problems: list[str], dialect: str = "sqlite") -> list[Query]:
    """The `-- name:` blocks of one file; errors are appended to `problems`."""
    marks = list(_NAME.finditer(text))
    head = text[: marks[0].start()] if marks else text
    if _COMMENT.sub("", head).strip():
        problems.append(f"{source}: SQL before the first `-- name:` line")
    queries = []
    for mark, following in zip_longest(marks, marks[1:]):
        name = mark[1]
        line = text.count("\n", 0, mark.start()) + 1
        body = text[mark.end() : following.start() if following else len(text)]
        sql = _COMMENT.sub("", body).strip().removesuffix(";").rstrip()
        if not _VALID.match(name):
            problems.append(f"{source}:{line}: {name!r} is not a valid name for a query")
        elif not sql:
            problems.append(f"{source}:{line}: query {name!r} is empty")
        elif ";" in (_TOKEN_POSTGRES if dialect == "postgres" else _TOKEN).sub("", sql):
            problems.append(f"{source}:{line}: query {name!r} holds more than one statement")
        else:
            plan = _PLAN.search(body)
            if plan is not None and plan[1] != "kept":
                problems.append(
                    f"{source}:{line}: plan {plan[1]!r} is unknown; use `-- plan: kept`"
                )
            query = Query(
                name,
                sql,
                f"{source}:{line}",
                dialect,
                kept_plan=plan is not None,
                newest=_NEWEST.search(body) is not None,
            )
            if query.around_row is not None and ":" in "".join(query.around_row).replace("::", ""):
                problems.append(f"{source}:{line}: query {name!r} has parameters beside :row()")
            if reserved := [param for param in _RESERVED if param in query.params]:
                problems.append(
                    f"{source}:{line}: no parameter may be named {reserved[0]!r}: it is an option"
                    " of write() or fetch_one()"
                )
            queries.append(query)
    return queries


def sql_folder(package: str, dialect: str) -> Path:
    """`<package>/<dialect>` on disk. Raises: ConfigError when either is missing.

    Plain files, since importlib.resources would cost ten imports at every process start.
    """
    folder = package_folder(package) / dialect
    if folder.is_dir():
        return folder
    raise ConfigError(
        f"package {package!r} has no folder {dialect!r}",
        hint="SQL lies in <package>/*.sql and <package>/<dialect>/*.sql",
    )


def package_folder(package: str) -> Path:
    """`<package>` on disk. Raises: ConfigError when there is none."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"there is no package {package!r} with SQL files")
    return Path(spec.submodule_search_locations[0])


def split(script: str) -> list[str]:
    """The statements of a PostgreSQL script without comments, to show one of them in an error."""
    bare = _TOKEN_POSTGRES.sub(_blank, script)
    ends = [match.end() for match in re.finditer(";", bare)]
    pieces = [script[a:b] for a, b in zip([0, *ends], [*ends, len(script)], strict=True)]
    bare_pieces = [
        re.sub(r"--[^\n]*|/\*.*?\*/", "", piece, flags=re.DOTALL).strip() for piece in pieces
    ]
    return [piece for piece in bare_pieces if piece.strip(";").strip()]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])
