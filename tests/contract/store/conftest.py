"""The stores that the behaviour suite runs against."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.store.stores import STORES, Opener

__all__ = ["Opener"]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """`async with opened() as store`: a migrated store; each call is one more process' view."""
    if request.param == "sqlite":
        return Opener("sqlite", "sqlite:", tmp_path)
    return Opener(request.param, request.getfixturevalue("database"), tmp_path)
