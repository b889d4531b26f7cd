"""What a statement does, read off its text, and one statement that does it for many units at once.

Nothing here is a parser of SQL: whatever is not surely understood is OTHER, which a unit runs in a
transaction of its own, or has no merged form, and is sent once per unit.

    SELECT ... WHERE k = $1       SELECT u.i, q.* FROM unnest($1::text[]) ... AS u (p1, i)
                                  CROSS JOIN LATERAL (SELECT ... WHERE k = u.p1 OFFSET 0) AS q
    INSERT ... VALUES ($1, now()) INSERT ... SELECT u.p1, now() FROM unnest($1::text[]) ... AS u
    ... ON CONFLICT DO NOTHING    ... RETURNING what was given, which tells whose rows are new

OFFSET 0 keeps the planner from turning many look-ups into one join: the plan of each stays that of
the single statement, whatever a table without statistics makes it believe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cordata.store.postgres.lex import (
    Token,
    closing,
    find_words,
    lone_param,
    read_table,
    read_tokens,
    split_list,
)
from cordata.store.postgres.statement import Kind, Statement

#: Of the merged statements: names that no statement of an application has.
_ROWS, _FOUND = "_units", "_found"
#: Of a merged SELECT, the column with the number of the unit, from 1.
UNIT_COLUMN = "_unit"
#: What calls one of these gives another answer each time; once for all units would not be once for
#: each.
_FICKLE = re.compile(
    r"\b(nextval|random\w*|gen_random_uuid|uuid\w*|clock_timestamp|timeofday)\b", re.I
)
#: Calls that do more than read: a unit that fails behind one must take that back, and those that
#: share its transaction must not meet it (no lock keeps them apart, and a setting is theirs too).
_EFFECT = re.compile(
    r"\b(setval|set_config|pg_notify|pg_(try_)?advisory\w*|pg_sleep\w*|lo_\w+|dblink\w*"
    r"|pg_logical_emit_message|pg_terminate_backend|pg_cancel_backend|query_to_xml\w*)\b",
    re.I,
)


def read_statement(sql: str, width: int) -> Statement:
    """What is known of a statement with `width` parameters, `$1` to `$width`."""
    tokens = read_tokens(sql)
    if not tokens or _ROWS in sql or _FOUND in sql or _EFFECT.search(sql):
        return Statement(kind=Kind.OTHER)
    word = tokens[0].word
    if word in ("SELECT", "WITH", "VALUES"):
        return _read(sql, tokens, width)
    if word == "INSERT":
        return _insert(sql, tokens, width)
    if word in ("UPDATE", "DELETE"):
        return _change(tokens)
    return Statement(kind=Kind.OTHER)


def _replaced(sql: str, tokens: Sequence[Token]) -> str:
    """The text of these tokens with columns of the units' rows for the parameters."""
    parts, at = [], tokens[0].start
    for token in tokens:
        if token.param:
            parts += [sql[at : token.start], f"{_ROWS}.p{token.param}"]
            at = token.end
    parts.append(sql[at : tokens[-1].end])
    return "".join(parts)


def _unnest(width: int) -> str:
    columns = ", ".join(f"p{n}" for n in range(1, width + 1))
    return f"unnest({{types}}) WITH ORDINALITY AS {_ROWS} ({columns}, i)"


def _lateral(sql: str, tokens: Sequence[Token], width: int) -> str:
    """FROM clause that runs a SELECT once for each row of the units."""
    fenced = any(t.depth == 0 and t.word in ("LIMIT", "OFFSET", "FETCH") for t in tokens)
    fence = "" if fenced else " OFFSET 0"
    return (
        f"FROM {_unnest(width)}\nCROSS JOIN LATERAL ({_replaced(sql, tokens)}{fence}) AS {_FOUND}"
    )


def _read(sql: str, tokens: Sequence[Token], width: int) -> Statement:
    words = {t.word for t in tokens}
    if words & {"INSERT", "UPDATE", "DELETE", "MERGE", "INTO"}:
        locks = words & {"FOR"} and not words & {"INSERT", "DELETE", "MERGE", "INTO"}
        return Statement(kind=Kind.OTHER, returns=bool(locks))
    if (
        find_words(tokens, ["FOR", "SHARE"], depth=None) >= 0
        or find_words(tokens, ["KEY", "SHARE"], depth=None) >= 0
    ):
        return Statement(kind=Kind.SHARE, returns=True, sees=_sees(tokens))
    merged = ""
    if width and not _FICKLE.search(sql):
        merged = f"SELECT {_ROWS}.i AS {UNIT_COLUMN}, {_FOUND}.*\n{_lateral(sql, tokens, width)}"
    return Statement(kind=Kind.READ, returns=True, merged=merged, sees=_sees(tokens))


def _sees(tokens: Sequence[Token]) -> frozenset[str]:
    if any(t.word in ("SELECT", "FROM", "USING", "TABLE") for t in tokens):
        return frozenset(t.name for t in tokens if t.name)
    return frozenset()


