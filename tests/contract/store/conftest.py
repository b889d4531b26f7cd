"""The stores that the behaviour suite runs against."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.contract.store.stores import CHAINS, STORES, Opener
from tests.integration.engine.template import begin, template_of
from tests.servers.fixtures import Servers

from cordata.store import Chain

__all__ = ["Opener"]


@pytest.fixture
def chains() -> Sequence[Chain]:
    """What a store has before the test: nothing in the tests of migrations."""
    return CHAINS


@pytest.fixture(params=(*STORES, "pgbouncer"))
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, chains: Sequence[Chain]
) -> Iterator[Opener]:
    """`async with opened() as store`: a migrated store; each call is one more process' view.

    "pgbouncer" is PostgreSQL behind a proxy that shares its sessions out, a transaction at a time.
    """
    if request.param == "sqlite":
        if chains:
            asyncio.run(begin(tmp_path, "sqlite:", chains))
        yield Opener("sqlite", "sqlite:", tmp_path)
        return
    servers: Servers = request.getfixturevalue("servers")
    server = servers.postgres()
    with server.database(template=template_of(server, chains) if chains else "template0") as url:
        if request.param == "postgres":
            yield Opener("postgres", url, tmp_path)
            return
        proxy = servers.pgbouncer()
        name = url.partition("?")[0].rpartition("/")[2]
        settings = {"session_url": url, "prepared_statements": proxy.prepares}
        yield Opener("postgres", proxy.url(name), tmp_path, **settings)
