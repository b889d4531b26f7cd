"""Fixtures: `state`, a directory for each store, which is empty."""

from __future__ import annotations

from tests.integration.engine.stores import new_state as state

__all__ = ["state"]
