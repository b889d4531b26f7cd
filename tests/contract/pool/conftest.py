"""One pool for all tests of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.contract.pool.callers import CALLERS
from tests.contract.pool.running import running

from cordata.pool import Client

Opened = Callable[[], AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module")
def pool_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("pool")
    with running(directory, app="tests.contract.pool.shop:app") as path:
        yield path


@pytest.fixture(params=list(CALLERS))
def opened(request: pytest.FixtureRequest) -> Opened:
    """Makes a caller."""
    inline = request.param == "inline"
    path = Path() if inline else request.getfixturevalue("pool_path")
    return lambda: CALLERS[request.param](path)
