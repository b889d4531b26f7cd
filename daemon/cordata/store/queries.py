"""Named SQL: SQL is SQL, in files, loaded once; parameters are checked before the driver is."""

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
#: On a line of its own in a statement that runs often.
_PLAN = re.compile(r"^--[ \t]*plan:[ \t]*(\S*)[ \t]*$", re.MULTILINE)
_VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
#: What may hide a colon (literals, identifiers in quotes, comments), then a parameter.
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
#: A list of values, given as JSON: of any length, it is one prepared statement.
_LISTS = {
    "sqlite": "(SELECT value FROM json_each(:{name}))",
    "postgres": "(SELECT value::{type} FROM json_array_elements_text(:{name}::json))",
}
_READS = re.compile(
    r"\s*(SELECT|VALUES|EXPLAIN|WITH(?!.*\b(INSERT|UPDATE|DELETE|REPLACE|MERGE)\b))\b",
    re.I | re.DOTALL,
)
#: A SELECT that locks what it finds is part of a change.
_LOCKS = re.compile(r"\bFOR\s+(NO\s+KEY\s+)?(KEY\s+)?(UPDATE|SHARE)\b", re.I)
_INSERT_SELECT = re.compile(r"\s*(WITH\b.*\b)?INSERT\b.*\bSELECT\b", re.I | re.DOTALL)
_COMMENT = re.compile(r"^\s*--[^\n]*$\n?", re.MULTILINE)
#: What stands before a name, and a name before a bracket, with its schema.
_CALL = re.compile(
    r"""(?:\b(?P<before>\w+)\s+|(?P<cast>::)\s*)?(?<![\w$".])
      (?P<name>(?:[\w$]+|"[^"]*")(?:\s*\.\s*(?:[\w$]+|"[^"]*"))*)\s*\(""",
    re.VERBOSE,
)
#: Behind them stands a type, a table or an alias with its columns, no function.
_NO_CALL_BEHIND = {"AS", "INTO", "RECURSIVE", "WITH"}
#: What a bracket may follow without a call.
_KEYWORDS = frozenset(
    """ALL AND ANY ARRAY AS BETWEEN BY CASE CONFLICT CUBE DISTINCT ELSE EXCEPT EXISTS FETCH FILTER
    FROM GROUP HAVING ILIKE IN INTERSECT IS JOIN KEY LATERAL LIKE LIMIT MATERIALIZED NOT OFFSET ON
    OR OVER PARTITION RETURNING ROLLUP ROW SELECT SET SETS SOME THEN UNION USING VALUES WHEN WHERE
    WITHIN""".split()
)
#: Functions of PostgreSQL that change nothing, neither data nor a setting nor a lock.
_HARMLESS = frozenset(
    """ABS AGE ARRAY_AGG ARRAY_APPEND ARRAY_CAT ARRAY_DIMS ARRAY_LENGTH ARRAY_POSITION ARRAY_PREPEND
    ARRAY_REMOVE ARRAY_REPLACE ARRAY_TO_JSON ARRAY_TO_STRING ARRAY_UPPER AVG BIT_AND BIT_LENGTH
    BIT_OR BOOL_AND BOOL_OR BTRIM CARDINALITY CAST CEIL CEILING CHAR_LENGTH CHR CLOCK_TIMESTAMP
    COALESCE CONCAT CONCAT_WS CONVERT_FROM CONVERT_TO COUNT CUME_DIST CURRENT_DATABASE
    CURRENT_SETTING DATE DATE_BIN DATE_PART DATE_TRUNC DECODE DENSE_RANK DIV ENCODE EVERY EXP
    EXTRACT FIRST_VALUE FLOOR FORMAT GENERATE_SERIES GENERATE_SUBSCRIPTS GEN_RANDOM_UUID GREATEST
    HASHTEXT HASHTEXTEXTENDED INITCAP ISFINITE JSONB_AGG JSONB_ARRAY_ELEMENTS
    JSONB_ARRAY_ELEMENTS_TEXT JSONB_ARRAY_LENGTH JSONB_BUILD_ARRAY JSONB_BUILD_OBJECT JSONB_EACH
    JSONB_EACH_TEXT JSONB_EXTRACT_PATH JSONB_EXTRACT_PATH_TEXT JSONB_OBJECT_AGG JSONB_OBJECT_KEYS
    JSONB_PATH_EXISTS JSONB_PATH_QUERY JSONB_SET JSONB_TO_RECORDSET JSONB_TYPEOF JSON_AGG
    JSON_ARRAY_ELEMENTS JSON_ARRAY_ELEMENTS_TEXT JSON_ARRAY_LENGTH JSON_BUILD_ARRAY
    JSON_BUILD_OBJECT JSON_EACH JSON_EACH_TEXT JSON_EXTRACT_PATH JSON_EXTRACT_PATH_TEXT
    JSON_OBJECT_AGG JSON_OBJECT_KEYS JSON_TO_RECORDSET JSON_TYPEOF LAG LAST_VALUE LEAD LEAST LEFT
    LENGTH LN LOG LOWER LPAD LTRIM MAKE_DATE MAKE_INTERVAL MAKE_TIMESTAMP MAX MD5 MIN MOD MODE NOW
    NTH_VALUE NTILE NULLIF OCTET_LENGTH OVERLAY PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK
    PG_COLUMN_SIZE PG_SLEEP PHRASETO_TSQUERY PLAINTO_TSQUERY POSITION POWER RANDOM RANK
    REGEXP_MATCH REGEXP_MATCHES REGEXP_REPLACE REGEXP_SPLIT_TO_ARRAY REGEXP_SPLIT_TO_TABLE REPEAT
    REPLACE REVERSE RIGHT ROUND ROW_NUMBER ROW_TO_JSON RPAD RTRIM SIGN SPLIT_PART SQRT
    STARTS_WITH STATEMENT_TIMESTAMP STDDEV STRING_AGG STRING_TO_ARRAY STRPOS SUBSTR SUBSTRING SUM
    TO_CHAR TO_DATE TO_JSON TO_JSONB TO_NUMBER TO_REGCLASS TO_TIMESTAMP TO_TSQUERY TO_TSVECTOR
    TRANSLATE TRIM TRUNC TS_HEADLINE TS_RANK UNNEST UPPER VARIANCE WEBSEARCH_TO_TSQUERY
    WIDTH_BUCKET""".split()
)