def _insert(sql: str, tokens: Sequence[Token], width: int) -> Statement:
    other = Statement(kind=Kind.OTHER)
    if len(tokens) < 4 or tokens[1].word != "INTO":
        return other
    table, at = read_table(tokens, 2)
    if at < len(tokens) and tokens[at].word == "AS":
        at += 2
    if not table or at >= len(tokens) or tokens[at].text != "(":
        return other
    end = closing(tokens, at)
    listed = split_list(tokens[at + 1 : end])
    if not all(len(part) == 1 and part[0].name for part in listed):
        return other
    names = [part[0].name for part in listed]
    body, head = end + 1, sql[: tokens[end].end]
    tail = len(tokens)
    for words in (["ON", "CONFLICT"], ["RETURNING"]):
        if (found := find_words(tokens, words)) >= 0:
            tail = min(tail, found)
    source, rest = tokens[body:tail], tokens[tail:]
    if not source or any(t.word == "FOR" for t in source):
        return other
    values, merged = _source(sql, source, names, width)
    if values is None:
        return other
    kind, columns = _conflict(rest, names, values)
    returns = find_words(rest, ["RETURNING"]) >= 0
    single = source[0].word == "VALUES"
    plain = kind in (Kind.ADD, Kind.OFFER) and not any(t.param for t in rest)
    given: tuple[int, ...] = ()
    if not (width and plain and (single or not returns)) or _FICKLE.search(sql):
        merged = ""
    elif merged:
        merged = f"{head}\n{merged}{' ' + sql[rest[0].start : rest[-1].end] if rest else ''}"
        if kind is Kind.OFFER and single and not returns and columns:
            given = tuple(columns.values())
            merged += f" RETURNING {', '.join(f'{_quoted(name)}::text' for name in columns)}"
    return Statement(
        kind=kind,
        table=table,
        columns=columns,
        sees=_sees([*source, *rest]),
        single=single,
        returns=returns,
        merged=merged,
        given=given,
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _source(
    sql: str, source: Sequence[Token], names: Sequence[str], width: int
) -> tuple[dict[str, int] | None, str]:
    """Columns that are parameters, and the merged source of the rows; None: not understood."""
    if source[0].word == "VALUES":
        if source[1].text != "(" or (end := closing(source, 1)) != len(source) - 1:
            return None, ""  # more than one row
        given = split_list(source[2:end])
        if len(given) != len(names) or not all(given):
            return None, ""
        merged = f"SELECT {_replaced(sql, source[2:end])}\nFROM {_unnest(width)} ORDER BY {_ROWS}.i"
        if any(t.word in ("DEFAULT", "SELECT") for t in source):
            merged = ""
    elif source[0].word == "SELECT":
        stop = next((i for i, t in enumerate(source) if t.depth == 0 and t.word == "FROM"), None)
        given = split_list(source[1:stop])
        union = any(t.depth == 0 and t.word in ("UNION", "EXCEPT", "INTERSECT") for t in source)
        if union or len(given) != len(names):
            given = [()] * len(names)
        merged = f"SELECT {_FOUND}.* {_lateral(sql, source, width)}"
    else:
        return None, ""
    columns = {
        name: index
        for name, part in zip(names, given, strict=True)
        if part and (index := lone_param(part)) >= 0
    }
    return columns, merged


def _conflict(
    rest: Sequence[Token], names: Sequence[str], values: dict[str, int]
) -> tuple[Kind, dict[str, int]]:
    """What an INSERT does with a row that is there, and the columns that matter for it."""
    if find_words(rest, ["ON", "CONFLICT"]) < 0:
        return Kind.ADD, values
    if find_words(rest, ["DO", "NOTHING"]) >= 0:
        return Kind.OFFER, values
    if rest[2].text != "(":
        return Kind.OTHER, {}
    target = [part[0].name for part in split_list(rest[3 : closing(rest, 2)]) if len(part) == 1]
    key = {name: values[name] for name in target if name in values}
    changed = _assigned(rest, find_words(rest, ["SET"]) + 1)
    if len(key) != len(target) or changed is None or changed & key.keys():
        return Kind.OTHER, {}
    return Kind.CHANGE, key


def _assigned(tokens: Sequence[Token], at: int) -> set[str] | None:
    """The columns of SET from `at` on; None: not understood."""
    stops = ("FROM", "WHERE", "RETURNING")
    end = next(
        (i for i in range(at, len(tokens)) if tokens[i].depth == 0 and tokens[i].word in stops),
        len(tokens),
    )
    names = set()
    for part in split_list(tokens[at:end]) if end > at else []:
        if len(part) < 3 or not part[0].name or part[1].text != "=":
            return None
        names.add(part[0].name)
    return names


def _change(tokens: Sequence[Token]) -> Statement:
    other = Statement(kind=Kind.OTHER)
    delete = tokens[0].word == "DELETE"
    table, at = read_table(tokens, 2 if delete else 1)
    alias = table
    if at < len(tokens) and tokens[at].word == "AS":
        at += 1
    if (
        at < len(tokens)
        and tokens[at].name
        and tokens[at].word not in ("SET", "WHERE", "USING", "RETURNING")
    ):
        alias, at = tokens[at].name, at + 1
    where, returning = find_words(tokens, ["WHERE"]), find_words(tokens, ["RETURNING"])
    if not table or where < 0 or _sees(tokens[at:]):
        return other
    changed: set[str] | None = set()
    if not delete:
        if tokens[at].word != "SET":
            return other
        changed = _assigned(tokens, at + 1)
    key = _equal(tokens[where + 1 : returning if returning > where else len(tokens)], alias)
    if changed is None or not (key := {c: n for c, n in key.items() if c not in changed}):
        return other
    return Statement(
        kind=Kind.CHANGE, table=table, columns=key, cascades=delete, returns=returning >= 0
    )


def _equal(tokens: Sequence[Token], alias: str) -> dict[str, int]:
    """Columns that a condition says to be equal to a parameter."""
    if any(t.depth == 0 and t.word in ("OR", "BETWEEN", "CURRENT", "CASE") for t in tokens):
        return {}
    found: dict[str, int] = {}
    part: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and not (token.depth == 0 and token.word == "AND"):
            part.append(token)
            continue
        if len(part) > 2 and part[1].text == "." and part[0].name == alias:
            part = part[2:]
        if len(part) > 2 and part[0].name and part[1].text == "=":
            index = lone_param(part[2:])
            if index >= 0 and part[0].word != "NOT":
                found[part[0].name] = index
        part = []
    return found
