"""The runtime's own SQL: one folder per dialect, queries beside migrations/."""
