-- Hourly counts of each hotel (counts.py).

-- name: hour_changes
-- The next changes to add. One with a smaller id may be committed later.
SELECT id FROM hour_change ORDER BY id LIMIT :limit

-- name: add_to_hours
INSERT INTO hotel_hour (hotel_id, hour_at, kind, submissions)
SELECT hotel_id, hour_at, kind, count(*)
FROM hour_change
WHERE id IN :taken[bigint]
GROUP BY hotel_id, hour_at, kind ORDER BY hotel_id, hour_at, kind
ON CONFLICT (hotel_id, hour_at, kind) DO UPDATE SET
    submissions = hotel_hour.submissions + excluded.submissions

-- name: forget_changes
DELETE FROM hour_change WHERE id IN :taken[bigint]
