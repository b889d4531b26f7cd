from __future__ import annotations

from tests.integration.hub.stores import each_store

__all__ = ["each_store"]
