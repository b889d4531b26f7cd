-- The statements of a webhook, which run in one unit of work (intake.py).

-- name: find_reservation
-- A source's reservation with its newest version.
SELECT r.id, r.version, r.status, r.customer_id, r.sequence, r.sent_at,
    v.content_hash, v.data
FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.source_id = :source_id AND r.external_id = :external_id

-- name: insert_reservation_of_new_customer
-- The same unit of work has just added the customer with this address. Looked up for each row: with a
-- join the planner might read all customers.
INSERT INTO reservation (id, hotel_id, source_id, external_id, customer_id, version, status,
    ends_on, sequence, sent_at, created_at, changed_at)
WITH new (id, hotel_id, source_id, external_id, email, version, status, ends_on, sequence, sent_at,
        created_at, changed_at) AS (
    VALUES :row(id, hotel_id, source_id, external_id, email, version, status, ends_on, sequence,
        sent_at, created_at, changed_at)),
    found AS MATERIALIZED (
        SELECT new.*, (SELECT c.id FROM customer c
                       WHERE c.hotel_id = CAST(new.hotel_id AS BIGINT) AND c.email = new.email)
            AS customer_id
        FROM new)
SELECT id, CAST(hotel_id AS BIGINT), CAST(source_id AS BIGINT), external_id, customer_id,
    CAST(version AS INTEGER), status, ends_on, CAST(sequence AS BIGINT),
    CAST(sent_at AS BIGINT), CAST(created_at AS BIGINT), CAST(changed_at AS BIGINT)
FROM found WHERE customer_id IS NOT NULL

-- name: update_reservation
-- newest
-- A new version waits for all accounts, whatever the state of the one before.
UPDATE reservation
SET version = :version, status = :status, customer_id = :customer_id, changed_at = :now,
    ends_on = :ends_on, erased_at = NULL, withdrawn_at = NULL
WHERE id = :id

-- name: find_ended
-- Whether a version with this content was before a cancellation.
SELECT 1 AS found FROM reservation_version v
WHERE v.reservation_id = :id AND v.content_hash = :content_hash AND v.version < (
    SELECT max(c.version) FROM reservation_version c
    WHERE c.reservation_id = :id AND c.res_status = 'Cancelled')
LIMIT 1

-- name: note_order
-- Also for a duplicate, so that an older submission that comes later changes nothing.
UPDATE reservation SET
    sequence = CASE WHEN CAST(:sequence AS BIGINT) > coalesce(sequence, -1) THEN CAST(:sequence AS BIGINT) ELSE sequence END,
    sent_at = CASE WHEN CAST(:sent_at AS BIGINT) > coalesce(sent_at, 0) THEN CAST(:sent_at AS BIGINT) ELSE sent_at END
WHERE id = :id

-- name: hold_reservation
-- Locks a reservation, unless it was changed, erased or deleted since it was read.
UPDATE reservation SET changed_at = changed_at
WHERE id = :id AND version = :version AND erased_at IS NULL

-- name: end_waiting
-- There is a newer version, so older ones do not wait any more.
UPDATE delivery SET waiting = 0 WHERE reservation_id = :reservation_id AND waiting = 1
