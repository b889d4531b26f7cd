"""The stores that the behaviour suite runs against."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.contract.store.stores import STORES

from cordata.config.sections import StoreConfig
from cordata.store import Store

Opener = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture(params=sorted(STORES))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """`async with opened() as store`: a migrated store; each call is one more process' view."""
    opener = STORES[request.param]

    def open_one(**changes: object) -> AbstractAsyncContextManager[Store]:
        return opener(tmp_path, StoreConfig(**changes))  # type: ignore[arg-type]

    return open_one
