"""Fixtures: `state`, for the tests whose SQL matters: they run on both stores."""

from __future__ import annotations

from tests.integration.engine.stores import state

__all__ = ["state"]
