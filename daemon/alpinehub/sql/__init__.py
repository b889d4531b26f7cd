"""The hub's SQL: one folder per dialect, queries and migrations."""
