"""Which store the hub of a test is on: where the SQL matters, both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.engine.stores import STORES, prepared

#: Where all tests run a second time, on other libraries, the hub's run on the quicker store only:
#: whether the other one understands what it is asked, test_plans_postgres.py tries.
_KINDS = ("sqlite",) if "CORDATA_SECOND_RUN" in os.environ else STORES


@pytest.fixture(params=_KINDS)
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The test runs once on each store: `open_hub(tmp_path)` opens it. Its kind."""
    prepared(request.param, request, tmp_path)
    kind: str = request.param
    return kind
