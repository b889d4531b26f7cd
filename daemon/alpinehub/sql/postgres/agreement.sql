-- What hotel software and this server last agreed on, and when it last came.

-- name: agreement_all
SELECT protocol, capabilities FROM handshake WHERE user_id = :user_id

-- name: agreement_set
INSERT INTO handshake (user_id, protocol, capabilities, at)
VALUES (:user_id, :protocol, :capabilities, :now_us)
ON CONFLICT (user_id, protocol) DO UPDATE SET
    capabilities = excluded.capabilities, at = excluded.at

-- name: contact_note
INSERT INTO contact (user_id, hotel_id, protocol, client_id, polled_at, acked_at)
VALUES (:user_id, :hotel_id, :protocol, :client_id, :polled_at, :acked_at)
ON CONFLICT (user_id, hotel_id) DO UPDATE SET
    protocol = excluded.protocol, client_id = excluded.client_id,
    polled_at = coalesce(excluded.polled_at, contact.polled_at),
    acked_at = coalesce(excluded.acked_at, contact.acked_at)
