"""The hub's SQL of the two stores, side by side: its code knows one set of names."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.queries import queries_of

from alpinehub.app import app
from cordata.context_factory import chains_of
from cordata.store.migrate import load
from cordata.store.queries import Query, sql_folder

FOLDER = "alpinehub.sql"
DIALECTS = ("postgres", "sqlite")


def queries(dialect: str) -> dict[str, Query]:
    runtime = queries_of(dialect).by_name
    every = queries_of(dialect, *app.query_packages).by_name
    return {name: query for name, query in every.items() if name not in runtime}


def test_dialects_have_the_same_queries() -> None:
    assert sorted(queries("postgres")) == sorted(queries("sqlite"))
    assert len(queries("sqlite")) > 40


@pytest.mark.parametrize("name", sorted(queries("sqlite")))
def test_query_takes_and_does_the_same_in_both_dialects(name: str) -> None:
    ours, other = queries("sqlite")[name], queries("postgres")[name]
    assert sorted(other.params) == sorted(ours.params)
    assert Path(other.source.split(":")[0]).name == Path(ours.source.split(":")[0]).name
    locks = other.newest
    assert other.reads == ours.reads or (locks and ours.reads)
    assert ("RETURNING" in other.sql) == ("RETURNING" in ours.sql)


def test_dialects_have_the_same_migrations() -> None:
    numbered = [[str(m) for m in load(chains_of(app), dialect)] for dialect in DIALECTS]
    assert numbered[0] == numbered[1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_list_of_a_query_is_json(dialect: str) -> None:
    """A parameter list would be one query per length, and none of them prepared."""
    for path in sql_folder(FOLDER, dialect).parent.rglob("*.sql"):
        assert "unnest(:" not in path.read_text(), path