Bind = Callable[[Mapping[str, Any]], Sequence[object]]


class Query:
    """One named statement; `params` are the distinct names of its parameters.

    In `sql` each of them is a `?` on SQLite, once per occurrence; on PostgreSQL `$1`, `$2` and so
    on, the same number wherever the same name stands. `id IN :ids[bigint]`, or `[text]`, takes a
    list as JSON.
    """

    __slots__ = (
        "bind",
        "calls_unknown",
        "kept",
        "name",
        "newest",
        "params",
        "reads",
        "selects",
        "source",
        "sql",
        "width",
    )

    def __init__(
        self, name: str, sql: str, source: str, dialect: str = "sqlite", *, kept: bool = False
    ) -> None:
        names: list[str] = []
        numbers: dict[str, int] = {}
        numbered = dialect == "postgres"
        token = _TOKEN_POSTGRES if numbered else _TOKEN

        def spell(match: re.Match[str]) -> str:
            if match["list"] is None:
                return match[0]
            return _LISTS[dialect].format(name=match["name"], type=match["list"])

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
        #: Its plan is kept where a read is otherwise planned each time (`-- plan: kept`).
        self.kept = kept
        self.sql = token.sub(mark, sql)
        self.params = tuple(numbers)
        self.width = len(self.params)
        bare = token.sub(" ", sql)
        #: Whether it is a query by its text; a function that it calls may write all the same.
        self.selects = _READS.match(bare) is not None and _LOCKS.search(bare) is None
        #: Whether it calls a function that is not known to only read.
        self.calls_unknown = numbered and _calls_unknown(sql)
        locking = self.calls_unknown or _LOCKS.search(bare) is not None
        #: Whether its unit has to see the newest state: a query that locks, perhaps in a function,
        #: and may have waited for the lock; an INSERT that finds the rows by itself.
        self.newest = (
            locking and _READS.match(_LOCKS.sub(" ", bare)) is not None
        ) or _INSERT_SELECT.match(bare) is not None
        #: Whether it only reads. When in doubt it writes.
        self.reads = self.selects and not self.calls_unknown
        #: By position: an insert of six columns takes 1.3 us instead of 1.5 to 1.9 by name.
        self.bind: Bind = _binder(self.params if numbered else tuple(names))

    def for_update(self) -> Query:
        """The same query with FOR UPDATE at its end."""
        locking = copy.copy(self)
        locking.sql = f"{self.sql}\nFOR UPDATE"
        locking.selects, locking.reads, locking.newest = False, False, True
        return locking

    def wrong(self, params: Mapping[str, object]) -> ConfigError:
        """The error that says which parameters of a call are missing or unknown."""
        problems = []
        if missing := [p for p in self.params if p not in params]:
            problems.append(f"query {self.name!r} lacks parameter {', '.join(missing)}")
        if extra := [p for p in params if p not in self.params]:
            problems.append(f"query {self.name!r} has no parameter {', '.join(extra)}")
        return ConfigError(*problems, hint=f"it takes {', '.join(self.params) or 'none'}")


def _calls_unknown(sql: str) -> bool:
    """Whether a statement on PostgreSQL calls a function that is not known to only read."""
    shown = _TOKEN_POSTGRES.sub(lambda m: m[0] if m[0][0] in '":' else " ", sql)
    for match in _CALL.finditer(shown):
        name = re.sub(r"\s", "", match["name"]).upper().removeprefix("PG_CATALOG.")
        if match["cast"] or (match["before"] or "").upper() in _NO_CALL_BEHIND:
            continue
        if name not in _KEYWORDS and name not in _HARMLESS:
            return True
    return False


