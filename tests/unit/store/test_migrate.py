"""Splitting scripts, and what is pending."""

from __future__ import annotations

import pytest

from cordata.store.migrate import Migration, MigrationId, SchemaError, pending
from cordata.store.sqlite.migration import statements

TRIGGER = """CREATE TRIGGER t AFTER INSERT ON a BEGIN
    UPDATE a SET x = 'a;b'; -- a; comment
    DELETE FROM b;
END;"""


def program(*numbers: int, component: str = "c") -> list[Migration]:
    return [Migration(component, number, f"n{number}", "") for number in numbers]


def database(*numbers: int, component: str = "c") -> list[MigrationId]:
    return [MigrationId(component, number, f"n{number}") for number in numbers]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        ("-- only; a comment\n", []),
        ("/* ; */", []),
        ("SELECT 1;", ["SELECT 1;"]),
        ("SELECT ';';SELECT 2;", ["SELECT ';';", "SELECT 2;"]),
        (f"{TRIGGER}\nSELECT 1;", [TRIGGER, "SELECT 1;"]),
        ("-- a; b\nSELECT 1; -- c; d\n", ["-- a; b\nSELECT 1;"]),
    ],
)
def test_script_is_split_where_sqlite_says_when_it_holds_semicolons(
    script: str, expected: list[str]
) -> None:
    assert list(statements(script)) == expected


def test_script_is_refused_when_its_last_statement_has_no_end() -> None:
    with pytest.raises(SchemaError, match="SELECT 2"):
        list(statements("SELECT 1; SELECT 2"))


def test_all_is_pending_when_the_database_is_new() -> None:
    todo, newer = pending(program(1, 2), [])
    assert ([m.number for m in todo], newer) == ([1, 2], [])


def test_rest_is_pending_when_some_was_applied() -> None:
    todo, newer = pending(program(1, 2, 3), database(1))
    assert ([m.number for m in todo], newer) == ([2, 3], [])


def test_newer_ones_are_told_when_they_only_add() -> None:
    todo, newer = pending(program(1), database(1, 2, 3))
    assert (todo, newer) == ([], database(2, 3))


def test_program_is_refused_when_the_database_is_a_major_ahead() -> None:
    with pytest.raises(SchemaError, match="c 1000_n1000, this program ends at 0001"):
        pending(program(1), database(1, 1000))


def test_program_is_refused_when_a_name_differs() -> None:
    with pytest.raises(SchemaError, match="'n1' in the program"):
        pending(program(1), [MigrationId("c", 1, "other")])


def test_program_is_refused_when_a_migration_came_in_between() -> None:
    with pytest.raises(SchemaError, match="c 0002_n2 is missing"):
        pending(program(1, 2, 3), database(1, 3))


def test_other_components_are_left_alone_when_the_program_lacks_them() -> None:
    todo, newer = pending(program(1), [*database(1), *database(1, 2, component="gone")])
    assert (todo, newer) == ([], [])
