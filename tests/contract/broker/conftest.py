"""Every broker, for every test here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.contract.broker.brokers import BROKERS, Parts
from tests.integration.redis.stores import prepared

Open = Callable[[], AbstractAsyncContextManager[Parts]]


@pytest.fixture(params=sorted(BROKERS))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """One of the brokers, on a store of its own; each call is one more host's view of it."""
    state = prepared(request.param, request, tmp_path)
    return lambda: BROKERS[request.param](state)
