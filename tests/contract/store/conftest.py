"""The stores that the behaviour suite runs against."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.store.stores import STORES, Opener
from tests.servers.fixtures import Servers

__all__ = ["Opener"]


@pytest.fixture(params=(*STORES, "pgbouncer"))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """`async with opened() as store`: a migrated store; each call is one more process' view.

    "pgbouncer" is PostgreSQL behind a proxy that shares its sessions out, a transaction at a time.
    """
    if request.param == "sqlite":
        return Opener("sqlite", "sqlite:", tmp_path)
    url = request.getfixturevalue("database")
    if request.param == "postgres":
        return Opener("postgres", url, tmp_path)
    servers: Servers = request.getfixturevalue("servers")
    proxy = servers.pgbouncer()
    name = url.partition("?")[0].rpartition("/")[2]
    settings = {"session_url": url, "prepared_statements": proxy.prepares}
    return Opener("postgres", proxy.url(name), tmp_path, **settings)
