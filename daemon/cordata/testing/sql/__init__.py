"""Queries of `cordata.testing`."""
