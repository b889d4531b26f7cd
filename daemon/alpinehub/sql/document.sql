-- Hotel data from hotel software (alpinebits/inbound.py, actions/rate_plans.py).

-- name: document_get
SELECT revision, body, complete_at FROM hotel_document
WHERE hotel_id = :hotel_id AND kind = :kind

-- name: document_set
-- :seen is the revision that the document was made from; no row: a concurrent update was first. NULL: it
-- replaces any.
INSERT INTO hotel_document
    (hotel_id, kind, revision, protocol, account_id, body, complete_at, changed_at)
VALUES (:hotel_id, :kind, 1, :protocol, :account_id, :body, :complete_at, :now_us)
ON CONFLICT (hotel_id, kind) DO UPDATE SET
    revision = hotel_document.revision + 1,
    protocol = excluded.protocol,
    account_id = excluded.account_id,
    body = excluded.body,
    complete_at = coalesce(excluded.complete_at, hotel_document.complete_at),
    changed_at = excluded.changed_at
WHERE hotel_document.revision = coalesce(CAST(:seen AS BIGINT), hotel_document.revision)
RETURNING revision

-- name: document_list
SELECT d.kind, d.protocol, u.name AS sent_by, d.complete_at, d.changed_at
FROM hotel_document d JOIN account u ON u.id = d.account_id
WHERE d.hotel_id = :hotel_id
UNION ALL SELECT 'rates ' || code, protocol, NULL, NULL, changed_at
FROM rate_plan WHERE hotel_id = :hotel_id
UNION ALL SELECT 'activity ' || event_id, protocol, NULL, NULL, changed_at
FROM activity WHERE hotel_id = :hotel_id
ORDER BY 1

-- name: inbound_messages
-- The newest first.
SELECT p.id, p.received_at, u.name AS sent_by, p.action, p.protocol, p.client_id, p.size_bytes,
    p.outcome, p.problem
FROM inbound_message p JOIN account u ON u.id = p.account_id
WHERE p.hotel_id = :hotel_id ORDER BY p.id DESC LIMIT :limit

-- name: rateplan_all
SELECT code, body, changed_at FROM rate_plan WHERE hotel_id = :hotel_id

-- name: rateplan_lock
-- Locks the plans of the hotel until the end of the unit of work: of two concurrent complete sets,
-- neither would see and remove the other's plans. The row is changed, not only locked, so that a unit
-- that waited for it on an older snapshot runs again.
UPDATE hotel SET name = name WHERE id = :hotel_id RETURNING id

-- name: rateplan_remove
DELETE FROM rate_plan WHERE hotel_id = :hotel_id
    AND code IN :codes[text]

-- name: rateplan_remove_others
DELETE FROM rate_plan WHERE hotel_id = :hotel_id
    AND code NOT IN :codes[text]

-- name: activity_all
SELECT context, event_id, protocol, body, changed_at FROM activity
WHERE hotel_id = :hotel_id ORDER BY context, event_id

-- name: activity_set
INSERT INTO activity (hotel_id, context, event_id, protocol, body, changed_at)
VALUES (:hotel_id, :context, :event_id, :protocol, :body, :now_us)
ON CONFLICT (hotel_id, context, event_id) DO UPDATE SET
    protocol = excluded.protocol,
    body = excluded.body,
    changed_at = excluded.changed_at

-- name: activity_remove
DELETE FROM activity WHERE hotel_id = :hotel_id AND context = :context AND event_id = :event_id

-- name: activity_forget
DELETE FROM activity WHERE hotel_id = :hotel_id AND changed_at < :before

-- name: activity_count
SELECT count(*) AS activities FROM activity WHERE hotel_id = :hotel_id

-- name: rateplan_count
SELECT count(*) AS plans, coalesce(sum(length(body)), 0) AS bytes
FROM rate_plan WHERE hotel_id = :hotel_id

-- name: rateplan_set
-- changed_at increases with each change, so that an overlay notices a concurrent update.
INSERT INTO rate_plan (hotel_id, code, protocol, body, changed_at)
VALUES (:hotel_id, :code, :protocol, :body, :now_us)
ON CONFLICT (hotel_id, code) DO UPDATE SET
    protocol = excluded.protocol,
    body = excluded.body,
    changed_at = CASE WHEN excluded.changed_at > rate_plan.changed_at THEN excluded.changed_at
                      ELSE rate_plan.changed_at + 1 END

-- name: rateplan_overlay
UPDATE rate_plan SET
    protocol = :protocol,
    body = :body,
    changed_at = CASE WHEN :now_us > changed_at THEN :now_us ELSE changed_at + 1 END
WHERE hotel_id = :hotel_id AND code = :code AND changed_at = :seen
