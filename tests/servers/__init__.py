"""Real servers that a test starts, breaks and throws away: PostgreSQL, PgBouncer, Redis, Sentinel.

`tests/conftest.py` has fixtures of them: `postgres` and `redis` (one server per test session) and
`database` and `redis_url` (fresh for each test). A test that stops or kills a server starts one of
its own: `with PostgresServer() as server: ...`. All of it is synchronous; coroutine tests may call
it, since nothing waits longer than the server needs.
"""
