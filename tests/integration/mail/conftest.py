"""Fixtures: `state`, for the tests whose SQL matters: they run on both stores."""

from __future__ import annotations

from tests.integration.engine.stores import state
from tests.integration.primary.lease import patient_lease

__all__ = ["patient_lease", "state"]
