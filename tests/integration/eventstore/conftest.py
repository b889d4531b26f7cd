"""State directories of both stores."""

from __future__ import annotations

from tests.integration.engine.stores import state

__all__ = ["state"]
