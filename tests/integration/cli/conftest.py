"""Fixtures: `state`, for the tests whose SQL matters: they run on both stores, which are empty."""

from __future__ import annotations

from tests.integration.engine.stores import new_state as state

__all__ = ["state"]
