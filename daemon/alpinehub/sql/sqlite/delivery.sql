-- Statements for SQLite only; those for both stores are in ../delivery.sql.

-- name: delivery_mark_sent
-- :sent is [[reservation id, version, unique id type], ...]. Those that are not returned have no row yet.
-- :still_waiting = 1: only those that wait; those that are not returned do not wait any more.
UPDATE delivery SET
    sent_at = COALESCE(sent_at, :now_us), ever_sent = 1,
    undeliverable_text = NULL, undeliverable_code = NULL, undeliverable_at = NULL, rendered = :rendered,
    client_id = :client_id
FROM json_each(:sent) j
WHERE delivery.reservation_id = j.value ->> 0 AND delivery.version = j.value ->> 1
  AND delivery.account_id = :account_id AND delivery.waiting >= :still_waiting
RETURNING reservation_id, version, sent_at

-- name: delivery_add
-- :sent as in delivery_mark_sent. Rows for an account that got the hotel after the versions were made: they
-- wait if they are of the newest version.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT r.id, :account_id, j.value ->> 1, r.hotel_id, j.value ->> 2,
       CASE WHEN r.version = j.value ->> 1 AND r.erased_at IS NULL THEN 1 ELSE 0 END
FROM json_each(:sent) j JOIN reservation r ON r.id = j.value ->> 0
WHERE true
ON CONFLICT (reservation_id, account_id, version) DO NOTHING

-- name: delivery_acknowledge
-- :accepted is [[unique id type, reservation id], ...]. Each acknowledges, for this account, the
-- newest version of that type and id that was sent to it, and none that was not.
UPDATE delivery SET acked_at = COALESCE(delivery.acked_at, :now_us), waiting = 0
FROM (SELECT d.reservation_id, max(d.version) AS version
      FROM json_each(:accepted) j
      JOIN delivery d ON d.reservation_id = j.value ->> 1 AND d.unique_id_type = j.value ->> 0
      JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
      WHERE d.account_id = :account_id AND d.sent_at IS NOT NULL
      GROUP BY d.reservation_id, d.unique_id_type) AS sent
WHERE delivery.account_id = :account_id AND delivery.reservation_id = sent.reservation_id
  AND delivery.version = sent.version
RETURNING unique_id_type, reservation_id, version, hotel_id, acked_at

-- name: delivery_sent
-- Which of these requests were sent to an account, and that it may still read.
SELECT DISTINCT d.reservation_id, d.hotel_id
FROM delivery d JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
WHERE d.reservation_id IN :ids[text] AND d.account_id = :account_id AND d.sent_at IS NOT NULL

-- name: delivery_reject
-- :rejected is [[reservation id, reason of the hotel], ...]. They are not delivered any more. A
-- rejection names no type: it is about the newest version sent. Those that are returned are new.
UPDATE delivery SET acked_at = COALESCE(delivery.acked_at, :now_us), waiting = 0,
    rejected_text = sent.rejected_text
FROM (SELECT d.reservation_id, max(d.version) AS version, max(j.value ->> 1) AS rejected_text
      FROM json_each(:rejected) j
      JOIN delivery d ON d.reservation_id = j.value ->> 0
      JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
      WHERE d.account_id = :account_id AND d.sent_at IS NOT NULL
      GROUP BY d.reservation_id) AS sent
WHERE delivery.account_id = :account_id AND delivery.reservation_id = sent.reservation_id
  AND delivery.version = sent.version AND delivery.rejected_text IS NULL
RETURNING reservation_id, version, hotel_id, acked_at,
    (SELECT h.code FROM hotel h WHERE h.id = delivery.hotel_id) AS hotel,
    (SELECT hu.name FROM account hu WHERE hu.id = delivery.account_id) AS account_name
