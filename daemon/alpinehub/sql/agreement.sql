-- The result of the last handshake with hotel software, and its last contact.

-- name: agreement_all
SELECT protocol, capabilities FROM handshake WHERE account_id = :account_id

-- name: agreement_set
INSERT INTO handshake (account_id, protocol, capabilities)
VALUES (:account_id, :protocol, :capabilities)
ON CONFLICT (account_id, protocol) DO UPDATE SET capabilities = excluded.capabilities

-- name: contact_note
INSERT INTO contact (account_id, hotel_id, polled_at, acked_at)
VALUES (:account_id, :hotel_id, :polled_at, :acked_at)
ON CONFLICT (account_id, hotel_id) DO UPDATE SET
    polled_at = coalesce(excluded.polled_at, contact.polled_at),
    acked_at = coalesce(excluded.acked_at, contact.acked_at)