def _insert(table: str, columns: Sequence[str], dialect: str) -> Query:
    if wrong := [name for name in (table, *columns) if not _COLUMN.match(name)]:
        raise ConfigError(
            f"insert({table!r}): {wrong[0]!r} is not a plain name",
            hint="letters, digits and _; a table with a schema needs a named statement",
        )
    names = ", ".join(f'"{column}"' for column in columns)
    values = f"({names}) VALUES ({', '.join(f':{column}' for column in columns)})"
    sql = f'INSERT INTO "{table}" {values if columns else "DEFAULT VALUES"}'
    return Query(f"insert into {table}", sql, "insert()", dialect)


def _binder(params: tuple[str, ...]) -> Bind:
    if not params:
        return lambda given: ()
    if len(params) == 1:
        only = params[0]
        return lambda given: (given[only],)
    return itemgetter(*params)


class _ByName(dict[str, Query]):
    """A dict, so that a hit costs no Python call; a miss says which name is near."""

    def __missing__(self, name: str) -> Query:
        near = difflib.get_close_matches(name, self, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "see the SQL folders of the packages"
        raise ConfigError(f"there is no query {name!r}", hint=hint)


class Queries:
    """All named statements of one process, by name."""

    def __init__(self, queries: Iterable[Query], dialect: str = "sqlite") -> None:
        """Raises: ConfigError naming both files when a name occurs twice."""
        #: Raises ConfigError with the nearest known name for one that is in no file.
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
        """The queries of every `<package>/*.sql` and `<package>/<dialect>/*.sql`, the runtime's own
        first.

        Raises: ConfigError with every problem found: package or folder missing, name missing,
        malformed or used twice, text before the first name, more than one statement.
        """
        found: list[Query] = []
        problems: list[str] = []
        for package in dict.fromkeys(("cordata.store.sql", *packages)):
            shared = _package_folder(package)
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

        Raises: ConfigError when table or column are no plain names.
        """
        key = (table, *columns)
        query = self._inserts.get(key)
        if query is None:
            query = self._inserts[key] = _insert(table, key[1:], self._dialect)
        return query

    def locking(self, name: str) -> Query:
        """The query `name`, which locks the rows that it finds."""
        query = self.by_name[name]
        if self._dialect != "postgres":
            return query
        locking = self._locking.get(name)
        if locking is None:
            locking = self._locking[name] = query.for_update()
        return locking

    def __len__(self) -> int:
        return len(self.by_name)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self.by_name)


def parse(text: str, source: str, problems: list[str], dialect: str = "sqlite") -> list[Query]:
    """The `-- name:` blocks of one file; what is wrong is appended to `problems`."""
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
            problems.append(f"{source}:{line}: {name!r} is no name for a query")
        elif not sql:
            problems.append(f"{source}:{line}: query {name!r} is empty")
        elif ";" in (_TOKEN_POSTGRES if dialect == "postgres" else _TOKEN).sub("", sql):
            problems.append(f"{source}:{line}: query {name!r} holds more than one statement")
        else:
            plan = _PLAN.search(body)
            if plan is not None and plan[1] != "kept":
                problems.append(f"{source}:{line}: {plan[1]!r} is no plan: `-- plan: kept` or none")
            query = Query(name, sql, f"{source}:{line}", dialect, kept=plan is not None)
            if reserved := [param for param in _RESERVED if param in query.params]:
                problems.append(
                    f"{source}:{line}: no parameter may be named {reserved[0]!r}: it is an option"
                    " of write() or fetch_one()"
                )
            queries.append(query)
    return queries


def sql_folder(package: str, dialect: str) -> Path:
    """`<package>/<dialect>` on disk. Raises: ConfigError when either is missing.

    Plain files, not importlib.resources: that costs every process start ten imports.
    """
    folder = _package_folder(package) / dialect
    if folder.is_dir():
        return folder
    raise ConfigError(
        f"package {package!r} has no folder {dialect!r}",
        hint="SQL lies in <package>/*.sql and <package>/<dialect>/*.sql",
    )


def _package_folder(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"there is no package {package!r} with SQL files")
    return Path(spec.submodule_search_locations[0])


def split(script: str) -> list[str]:
    """The statements of a PostgreSQL script without comments, to name one of them."""
    bare = _TOKEN_POSTGRES.sub(_blank, script)
    ends = [match.end() for match in re.finditer(";", bare)]
    pieces = [script[a:b] for a, b in zip([0, *ends], [*ends, len(script)], strict=True)]
    told = [re.sub(r"--[^\n]*|/\*.*?\*/", "", piece, flags=re.DOTALL).strip() for piece in pieces]
    return [piece for piece in told if piece.strip(";").strip()]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])
