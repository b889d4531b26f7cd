from __future__ import annotations

from tests.integration.hub.stores import cheap_hashes, each_store
from tests.integration.primary.lease import patient_lease

__all__ = ["cheap_hashes", "each_store", "patient_lease"]
