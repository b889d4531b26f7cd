"""Streams, consumer groups and dead letters."""
