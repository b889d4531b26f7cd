"""The stores that the behaviour suite of the event store runs against."""

from __future__ import annotations

from tests.contract.store.conftest import chains, opened

__all__ = ["chains", "opened"]
