"""The worker's side of the pool: it starts its child, watches it, and says what became of it."""
