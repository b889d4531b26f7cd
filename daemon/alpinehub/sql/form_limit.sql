-- Token buckets of public forms (webhooks/form_limit.py).

-- name: form_limit_full
SELECT full_at FROM form_limit WHERE key = :key

-- name: form_limit_empty
UPDATE form_limit SET full_at = :full_at WHERE key = :key

-- name: form_limit_forget
DELETE FROM form_limit WHERE full_at <= :now

-- name: form_limit_take
-- newest
-- Takes one token; no row: the bucket is empty. One that is full only after :wrong was written before
-- the clock was set back: it counts as full. A unit that began on a snapshot would run again when another unit
-- has changed the bucket.
INSERT INTO form_limit (key, full_at) VALUES (:key, :full_at)
ON CONFLICT (key) DO UPDATE SET full_at = CASE
    WHEN excluded.full_at > form_limit.full_at + :interval OR form_limit.full_at > :wrong
    THEN excluded.full_at
    ELSE form_limit.full_at + :interval END
WHERE form_limit.full_at <= :latest OR form_limit.full_at > :wrong
RETURNING full_at
