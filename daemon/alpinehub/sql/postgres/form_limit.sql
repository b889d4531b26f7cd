-- Of PostgreSQL alone; what both stores run is in ../form_limit.sql.

-- name: form_limit_take
-- One token; no row: there is none now.
INSERT INTO form_limit (key, full_at) VALUES (:key, :full_at)
ON CONFLICT (key) DO UPDATE SET full_at = greatest(form_limit.full_at + :interval, excluded.full_at)
WHERE form_limit.full_at <= :latest
RETURNING full_at
