-- Token buckets of public forms (webhooks/form_limit.py).

-- name: form_limit_full
SELECT full_at FROM form_limit WHERE key = :key

-- name: form_limit_forget
DELETE FROM form_limit WHERE full_at <= :now

-- name: form_limit_take
-- Takes one token; no row: the bucket is empty.
INSERT INTO form_limit (key, full_at) VALUES (:key, :full_at)
ON CONFLICT (key) DO UPDATE SET full_at = CASE
    WHEN excluded.full_at > form_limit.full_at + :interval THEN excluded.full_at
    ELSE form_limit.full_at + :interval END
WHERE form_limit.full_at <= :latest
RETURNING full_at
