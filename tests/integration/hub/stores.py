"""Which store the hub of a test is on: where the SQL matters, both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.alpinebits.hub import CHAINS
from tests.integration.engine.stores import STORES, use
from tests.integration.engine.template import migrate
from tests.servers.postgres import PostgresServer

_templates: dict[PostgresServer, str] = {}


@pytest.fixture(params=STORES)
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The test runs once on each store: `open_hub(tmp_path)` opens it. Its kind."""
    kind: str = request.param
    if kind == "sqlite":
        yield kind
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database(template=_template(server, tmp_path)) as url:
        use(tmp_path, url)
        yield kind


def _template(server: PostgresServer, folder: Path) -> str:
    """Name of a database with the hub's tables; made once."""
    if server not in _templates:
        name = server.create_database()
        asyncio.run(migrate(folder, server.url(name), CHAINS))
        _templates[server] = name
    return _templates[server]
