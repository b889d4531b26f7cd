-- What waits for an account: the newest version of a request, not acknowledged. Of a cancellation
-- only where the account was given the request: no account is told of the end of what it never got.
CREATE VIEW waiting_delivery AS
SELECT d.reservation_id, d.account_id, d.version, d.hotel_id, d.first_sent_at, d.undeliverable_code, d.undeliverable_text
FROM delivery d
WHERE d.waiting = 1 AND (d.unique_id_type = 14 OR EXISTS (
    SELECT 1 FROM delivery given
    WHERE given.reservation_id = d.reservation_id AND given.account_id = d.account_id
        AND given.version < d.version AND given.last_sent_at IS NOT NULL));

-- What an account can still be given: it and the hotel are enabled, it reads the hotel, and its
-- version of AlpineBits can carry it. While there is such a one, the request is kept.
CREATE VIEW deliverable AS
SELECT d.reservation_id, d.account_id, d.version, d.hotel_id
FROM waiting_delivery d
JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
JOIN account u ON u.id = d.account_id
JOIN hotel h ON h.id = d.hotel_id
WHERE u.disabled_at IS NULL AND h.disabled_at IS NULL
    AND d.undeliverable_code IS NULL AND d.undeliverable_text IS NULL;
