from __future__ import annotations

from tests.integration.hub.command import run
from tests.integration.hub.stores import cheap_hashes, each_store

__all__ = ["cheap_hashes", "each_store", "run"]
