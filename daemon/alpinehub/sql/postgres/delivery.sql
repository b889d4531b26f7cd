-- Statements for PostgreSQL only; those for both stores are in ../delivery.sql.

-- name: delivery_mark_sent
-- newest
-- :sent is [[reservation id, version, unique id type], ...]. Those that are not returned have no row yet
-- (delivery_add). Several deliveries are always locked in the order of reservation and version.
-- :still_waiting = 1: only those that wait; those that are not returned do not wait any more.
WITH held AS MATERIALIZED (
    SELECT d.ctid
    FROM (SELECT value FROM json_array_elements(:sent::json) AS e (value) ORDER BY (value ->> 0) COLLATE "C") AS j
    CROSS JOIN LATERAL (  -- here and below: one look for each, by the index; a kept plan read the whole table
        SELECT ctid FROM delivery WHERE reservation_id = j.value ->> 0 AND account_id = :account_id
            AND version = (j.value ->> 1)::integer
            AND waiting >= :still_waiting  -- looked at again once it is locked
        OFFSET 0 FOR NO KEY UPDATE) AS d
)
UPDATE delivery d SET
    sent_at = COALESCE(d.sent_at, :now_us), ever_sent = 1,
    undeliverable_text = NULL, undeliverable_code = NULL, undeliverable_at = NULL, rendered = :rendered,
    client_id = :client_id
FROM held WHERE d.ctid = held.ctid
RETURNING d.reservation_id, d.version, d.sent_at

-- name: delivery_add
-- newest
-- :sent as in delivery_mark_sent. Rows for an account that got the hotel after the versions were made: they
-- wait if they are of the newest version, which FOR SHARE makes certain.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT r.id, :account_id::bigint, (j.value ->> 1)::integer, r.hotel_id, (j.value ->> 2)::integer,
       CASE WHEN r.version = (j.value ->> 1)::integer AND r.erased_at IS NULL THEN 1 ELSE 0 END
FROM (SELECT value FROM json_array_elements(:sent::json) AS e (value) ORDER BY (value ->> 0) COLLATE "C") AS j
CROSS JOIN LATERAL (
    SELECT * FROM reservation WHERE id = j.value ->> 0 OFFSET 0 FOR SHARE) AS r
ON CONFLICT (reservation_id, account_id, version) DO NOTHING

-- name: delivery_acknowledge
-- :accepted is [[unique id type, reservation id], ...]. Each acknowledges, for this account, the
-- newest version of that type and id that was sent to it, and none that was not.
WITH sent AS (
    SELECT d.reservation_id, max(d.version) AS version
    FROM json_array_elements(:accepted::json) AS j (value)
    CROSS JOIN LATERAL (
        SELECT * FROM delivery WHERE reservation_id = j.value ->> 1 AND account_id = :account_id
            AND unique_id_type = (j.value ->> 0)::integer OFFSET 0) AS d
    JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
    WHERE d.sent_at IS NOT NULL
    GROUP BY d.reservation_id, d.unique_id_type
), held AS MATERIALIZED (
    SELECT d.ctid
    FROM (SELECT * FROM sent ORDER BY reservation_id, version) AS sent
    CROSS JOIN LATERAL (
        SELECT ctid, * FROM delivery WHERE reservation_id = sent.reservation_id AND account_id = :account_id
            AND version = sent.version
            AND sent_at IS NOT NULL  -- looked at again once it is locked: it may be sent anew
        OFFSET 0 FOR NO KEY UPDATE) AS d
)
UPDATE delivery d SET acked_at = COALESCE(d.acked_at, :now_us), waiting = 0
FROM held WHERE d.ctid = held.ctid
RETURNING d.unique_id_type, d.reservation_id, d.version, d.hotel_id, d.acked_at

-- name: delivery_sent
-- Which of these requests were sent to an account, and that it may still read.
SELECT DISTINCT d.reservation_id, d.hotel_id
FROM json_array_elements_text(:ids::json) AS j (value)
CROSS JOIN LATERAL (
    SELECT * FROM delivery WHERE reservation_id = j.value AND account_id = :account_id
        AND sent_at IS NOT NULL OFFSET 0) AS d
JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id

-- name: delivery_reject
-- :rejected is [[reservation id, reason of the hotel], ...]. They are not delivered any more. A
-- rejection names no type: it is about the newest version sent. Those that are returned are new.
WITH sent AS (
    SELECT d.reservation_id, max(d.version) AS version, max(j.value ->> 1) AS rejected_text
    FROM json_array_elements(:rejected::json) AS j (value)
    CROSS JOIN LATERAL (
        SELECT * FROM delivery WHERE reservation_id = j.value ->> 0 AND account_id = :account_id OFFSET 0) AS d
    JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
    WHERE d.sent_at IS NOT NULL
    GROUP BY d.reservation_id
), held AS MATERIALIZED (
    SELECT d.ctid, sent.rejected_text
    FROM (SELECT * FROM sent ORDER BY reservation_id, version) AS sent
    CROSS JOIN LATERAL (
        SELECT ctid, * FROM delivery WHERE reservation_id = sent.reservation_id AND account_id = :account_id
            AND version = sent.version
            AND sent_at IS NOT NULL AND rejected_text IS NULL  -- looked at again once it is locked
        OFFSET 0 FOR NO KEY UPDATE) AS d
)
UPDATE delivery d SET acked_at = COALESCE(d.acked_at, :now_us), waiting = 0,
    rejected_text = held.rejected_text
FROM held WHERE d.ctid = held.ctid
RETURNING d.reservation_id, d.version, d.hotel_id, d.acked_at,
    (SELECT h.code FROM hotel h WHERE h.id = d.hotel_id) AS hotel,
    (SELECT hu.name FROM account hu WHERE hu.id = d.account_id) AS account_name
