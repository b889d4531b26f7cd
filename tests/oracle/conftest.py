"""What the chapters need."""

from tests.integration.engine.stores import state

__all__ = ["state"]
