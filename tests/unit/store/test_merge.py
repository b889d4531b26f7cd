"""What is read off the text of a statement, and its merged form."""

from __future__ import annotations

import pytest

from cordata.store.postgres.merge import read_statement
from cordata.store.postgres.statement import Kind, Statement
from cordata.store.queries import Query


def known(sql: str) -> Statement:
    query = Query("q", sql, "here", "postgres")
    return read_statement(query.sql, query.width)


def columns(sql: str) -> dict[str, int]:
    return dict(known(sql).columns)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", Kind.READ),
        ("select a from t where b = :b", Kind.READ),
        ("VALUES (1)", Kind.READ),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Kind.READ),
        ("SELECT 'FOR UPDATE' AS \"update\"", Kind.READ),
        ("SELECT a FROM t FOR SHARE", Kind.SHARE),
        ("SELECT a FROM t FOR KEY SHARE", Kind.SHARE),
        ("SELECT a FROM (SELECT a FROM t FOR SHARE) AS x", Kind.SHARE),
        ("SELECT a FROM t FOR UPDATE", Kind.OTHER),
        ("SELECT a FROM t FOR NO KEY UPDATE SKIP LOCKED", Kind.OTHER),
        ("WITH x AS (SELECT a FROM t FOR UPDATE) SELECT * FROM x", Kind.OTHER),
        ("WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x", Kind.OTHER),
        ("SELECT pg_advisory_xact_lock(:a)", Kind.OTHER),
        ("SELECT set_config('jit', 'off', true)", Kind.OTHER),
        ("SELECT a FROM t WHERE pg_notify('x', :b) IS NULL", Kind.OTHER),
        ("INSERT INTO t (a) VALUES (setval('s', :a))", Kind.OTHER),
        ("SELECT a INTO b FROM t", Kind.OTHER),
        ("INSERT INTO t (a) VALUES (:a)", Kind.ADD),
        ("INSERT INTO t (a) VALUES (:a) ON CONFLICT DO NOTHING", Kind.OFFER),
        ("INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO NOTHING RETURNING a", Kind.OFFER),
        ("INSERT INTO t (a, b) VALUES (:a, :b) ON CONFLICT (a) DO UPDATE SET b = 1", Kind.CHANGE),
        ("INSERT INTO t (a) SELECT b FROM u WHERE c = :c", Kind.ADD),
        ("INSERT INTO t (a) SELECT b FROM u FOR UPDATE", Kind.OTHER),
        ("INSERT INTO t (a) VALUES (:a), (:b)", Kind.OTHER),
        ("INSERT INTO t VALUES (:a)", Kind.OTHER),
        ("INSERT INTO t DEFAULT VALUES", Kind.OTHER),
        ("UPDATE t SET a = 1 WHERE b = :b", Kind.CHANGE),
        ("UPDATE t SET a = 1 WHERE b > :b", Kind.OTHER),
        ("UPDATE t SET a = 1", Kind.OTHER),
        ("DELETE FROM t WHERE b = :b", Kind.CHANGE),
        ("DELETE FROM t", Kind.OTHER),
        ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", Kind.OTHER),
        ("CREATE TABLE t (a INTEGER)", Kind.OTHER),
        ("TRUNCATE t", Kind.OTHER),
        ("LOCK TABLE t", Kind.OTHER),
        ("CALL p(:a)", Kind.OTHER),
        ("", Kind.OTHER),
    ],
)
def test_kind_is_read_off_the_text(sql: str, kind: Kind) -> None:
    assert known(sql).kind is kind


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("UPDATE t SET a = :a WHERE b = :b AND c = :c::bigint", {"b": 1, "c": 2}),
        ("UPDATE t AS x SET a = 1 WHERE x.b = :b AND y.c = :c", {"b": 0}),
        ("UPDATE t SET a = 1 WHERE t.b = :b AND c IS NULL", {"b": 0}),
        ('UPDATE s."T" SET a = 1 WHERE "B" = :b', {"B": 0}),
        ("UPDATE t SET v = v + 1 WHERE s = :s AND v = :v", {"s": 0}),
        ("UPDATE t SET (a, b) = (1, 2) WHERE c = :c", {}),
        ("UPDATE t SET a = (SELECT 1) WHERE b = :b", {}),
        ("UPDATE t SET a = u.a FROM u WHERE t.b = :b", {}),
        ("UPDATE t SET a = 1 WHERE b = :b OR c = :c", {}),
        ("UPDATE t SET a = 1 WHERE b BETWEEN :x AND :y AND c = :c", {}),
        ("UPDATE t SET a = 1 WHERE NOT b = :b", {}),
        ("UPDATE t SET a = 1 WHERE b = :b + 1", {}),
        ("UPDATE t SET a = 1 WHERE b <= :b", {}),
        ("UPDATE t SET a = 1 WHERE (b = :b)", {}),
        ("UPDATE t SET a = 1 WHERE b = ANY (:b)", {}),
        ("UPDATE t SET a = 1 WHERE d ->> 'b' = :b", {}),
        ("DELETE FROM t WHERE b = :b RETURNING c = :c", {"b": 0}),
        ("DELETE FROM t WHERE b IN (SELECT b FROM u)", {}),
        ("DELETE FROM t USING u WHERE t.b = :b", {}),
    ],
)
def test_change_names_its_rows_by_what_equals_a_parameter(
    sql: str, expected: dict[str, int]
) -> None:
    assert columns(sql) == expected


