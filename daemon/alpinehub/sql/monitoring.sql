-- Hotel software that does not poll (monitoring/).

-- name: monitoring_note
-- Hotel software that never called has no row yet.
INSERT INTO contact (account_id, hotel_id, stale_at) VALUES (:account_id, :hotel_id, :stale_at)
ON CONFLICT (account_id, hotel_id) DO UPDATE SET stale_at = excluded.stale_at

-- name: monitoring_contacts
-- Each look-up reads a short range of the partial index delivery_waiting. oldest_at is the time of a
-- waiting version, not of its request, which may be older; the first 20 that wait are enough for it.
SELECT uh.account_id, uh.hotel_id, CASE WHEN coalesce(h.enabled_at, 0) > coalesce(u.enabled_at, 0) THEN h.enabled_at
            ELSE coalesce(u.enabled_at, 0) END AS enabled_at,
       c.polled_at, c.stale_at,
       CASE WHEN p.account_id IS NULL THEN 0 ELSE 1 END AS is_pushed,
       (SELECT count(*) FROM waiting_delivery d
        WHERE d.account_id = uh.account_id AND d.hotel_id = uh.hotel_id) AS waiting,
       (SELECT min(v.created_at)
        FROM (SELECT d.reservation_id, d.version FROM waiting_delivery d
              WHERE d.account_id = uh.account_id AND d.hotel_id = uh.hotel_id
                AND d.undeliverable_code IS NULL
              ORDER BY d.reservation_id LIMIT 20) AS w
        JOIN reservation_version v ON v.reservation_id = w.reservation_id
            AND v.version = w.version) AS oldest_at,
       (SELECT d.sent_at FROM waiting_delivery d
        WHERE d.account_id = uh.account_id AND d.hotel_id = uh.hotel_id
          AND d.sent_at IS NOT NULL
        ORDER BY d.reservation_id LIMIT 1) AS sent_at
FROM account_hotel uh
JOIN hotel h ON h.id = uh.hotel_id
JOIN account u ON u.id = uh.account_id
LEFT JOIN contact c ON c.account_id = uh.account_id AND c.hotel_id = uh.hotel_id
LEFT JOIN push_target p ON p.account_id = uh.account_id AND p.disabled_at IS NULL
