-- Token buckets of public forms (webhooks/form_limit.py).

-- name: form_limit_full
SELECT full_at FROM form_limit WHERE key = :key

-- name: form_limit_forget
DELETE FROM form_limit WHERE full_at <= :now
