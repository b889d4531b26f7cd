-- Statements for PostgreSQL only; those for both stores are in ../runtime.sql.

-- name: migration.table
SELECT 1 AS found WHERE to_regclass('migration') IS NOT NULL AND to_regclass('lease') IS NOT NULL;

-- name: migration.done
SELECT 1 AS found FROM migration WHERE component = :component AND number = :number;

-- name: store.probe
-- Needs the same as a unit: a server that accepts writes, and disk space (256 KiB).
CREATE TEMPORARY TABLE cordata_probe ON COMMIT DROP AS
SELECT repeat('x', 1000) AS filler FROM generate_series(1, 256);

-- name: migration.add
INSERT INTO migration (component, number, name, digest, applied_at)
VALUES (:component, :number, :name, :digest, :applied_at);

-- name: commit.unsynced
-- The writes of this unit may be lost in a crash of the server: its COMMIT does not wait for the disk.
-- Never in a batched unit: other units of the batch would lose their writes, too.
SELECT set_config('synchronous_commit', 'off', true);

-- name: server.facts
-- For `cordata doctor`. `connection_limit`: what users get who are no superusers; `others`: sessions
-- of other users, or on other databases. Of these the type is hidden from an ordinary user.
SELECT current_setting('server_version') AS version,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS connection_limit,
       (SELECT count(*)::int FROM pg_stat_activity
        WHERE datname IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
            AND NOT (datname = current_database() AND usename = current_user)) AS others;
