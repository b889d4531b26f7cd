-- The cursor and progress of each backfill.

-- name: backfill.get
SELECT cursor, steps, done_at FROM backfill WHERE name = :name;

-- name: backfill.step
-- done_at NULL: there is more to do.
INSERT INTO backfill (name, cursor, steps, done_at) VALUES (:name, :cursor, 1, :done_at)
ON CONFLICT (name) DO UPDATE SET
    cursor = excluded.cursor, steps = backfill.steps + 1, done_at = excluded.done_at;
