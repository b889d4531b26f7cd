from __future__ import annotations

import pytest
from tests.integration.hub.stores import each_store

from alpinehub import login

__all__ = ["each_store"]


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong name costs what a wrong password does: little, as the accounts of the tests."""
    monkeypatch.setattr("alpinehub.passwords._LOG2_N", 4)
    login._nobody.cache_clear()
