-- The daily report of one hotel (report/). Bounds are the hotel's local day in microseconds.

-- name: report_hotels
SELECT id, code, name, time_zone, language, report_email, created_at,
    coalesce(enabled_at, created_at) AS since_at, settings
FROM hotel WHERE disabled_at IS NULL ORDER BY code

-- name: report_hours
-- Submissions that became no version, by kind; also those that the primary has not added yet.
SELECT kind, CAST(sum(submissions) AS BIGINT) AS count
FROM (SELECT hotel_id, hour_at, kind, submissions FROM hotel_hour
      UNION ALL
      SELECT hotel_id, hour_at, kind, 1 FROM hour_change) AS counted
WHERE hotel_id = :hotel_id AND hour_at >= :from_at AND hour_at < :until_at
GROUP BY kind

-- name: report_trouble
-- Wrong messages of the day, and submissions in review now.
SELECT (SELECT count(*) FROM inbound_message p
        WHERE p.hotel_id = :hotel_id AND p.outcome = 'error'
          AND p.received_at >= :from_at AND p.received_at < :until_at) AS errors,
       (SELECT count(*) FROM inbox i JOIN source s ON s.id = i.source_id
        WHERE i.state = 'review'
          AND s.hotel_id = :hotel_id) AS review

-- name: report_received
-- New requests and reservations of a day. A cancellation of an unknown one is not among them.
SELECT count(*) AS count
FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = 1
WHERE r.hotel_id = :hotel_id AND r.created_at >= :from_at AND r.created_at < :until_at
  AND v.res_status <> 'Cancelled'

-- name: report_versions
-- Changes (new versions of known requests), and all cancellations.
SELECT count(CASE WHEN v.version > 1 AND v.res_status <> 'Cancelled' THEN 1 END) AS changes,
       count(CASE WHEN v.res_status = 'Cancelled' THEN 1 END) AS cancellations
FROM reservation r JOIN reservation_version v ON v.reservation_id = r.id
WHERE r.hotel_id = :hotel_id AND r.created_at < :until_at AND r.changed_at >= :from_at
  AND v.created_at >= :from_at AND v.created_at < :until_at

-- name: report_deliveries
-- Versions sent, each counted once, when the first account of the hotel got it. Only versions that were
-- sent or acknowledged that day are read, not the whole history.
WITH touched AS (
    SELECT reservation_id, version FROM delivery
    WHERE hotel_id = :hotel_id AND sent_at >= :from_at AND sent_at < :until_at
    UNION
    SELECT reservation_id, version FROM delivery
    WHERE hotel_id = :hotel_id AND acked_at >= :from_at AND acked_at < :until_at)
SELECT count(CASE WHEN sent_at >= :from_at AND sent_at < :until_at THEN 1 END) AS delivered,
       count(CASE WHEN acked_at >= :from_at AND acked_at < :until_at THEN 1 END) AS acknowledged,
       count(CASE WHEN rejected_at >= :from_at AND rejected_at < :until_at THEN 1 END) AS rejected
FROM (SELECT min(d.sent_at) AS sent_at,
             min(CASE WHEN d.rejected_text IS NULL THEN d.acked_at END) AS acked_at,
             min(CASE WHEN d.rejected_text IS NOT NULL THEN d.acked_at END) AS rejected_at
      FROM touched t JOIN delivery d
        ON d.reservation_id = t.reservation_id AND d.version = t.version
      GROUP BY d.reservation_id, d.version) AS versions

-- name: report_waiting
-- Waiting requests of each account of the hotel, and since when the oldest waits.
SELECT u.name AS account, count(d.reservation_id) AS count, min(v.created_at) AS since_at,
       count(d.undeliverable_code) AS undeliverable,
       count(CASE WHEN v.created_at < :late_at THEN 1 END) AS late, c.polled_at, c.acked_at,
       p.pushed_at, coalesce(p.failures, 0) AS failures
FROM account_hotel uh
JOIN account u ON u.id = uh.account_id AND u.disabled_at IS NULL
LEFT JOIN contact c ON c.account_id = uh.account_id AND c.hotel_id = uh.hotel_id
LEFT JOIN push_hotel p ON p.account_id = uh.account_id AND p.hotel_id = uh.hotel_id
LEFT JOIN waiting_delivery d ON d.account_id = uh.account_id AND d.hotel_id = uh.hotel_id
LEFT JOIN reservation_version v ON v.reservation_id = d.reservation_id AND v.version = d.version
WHERE uh.hotel_id = :hotel_id
GROUP BY u.id, u.name, c.polled_at, c.acked_at, p.pushed_at, p.failures ORDER BY u.name

-- name: reports_made
-- Reports of the days that can still be due.
SELECT hotel_id, day FROM daily_report WHERE day >= :first_day

-- name: note_report
INSERT INTO daily_report (day, hotel_id) VALUES (:day, :hotel_id)
ON CONFLICT (day, hotel_id) DO NOTHING

-- name: report_sources
-- New reservations by source and ResStatus; those without a day of arrival are leads.
SELECT s.name AS source, v.res_status,
       CASE WHEN v.res_status = 'Requested' AND (v.data{|::json} ->> 'arrival') IS NULL THEN 1 ELSE 0 END AS is_lead,
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
  AND r.customer_id IS NOT NULL AND v.res_status <> 'Cancelled' AND (v.data{|::json} ->> 'arrival') IS NOT NULL
  AND EXISTS (
    SELECT 1 FROM reservation o
    JOIN reservation_version ov ON ov.reservation_id = o.id AND ov.version = 1
    WHERE o.customer_id = r.customer_id AND o.created_at > r.created_at - :repeat_us
      AND (o.created_at, o.id) < (r.created_at, r.id)
      AND (ov.data{|::json} ->> 'arrival') = (v.data{|::json} ->> 'arrival')
      AND (ov.data{|::json} ->> 'departure') IS NOT DISTINCT FROM (v.data{|::json} ->> 'departure'))
