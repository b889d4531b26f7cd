"""Conformance checks of any AlpineBits server."""
