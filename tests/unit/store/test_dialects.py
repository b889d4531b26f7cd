"""The SQL of the two stores, side by side: the code above them knows one set of names.

That of the runtime and of the hub; what the statements give is in tests/integration/dialect.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.queries import queries_of

from alpinehub.app import app
from cordata.context_factory import chains_of
from cordata.store.migrate import load
from cordata.store.queries import Query

#: Queries of a store's own code, and of what the queue does in one statement on PostgreSQL and in
#: several, without a round trip each, on SQLite.
STORES_OWN = {
    "sqlite": {
        "lease.lock",
        "queue.claim",
        "queue.claimed",
        "queue.ready",
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
    everything = queries_of(dialect, *app.query_packages).by_name
    return {name: q for name, q in everything.items() if name not in STORES_OWN[dialect]}


def test_dialects_have_the_same_queries() -> None:
    assert sorted(queries("postgres")) == sorted(queries("sqlite"))
    assert len(queries("sqlite")) > 300


def test_query_takes_and_does_the_same_in_both_dialects() -> None:
    others = queries("postgres")
    differing = [
        name
        for name, ours in queries("sqlite").items()
        if _shape(ours) != _shape(others[name])
        or not (others[name].reads == ours.reads or (others[name].newest and ours.reads))
    ]
    assert differing == []


def _shape(query: Query) -> tuple[list[str], str]:
    """What it takes, and the name of its file."""
    return sorted(query.params), Path(query.source.split(":")[0]).name


def test_query_says_that_it_locks_when_it_does() -> None:
    # A change that locks what it is going to change runs again if that has changed.
    locks = re.compile(r"\bFOR (NO KEY |KEY )?(UPDATE|SHARE)\b|pg_advisory", re.IGNORECASE)
    silent = [
        name
        for name, query in queries("postgres").items()
        if query.selects and locks.search(query.sql) and not query.newest
    ]
    assert silent == []


def test_dialects_have_the_same_migrations() -> None:
    numbered = [[str(m) for m in load(chains_of(app), name)] for name in ("postgres", "sqlite")]
    assert numbered[0] == numbered[1]