def test_upsert_names_its_row_by_the_key_that_it_conflicts_on() -> None:
    text = "INSERT INTO t (a, b, n) VALUES (:a, {b}, 1) ON CONFLICT (a, b) DO UPDATE SET {set} = 1"
    assert columns(text.format(b=":b", set="n")) == {"a": 0, "b": 1}
    assert known(text.format(b="'x'", set="n")).kind is Kind.OTHER
    assert known(text.format(b=":b", set="b")).kind is Kind.OTHER


def test_insert_knows_the_columns_that_are_parameters() -> None:
    sql = 'INSERT INTO public.t (a, "B", c, d) VALUES (:a, :b::text, :a + 1, now())'
    assert known(sql).table == "t"
    assert columns(sql) == {"a": 0, "B": 1}
    assert columns("INSERT INTO t (a, b, c) SELECT :a, x, 'y' FROM u WHERE z = :z") == {"a": 0}
    assert columns("INSERT INTO t (a) SELECT :a UNION SELECT :b") == {}


def test_what_else_it_may_read_is_known_when_it_has_a_query_within() -> None:
    assert known("INSERT INTO t (a) VALUES (:a)").sees == frozenset()
    assert "u" in known("INSERT INTO t (a) SELECT b FROM u").sees
    assert "u" in known("INSERT INTO t (a) VALUES ((SELECT max(b) FROM u))").sees


def test_delete_may_take_other_rows_with_it() -> None:
    assert known("DELETE FROM t WHERE a = :a").cascades
    assert not known("UPDATE t SET b = 1 WHERE a = :a").cascades


def test_select_is_merged_by_running_it_once_for_each_unit() -> None:
    statement = known("SELECT a, ':b' FROM t WHERE b = :b AND c = :c -- :b\nORDER BY a -- end")
    assert statement.merge(["text", "bigint"]) == (
        "SELECT _units.i AS _unit, _found.*\n"
        "FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS _units (p1, p2, i)\n"
        "CROSS JOIN LATERAL (SELECT a, ':b' FROM t WHERE b = _units.p1 AND c = _units.p2 -- :b\n"
        "ORDER BY a OFFSET 0) AS _found"
    )


def test_select_needs_no_fence_when_it_has_a_limit() -> None:
    assert "OFFSET" not in known("SELECT a FROM t WHERE b = :b LIMIT :n").merged
    assert "OFFSET 0" in known("SELECT a FROM (SELECT a FROM t LIMIT 1) x WHERE a = :a").merged


def test_insert_is_merged_into_one_with_a_row_for_each_unit() -> None:
    sql = "INSERT INTO t (a, b)\nVALUES (:a, coalesce(:b, 'x'))\nON CONFLICT DO NOTHING -- end"
    assert known(sql).merge(["text", "text"]) == (
        "INSERT INTO t (a, b)\n"
        "SELECT _units.p1, coalesce(_units.p2, 'x')\n"
        "FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS _units (p1, p2, i)"
        ' ORDER BY _units.i ON CONFLICT DO NOTHING RETURNING "a"::text'
    )
    assert known(sql).given == (0,)


def test_insert_of_a_select_is_merged_when_nobody_waits_for_its_rows() -> None:
    sql = "INSERT INTO t (a, b) SELECT :a, b FROM u WHERE c = :c"
    assert "LATERAL (SELECT _units.p1, b FROM u WHERE c = _units.p2 OFFSET 0)" in known(sql).merged
    assert known(sql + " RETURNING b").merged == ""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT random() < :a",
        "SELECT nextval('s') WHERE :a",
        "SELECT _units.a FROM _units WHERE b = :b",
        "INSERT INTO t (a) VALUES (1)",
        "INSERT INTO t (a, b) VALUES (:a, DEFAULT)",
        "INSERT INTO t (a, b) VALUES (:a, (SELECT max(b) FROM t))",
        "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET b = 1",
        "INSERT INTO t (a) VALUES (:a) RETURNING a || :b",
        "UPDATE t SET a = :a WHERE b = :b",
    ],
)
def test_statement_has_no_merged_form_when_it_would_do_something_else(sql: str) -> None:
    assert known(sql).merged == ""
