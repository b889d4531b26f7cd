"""Which store the hub of a test is on: where the SQL matters, both."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine.stores import STORES, prepared


@pytest.fixture(params=STORES)
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The test runs once on each store: `open_hub(tmp_path)` opens it. Its kind."""
    prepared(request.param, request, tmp_path)
    kind: str = request.param
    return kind
