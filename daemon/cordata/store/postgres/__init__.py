"""The PostgreSQL store, on psycopg 3: one database for all hosts of a fleet."""
