-- Statements for SQLite only; those for both stores are in ../runtime.sql.

-- name: migration.table
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration';

-- name: store.probe
-- Changes nothing, but writes a page to the log as any write does.
PRAGMA user_version = 0;

-- name: commit.unsynced
-- Does nothing: its COMMIT is shared and synced.
SELECT 1;

-- name: server.facts
-- For `cordata doctor`; of settings and connections only PostgreSQL has any.
SELECT sqlite_version() AS version, NULL AS fsync, NULL AS full_page_writes,
       NULL AS connection_limit, NULL AS others;
