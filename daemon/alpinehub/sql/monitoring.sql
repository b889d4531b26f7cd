-- Hotel software that does not come (monitoring/).

-- name: monitoring_note
-- Of software that never came there is no row yet.
INSERT INTO contact (account_id, hotel_id, protocol, stale_at)
VALUES (:account_id, :hotel_id, '', :stale_at)
ON CONFLICT (account_id, hotel_id) DO UPDATE SET stale_at = excluded.stale_at
