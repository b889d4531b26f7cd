-- Outbound push: guest requests sent to hotel software (push/).

-- name: push_wake
-- Every account and hotel with something to push that has no pending push.due (one that was due before
-- :lost_at, or is due after :latest_at, is lost). For :account_id it is due now in any case, also after failures.
INSERT INTO push_hotel (account_id, hotel_id, due_at, failures)
SELECT t.account_id, uh.hotel_id, CAST(:now_us AS BIGINT), 0
FROM push_target t
JOIN account u ON u.id = t.account_id
JOIN account_hotel uh ON uh.account_id = t.account_id
JOIN hotel h ON h.id = uh.hotel_id
WHERE t.disabled_at IS NULL AND u.disabled_at IS NULL AND h.disabled_at IS NULL
  AND (CAST(:account_id AS BIGINT) IS NULL OR t.account_id = :account_id)
  AND (CAST(:hotel_id AS BIGINT) IS NULL OR uh.hotel_id = :hotel_id)
  AND (CAST(:account_id AS BIGINT) IS NOT NULL OR EXISTS (
      SELECT 1 FROM waiting_delivery d
      WHERE d.account_id = t.account_id AND d.hotel_id = uh.hotel_id
        AND d.undeliverable_code IS NULL))
ON CONFLICT (account_id, hotel_id) DO UPDATE SET due_at = excluded.due_at
WHERE push_hotel.due_at IS NULL OR push_hotel.due_at NOT BETWEEN :lost_at AND :latest_at
    OR CAST(:account_id AS BIGINT) IS NOT NULL
RETURNING account_id, hotel_id

-- name: push_target
SELECT u.name, t.url, t.login, t.secret, t.protocol, t.gzip
FROM push_target t JOIN account u ON u.id = t.account_id
WHERE t.account_id = :account_id AND t.disabled_at IS NULL AND u.disabled_at IS NULL

-- name: push_secrets
SELECT u.name, t.secret FROM push_target t JOIN account u ON u.id = t.account_id
WHERE t.disabled_at IS NULL AND u.disabled_at IS NULL ORDER BY u.name

-- name: push_state
SELECT due_at, failures FROM push_hotel WHERE account_id = :account_id AND hotel_id = :hotel_id

-- name: push_waits
SELECT 1 AS waits FROM waiting_delivery
WHERE account_id = :account_id AND hotel_id = :hotel_id
  AND undeliverable_code IS NULL
LIMIT 1

-- name: push_settle
UPDATE push_hotel
SET due_at = :due_at, failures = :failures, last_error = :last_error,
    pushed_at = coalesce(CAST(:pushed_at AS BIGINT), pushed_at)
WHERE account_id = :account_id AND hotel_id = :hotel_id

-- name: push_set_target
INSERT INTO push_target (account_id, url, login, secret, protocol, gzip)
VALUES (:account_id, :url, :login, :secret, :protocol, :gzip)
ON CONFLICT (account_id) DO UPDATE SET
    url = excluded.url, login = excluded.login, secret = excluded.secret,
    protocol = excluded.protocol, gzip = excluded.gzip, disabled_at = NULL

-- name: push_set_disabled
UPDATE push_target SET disabled_at = :disabled_at WHERE account_id = :account_id

-- name: push_list
SELECT u.name, h.code AS hotel, t.url, t.login, t.protocol, t.gzip, t.disabled_at,
    p.failures, p.last_error, p.due_at, p.pushed_at,
    (SELECT count(*) FROM waiting_delivery d
     WHERE d.account_id = t.account_id AND d.hotel_id = uh.hotel_id) AS waiting
FROM push_target t
JOIN account u ON u.id = t.account_id
LEFT JOIN account_hotel uh ON uh.account_id = t.account_id
LEFT JOIN hotel h ON h.id = uh.hotel_id
LEFT JOIN push_hotel p ON p.account_id = t.account_id AND p.hotel_id = uh.hotel_id
ORDER BY u.name, h.code
