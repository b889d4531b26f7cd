"""The shared store: PostgreSQL by psycopg 3, every host of a fleet at one database."""
