"""The SQL of the two stores, side by side: the code above them knows one set of names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.queries import queries_of

from cordata.store import Chain
from cordata.store.migrate import load
from cordata.store.queries import Query, sql_folder

RUNTIME = "cordata.store.sql"
#: Queries of a store's own code, and of what the queue does in one statement on PostgreSQL and in
#: several, without a round trip each, on SQLite.
STORES_OWN = {
    "sqlite": {
        "queue.claim",
        "queue.claimed",
        "queue.mark_done",
        "queue.delete_done",
    },
    "postgres": {
        "lease.lock",
        "migration.add",
        "migration.done",
        "queue.claim_all",
        "queue.done",
    },
}


def queries(dialect: str) -> dict[str, Query]:
    everything = queries_of(dialect).by_name
    return {name: q for name, q in everything.items() if name not in STORES_OWN[dialect]}


def test_dialects_have_the_same_queries() -> None:
    assert sorted(queries("postgres")) == sorted(queries("sqlite"))


@pytest.mark.parametrize("name", sorted(queries("sqlite")))
def test_query_takes_and_does_the_same_in_both_dialects(name: str) -> None:
    ours, other = queries("sqlite")[name], queries("postgres")[name]
    assert sorted(other.params) == sorted(ours.params)
    assert Path(other.source.split(":")[0]).name == Path(ours.source.split(":")[0]).name
    assert other.reads == ours.reads or (other.newest and ours.reads)


@pytest.mark.parametrize("name", sorted(queries("postgres")))
def test_query_says_that_it_locks_when_it_does(name: str) -> None:
    query = queries("postgres")[name]
    # A change that locks what it is going to change runs again if that has changed.
    locks = query.selects and re.search(
        r"\bFOR (NO KEY |KEY )?(UPDATE|SHARE)\b|pg_advisory", query.sql, re.I
    )
    # The fence: whoever takes the lease over changes the row, so a snapshot is good enough.
    assert not locks or query.newest or name == "lease.lock"


def test_dialects_have_the_same_migrations() -> None:
    chain = [Chain("cordata", RUNTIME)]
    numbered = [[str(m) for m in load(chain, dialect)] for dialect in ("postgres", "sqlite")]
    assert numbered[0] == numbered[1]


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_every_list_of_a_query_is_json(dialect: str) -> None:
    """A parameter list would be one query per length, and none of them prepared."""
    for path in sql_folder(RUNTIME, dialect).parent.rglob("*.sql"):
        assert "unnest(:" not in path.read_text(), path
