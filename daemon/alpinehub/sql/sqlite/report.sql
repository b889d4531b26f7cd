-- Statements for SQLite only; those for both stores are in ../report.sql.

-- name: report_sources
-- New reservations by source and ResStatus; those without a day of arrival are leads.
SELECT s.name AS source, v.res_status,
       CASE WHEN v.res_status = 'Requested' AND (v.data ->> '$.arrival') IS NULL THEN 1 ELSE 0 END AS is_lead,
       count(*) AS count
FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = 1
JOIN source s ON s.id = r.source_id
WHERE r.hotel_id = :hotel_id AND r.created_at >= :from_at AND r.created_at < :until_at
GROUP BY s.name, v.res_status, is_lead

-- name: report_repeated
-- New reservations whose guest and stay are those of another one.
SELECT count(*) AS count
FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = 1
WHERE r.hotel_id = :hotel_id AND r.created_at >= :from_at AND r.created_at < :until_at
  AND r.customer_id IS NOT NULL AND v.res_status <> 'Cancelled' AND (v.data ->> '$.arrival') IS NOT NULL
  AND EXISTS (
    SELECT 1 FROM reservation o
    JOIN reservation_version ov ON ov.reservation_id = o.id AND ov.version = 1
    WHERE o.customer_id = r.customer_id AND o.created_at > r.created_at - :repeat_us
      AND (o.created_at, o.id) < (r.created_at, r.id)
      AND (ov.data ->> '$.arrival') = (v.data ->> '$.arrival')
      AND (ov.data ->> '$.departure') IS (v.data ->> '$.departure'))
