"""A state directory for each store."""

from __future__ import annotations

from tests.integration.engine.stores import state

__all__ = ["state"]
