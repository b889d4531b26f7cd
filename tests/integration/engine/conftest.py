"""A state directory for each store."""

from __future__ import annotations

from tests.integration.engine.stores import state
from tests.integration.primary.lease import patient_lease

__all__ = ["patient_lease", "state"]
