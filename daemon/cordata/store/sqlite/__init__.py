"""The SQLite store: one file."""
