"""Named SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordata.errors import ConfigError
from cordata.store.queries import Queries, Query, parse, split


def one(text: str) -> Query:
    problems: list[str] = []
    (query,) = parse(text, "x.sql", problems)
    assert problems == []
    return query


def test_parameters_are_bound_each_time_when_they_repeat() -> None:
    query = one("-- name: q\nSELECT :b, :a, :b;")
    assert query.sql == "SELECT ?, ?, ?"
    assert query.params == ("b", "a")
    assert query.values({"a": 1, "b": 2}) == (2, 1, 2)


def test_binding_is_a_sequence_when_there_are_none_or_one() -> None:
    assert one("-- name: q\nSELECT 1").values({}) == ()
    assert one("-- name: q\nSELECT :a").values({"a": 5}) == (5,)


@pytest.mark.parametrize(
    "text",
    [
        "':a'",
        "'it''s :a'",
        '":a"',
        "`:a`",
        "[:a]",
        "/* :a */ 1",
        "1 -- :a",
        "1::a",
    ],
)
def test_colon_is_no_parameter_when_it_is_quoted(text: str) -> None:
    query = one(f"-- name: q\nSELECT {text}")
    assert query.params == ()


def test_description_is_dropped_when_it_follows_the_name() -> None:
    query = one("-- head\n\n-- name: a.b\n-- Says: what it is for; at length.\nSELECT 1 ;\n")
    assert (query.name, query.sql) == ("a.b", "SELECT 1")
    assert query.source == "x.sql:3"


def test_plan_is_kept_when_the_statement_says_so() -> None:
    assert one("-- name: q\n-- Of every request.\n-- plan: kept\nSELECT 1").kept_plan
    assert not one("-- name: q\nSELECT 1 -- plan: kept").kept_plan


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-- name: q\n-- plan: keep\nSELECT 1", "plan 'keep' is unknown"),
        ("SELECT 1;\n-- name: q\nSELECT 2;", "before the first"),
        ("SELECT 1;", "before the first"),
        ("-- name: q\n-- nothing\n", "'q' is empty"),
        ("-- name: q\nSELECT 1; SELECT 2;", "more than one statement"),
        ("-- name: q\n-- Undo.\nRollback;", "'q' must not ROLLBACK"),
        ("-- name: q\n/* Undo. */ ROLLBACK/**/TO s", "'q' must not ROLLBACK"),
        ("-- name: q\nSAVEPOINT s", "'q' must not SAVEPOINT"),
        ("-- name: q\nCOPY t TO STDOUT", "'q' must not COPY"),
        ("-- name: 1q\nSELECT 1;", "'1q' is not a valid name"),
        ("-- name:\nSELECT 1;", "'' is not a valid name"),
    ],
)
def test_file_is_refused_with_its_line_when_it_is_wrong(text: str, problem: str) -> None:
    problems: list[str] = []
    parse(text, "x.sql", problems)
    assert len(problems) == 1 and problem in problems[0] and problems[0].startswith("x.sql")


def test_list_is_spelt_as_the_dialect_wants_it() -> None:
    text = "DELETE FROM a WHERE id IN :ids[bigint] AND b NOT IN :names[text] AND c <> ':x[text]'"
    embedded, server = Query("q", text, "t", "sqlite"), Query("q", text, "t", "postgres")
    assert embedded.params == server.params == ("ids", "names")
    assert embedded.sql == (
        "DELETE FROM a WHERE id IN (SELECT value FROM json_each(?))"
        " AND b NOT IN (SELECT value FROM json_each(?)) AND c <> ':x[text]'"
    )
    assert server.sql == (
        "DELETE FROM a WHERE id IN (SELECT value::bigint FROM json_array_elements_text($1::json))"
        " AND b NOT IN (SELECT value::text FROM json_array_elements_text($2::json))"
        " AND c <> ':x[text]'"
    )


def test_words_and_choices_in_braces_are_those_of_the_dialect() -> None:
    text = "-- name: q\nSELECT CAST(:a AS {bigint}), '{}' FROM t{ INDEXED BY i|} ORDER BY {|c, }id"
    for dialect, sql in (
        ("sqlite", "SELECT CAST(? AS INTEGER), '{}' FROM t INDEXED BY i ORDER BY id"),
        ("postgres", "SELECT CAST($1 AS BIGINT), '{}' FROM t ORDER BY c, id"),
    ):
        (query,) = parse(text, "x.sql", [], dialect)
        assert query.sql == sql


def test_row_is_repeated_only_where_the_statement_says_so() -> None:
    text = "INSERT INTO a (b, c) SELECT b, c::int FROM (VALUES :row(b, c)) AS n (b, c) OFFSET 0"
    (query,) = parse(f"-- name: a\n{text}", "a.sql", [], "postgres")
    assert query.params == ("b", "c")
    assert "(VALUES ($1, $2)) AS n" in query.sql
    assert query.sql_for_rows(2) == query.sql.replace("($1, $2)", "($1, $2), ($3, $4)")
    (query,) = parse(f"-- name: a\n{text}", "a.sql", [], "sqlite")
    assert "(VALUES (?, ?)) AS n" in query.sql
    problems: list[str] = []
    parse(f"-- name: a\n{text} LIMIT :d", "a.sql", problems, "postgres")
    assert problems == ["a.sql:1: query 'a' has parameters beside :row()"]


def test_semicolon_is_no_end_when_it_is_quoted() -> None:
    assert one("-- name: q\nSELECT ';' /* ; */;").sql == "SELECT ';' /* ; */"


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT 1", True),
        ("  select 1", True),
        ("-- why\n/* and */ SELECT 1", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) DELETE FROM b", False),
        ("WITH a AS (SELECT 'delete') SELECT * FROM a", True),
        ("VALUES (1)", True),
        ("EXPLAIN QUERY PLAN SELECT 1", True),
        ("INSERT INTO a VALUES (1) RETURNING x", False),
        ("UPDATE a SET b = 1", False),
        ("PRAGMA user_version = 0", False),
        ("REPLACE INTO a VALUES (1)", False),
    ],
)
def test_statement_counts_as_reading_only_when_it_does(sql: str, reads: bool) -> None:
    assert Query("q", sql, "x.sql").reads is reads


def test_parameters_are_numbered_once_each_on_postgres() -> None:
    query = Query("q", "SELECT :b::bigint, :a, :b WHERE x[:i] = ARRAY[:a]", "x.sql", "postgres")
    assert query.sql == "SELECT $1::bigint, $2, $1 WHERE x[$3] = ARRAY[$2]"
    assert query.values({"a": 1, "b": 2, "i": 3}) == (2, 1, 3)


@pytest.mark.parametrize(
    "text", ["':a'", "E'it\\'s :a'", '":a"', "$$ :a $$", "$x$ :a $$ $x$", "/* :a */ 1", "1::a"]
)
def test_colon_is_no_parameter_when_postgres_has_it_quoted(text: str) -> None:
    query = Query("q", f"SELECT {text}", "x.sql", "postgres")
    assert query.params == () and query.sql == f"SELECT {text}"


def test_query_locks_when_its_block_says_so_and_only_on_postgres() -> None:
    text = "-- name: q\n-- newest\nSELECT 1 FROM a FOR UPDATE SKIP LOCKED"
    for dialect, locks in (("postgres", True), ("sqlite", False)):
        problems: list[str] = []
        (query,) = parse(text, "x.sql", problems, dialect)
        assert not problems and query.newest is locks and query.reads is not locks


def test_locking_query_has_for_update_only_when_it_does_not_lock_by_itself() -> None:
    text = "-- name: a\nSELECT 1\n-- name: b\n-- newest\nSELECT 2 FOR SHARE"
    queries = Queries(parse(text, "x.sql", [], "postgres"), "postgres")
    locking = queries.by_name["a"].locking
    assert locking.sql.endswith("FOR UPDATE") and locking.newest
    assert queries.by_name["b"].locking is queries.by_name["b"]
    assert not queries.by_name["a"].newest


def test_script_is_split_where_its_statements_end() -> None:
    script = "CREATE FUNCTION f() AS $$ a; b; $$;\n-- c; d\nINSERT INTO t VALUES ('e;f');\n"
    assert split(script) == [
        "CREATE FUNCTION f() AS $$ a; b; $$;",
        "INSERT INTO t VALUES ('e;f');",
    ]


def test_duplicate_is_refused_with_both_files_when_names_clash() -> None:
    queries = [Query("q", "SELECT 1", "a.sql:1"), Query("q", "SELECT 2", "b.sql:7")]
    with pytest.raises(ConfigError, match=r"'q' is in b\.sql:7 and in a\.sql:1"):
        Queries(queries)


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> str:
    """A package with files: `a` is a.sql, `sqlite_a` is sqlite/a.sql."""
    name = f"sql_{folder.name}"
    for path, text in files.items():
        target = folder / name / (path.replace("_", "/") + ".sql")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"-- name: {text}\nSELECT 1")
    monkeypatch.syspath_prepend(str(folder))
    return name


def test_shared_statements_are_loaded_beside_those_of_the_dialect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package(
        tmp_path, monkeypatch, a="both", sqlite_a="one", postgres_a="one", postgres_b="other"
    )
    assert {"both", "one"} <= set(Queries.load([name], "sqlite").by_name)
    assert "other" not in Queries.load([name], "sqlite").by_name
    assert {"both", "one", "other"} <= set(Queries.load([name], "postgres").by_name)


def test_shared_statements_need_no_folder_of_a_dialect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package(tmp_path, monkeypatch, a="both")
    assert "both" in Queries.load([name], "sqlite").by_name


def test_statements_are_read_again_when_their_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        place = package(tmp_path, monkeypatch, a=name)
        assert name in Queries.load([place], "sqlite").by_name


def test_name_is_refused_when_a_dialect_has_what_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package(tmp_path, monkeypatch, a="both", sqlite_a="both")
    with pytest.raises(ConfigError, match=r"'both' is in .*sqlite/a\.sql.* and in .*/a\.sql"):
        Queries.load([name], "sqlite")


def test_unknown_name_is_refused_with_the_nearest_when_there_is_one() -> None:
    queries = Queries([Query("reservation.add", "SELECT 1", "a.sql")])
    with pytest.raises(ConfigError, match=r"'reservation\.ad'") as caught:
        queries.by_name["reservation.ad"]
    assert caught.value.hint == "did you mean 'reservation.add'?"
    with pytest.raises(ConfigError) as caught:
        queries.by_name["zzz"]
    assert "SQL folders" in (caught.value.hint or "")
    assert list(queries.by_name) == ["reservation.add"]


def test_wrong_call_names_every_parameter_when_some_do_not_fit() -> None:
    with pytest.raises(ConfigError) as caught:
        one("-- name: q\nSELECT :a, :b, :c").values({"a": 1, "x": 2})
    lacking, unknown = "query 'q' lacks parameter b, c", "query 'q' has no parameter x"
    assert caught.value.problems == (lacking, unknown)
    assert caught.value.hint == "it takes a, b, c"
