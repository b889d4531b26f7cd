"""Copies the store to a database of the other kind: SQLite to PostgreSQL, or back.

copy.py       a pass over all tables, and what comes before and after it; the way back
side.py       one of the two databases, as a pass sees it
sqlite.py, postgres.py
"""
