-- Hourly counts of each hotel (counts.py).

-- name: hour_changes
-- The next changes to add. One with a smaller id may be committed later.
SELECT id FROM hour_change ORDER BY id LIMIT :limit

-- name: add_to_hours
INSERT INTO hotel_hour (hotel_id, hour_at, modified, cancelled, duplicates, errors, spam)
SELECT hotel_id, hour_at, sum(modified), sum(cancelled), sum(duplicates), sum(errors),
    sum(spam)
FROM hour_change
WHERE id IN :taken[bigint]
GROUP BY hotel_id, hour_at ORDER BY hotel_id, hour_at
ON CONFLICT (hotel_id, hour_at) DO UPDATE SET
    modified = hotel_hour.modified + excluded.modified,
    cancelled = hotel_hour.cancelled + excluded.cancelled,
    duplicates = hotel_hour.duplicates + excluded.duplicates,
    errors = hotel_hour.errors + excluded.errors,
    spam = hotel_hour.spam + excluded.spam

-- name: forget_changes
DELETE FROM hour_change WHERE id IN :taken[bigint]
