-- The result of the last handshake with hotel software, its last contact, and from where.

-- name: agreement_all
SELECT protocol, capabilities FROM handshake WHERE account_id = :account_id

-- name: agreement_set
INSERT INTO handshake (account_id, protocol, capabilities)
VALUES (:account_id, :protocol, :capabilities)
ON CONFLICT (account_id, protocol) DO UPDATE SET capabilities = excluded.capabilities

-- name: contact_note
-- The network only while the account may call about the hotel: `contact_forget_networks` may have
-- run while its last message was in hand.
INSERT INTO contact (account_id, hotel_id, called_at, polled_at, acked_at, network)
VALUES (
    :account_id, :hotel_id, :called_at, :polled_at, :acked_at,
    (
        SELECT CAST(:network AS TEXT) FROM account_hotel h JOIN account u ON u.id = h.account_id
        WHERE h.account_id = :account_id AND h.hotel_id = :hotel_id AND u.disabled_at IS NULL
    )
)
ON CONFLICT (account_id, hotel_id) DO UPDATE SET
    called_at = excluded.called_at,
    polled_at = coalesce(excluded.polled_at, contact.polled_at),
    acked_at = coalesce(excluded.acked_at, contact.acked_at),
    network = coalesce(excluded.network, contact.network)

-- name: contact_networks
-- The networks from which accounts called last, the latest first. Reads all contacts, at most
-- once a minute in a process, when it refuses a password.
SELECT u.name, c.network FROM contact c JOIN account u ON u.id = c.account_id
WHERE c.network IS NOT NULL
GROUP BY u.name, c.network
ORDER BY max(c.called_at) DESC LIMIT :limit

-- name: contact_forget_networks
-- Of an account that may no longer call about a hotel; without a hotel, about any.
UPDATE contact SET network = NULL
WHERE account_id = :account_id AND hotel_id = coalesce(CAST(:hotel_id AS BIGINT), hotel_id)
