-- What only PostgreSQL has.

-- name: sleep
SELECT pg_sleep(:seconds) IS NOT NULL AS slept;

-- name: entry.count_of
-- A function that a test defines, and it only reads.
SELECT count_of(:account_id) AS count;

-- name: entry.take_note
-- A function that a test defines, and it writes.
SELECT take_note(:note) AS id;
