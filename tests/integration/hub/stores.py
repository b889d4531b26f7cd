"""Which store the hub of a test is on: where the SQL matters, both; and what its passwords cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.stores import STORES, use
from tests.integration.engine.template import template_of
from tests.integration.hub.material import CHAINS
from tests.servers.postgres import PostgresServer

from alpinehub import login

#: For a test of what a command prints, among others that have its statements run on both stores.
on_sqlite = pytest.mark.parametrize("each_store", ["sqlite"], indirect=True)


@pytest.fixture(params=STORES)
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The test runs once on each store: `open_hub(tmp_path)` opens it. Its kind."""
    kind: str = request.param
    if kind == "sqlite":
        yield kind
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database(template=template_of(server, CHAINS)) as url:
        use(tmp_path, url)
        yield kind


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs a thousandth of what it should: most tests log in, and are shorter.

    A wrong name costs what a wrong password does.
    """
    monkeypatch.setattr("alpinehub.passwords._LOG2_N", 4)
    login._nobody.cache_clear()
