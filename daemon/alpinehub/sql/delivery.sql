-- What hotel software fetches and acknowledges. Lists come as one JSON array, so that a thousand
-- guest requests cost one statement.

-- name: delivery_list_waiting
-- plan: kept
-- Waiting requests of an account, in the order of arrival, by a partial index: history costs nothing. A
-- booking is Modify if the newest version that was sent to the account before was a booking.
SELECT d.reservation_id, d.version, d.undeliverable_code, d.undeliverable_text, d.rendered, d.sent_at,
       r.external_id, r.created_at,
       CASE WHEN v.res_status IN ('Reserved', 'Modify') THEN coalesce((
           SELECT CASE WHEN g.res_status IN ('Reserved', 'Modify') THEN 'Modify' ELSE 'Reserved' END
           FROM delivery given JOIN reservation_version g
               ON g.reservation_id = given.reservation_id AND g.version = given.version
           WHERE given.reservation_id = d.reservation_id AND given.account_id = :account_id
               AND given.version < d.version AND given.ever_sent = 1
           ORDER BY given.version DESC LIMIT 1), 'Reserved')
       ELSE v.res_status END AS res_status,
       v.data, v.created_at AS changed_at, s.name AS source
FROM waiting_delivery d
JOIN reservation r ON r.id = d.reservation_id
JOIN reservation_version v ON v.reservation_id = d.reservation_id AND v.version = d.version
JOIN source s ON s.id = r.source_id
WHERE d.account_id = :account_id AND d.hotel_id = :hotel_id AND d.reservation_id > :after_id
ORDER BY d.reservation_id LIMIT :limit

-- name: delivery_list_since
-- All requests created since a time, acknowledged or not, in their newest version, if they wait, or if
-- the account got them or may still get them. Without erased ones, cancellations of requests that it
-- never got, and past stays that do not wait. :today is the hotel's.
SELECT r.id AS reservation_id, r.version, d.undeliverable_code, d.undeliverable_text, d.rendered, d.sent_at,
       r.external_id, r.created_at,
       CASE WHEN v.res_status IN ('Reserved', 'Modify') THEN coalesce((
           SELECT CASE WHEN g.res_status IN ('Reserved', 'Modify') THEN 'Modify' ELSE 'Reserved' END
           FROM delivery given JOIN reservation_version g
               ON g.reservation_id = given.reservation_id AND g.version = given.version
           WHERE given.reservation_id = r.id AND given.account_id = :account_id
               AND given.version < r.version AND given.ever_sent = 1
           ORDER BY given.version DESC LIMIT 1), 'Reserved')
       ELSE v.res_status END AS res_status,
       v.data, v.created_at AS changed_at, s.name AS source
FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
JOIN source s ON s.id = r.source_id
JOIN account_hotel uh ON uh.account_id = :account_id AND uh.hotel_id = r.hotel_id
LEFT JOIN delivery d
    ON d.reservation_id = r.id AND d.account_id = :account_id AND d.version = r.version
WHERE r.hotel_id = :hotel_id AND (r.created_at, r.id) > (:after_at, :after_id)
  AND d.cancelled_at IS NULL AND r.erased_at IS NULL
  AND (r.status <> 'cancelled' OR EXISTS (
        SELECT 1 FROM delivery given
        WHERE given.reservation_id = r.id AND given.account_id = :account_id
            AND given.version < r.version AND given.ever_sent = 1))
  AND (d.waiting = 1 OR (
        (r.ends_on IS NULL OR r.ends_on >= :today)
        AND (d.version IS NOT NULL OR r.changed_at >= coalesce(uh.from_at, 0))
        AND (r.withdrawn_at IS NULL OR EXISTS (
            SELECT 1 FROM delivery given
            WHERE given.reservation_id = r.id AND given.account_id = :account_id
                AND given.version <= r.version AND given.ever_sent = 1))))
ORDER BY r.created_at, r.id LIMIT :limit

-- name: delivery_mark_undeliverable
-- A version that this account's protocol version cannot carry: it keeps waiting.
UPDATE delivery
SET undeliverable_code = :undeliverable_code, undeliverable_text = :undeliverable_text, undeliverable_at = coalesce(undeliverable_at, :now_us),
    rendered = NULL
WHERE reservation_id = :reservation_id AND account_id = :account_id AND version = :version
