-- Of PostgreSQL alone; what both stores run is in ../document.sql.

-- name: rateplan_count
SELECT count(*) AS plans, coalesce(sum(octet_length(body)), 0)::bigint AS bytes
FROM rate_plan WHERE hotel_id = :hotel_id

-- name: rateplan_set
-- Each change has a moment of its own, by which an overlay sees that somebody was first.
INSERT INTO rate_plan (hotel_id, code, protocol, body, changed_at)
VALUES (:hotel_id, :code, :protocol, :body, :now_us)
ON CONFLICT (hotel_id, code) DO UPDATE SET
    protocol = excluded.protocol,
    body = excluded.body,
    changed_at = greatest(excluded.changed_at, rate_plan.changed_at + 1)

-- name: rateplan_overlay
UPDATE rate_plan SET
    protocol = :protocol,
    body = :body,
    changed_at = greatest(CAST(:now_us AS bigint), changed_at + 1)
WHERE hotel_id = :hotel_id AND code = :code AND changed_at = :seen
