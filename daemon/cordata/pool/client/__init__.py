"""Clients of the pool: who calls, and what becomes of a call when the manager goes away."""
