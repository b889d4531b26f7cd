-- The daily report of one hotel (report/). Bounds are the hotel's local day in microseconds.

-- name: report_hotels
SELECT id, code, name, time_zone, language, report_email, created_at,
    coalesce(enabled_at, created_at) AS since_at
FROM hotel WHERE disabled_at IS NULL ORDER BY code

-- name: report_versions
-- What came in: versions by ResStatus, the first of a reservation apart from the later ones.
SELECT v.res_status, CASE WHEN v.version = 1 THEN 1 ELSE 0 END AS is_first, count(*) AS count
FROM reservation r JOIN reservation_version v ON v.reservation_id = r.id
WHERE r.hotel_id = :hotel_id AND r.created_at < :until_at AND r.changed_at >= :from_at
  AND v.created_at >= :from_at AND v.created_at < :until_at
GROUP BY v.res_status, is_first

-- name: report_deliveries
-- What went out: each version once, however many users the hotel has, when the first of them got it.
SELECT count(CASE WHEN sent_at >= :from_at AND sent_at < :until_at THEN 1 END) AS delivered,
       count(CASE WHEN acked_at >= :from_at AND acked_at < :until_at THEN 1 END) AS acknowledged,
       count(CASE WHEN refused_at >= :from_at AND refused_at < :until_at THEN 1 END) AS refused
FROM (SELECT min(d.first_sent_at) AS sent_at,
             min(CASE WHEN d.refused_text IS NULL THEN d.acked_at END) AS acked_at,
             min(CASE WHEN d.refused_text IS NOT NULL THEN d.acked_at END) AS refused_at
      FROM reservation r JOIN delivery d ON d.reservation_id = r.id
      WHERE r.hotel_id = :hotel_id AND r.created_at < :until_at
      GROUP BY d.reservation_id, d.version) AS versions

-- name: report_waiting
-- What waits, for each user of the hotel; since when the oldest does.
SELECT u.name, count(d.reservation_id) AS waiting, min(v.created_at) AS since_at,
       count(d.held_text) AS held
FROM user_hotel uh
JOIN hotel_user u ON u.id = uh.user_id AND u.disabled_at IS NULL
LEFT JOIN delivery d ON d.user_id = uh.user_id AND d.hotel_id = uh.hotel_id AND d.waiting = 1
LEFT JOIN reservation_version v ON v.reservation_id = d.reservation_id AND v.version = d.version
WHERE uh.hotel_id = :hotel_id
GROUP BY u.id, u.name ORDER BY u.name

-- name: reports_made
-- Of the days that can still be due.
SELECT hotel_id, day FROM daily_report WHERE day >= :first_day

-- name: note_report
INSERT INTO daily_report (day, hotel_id, recipients, made_at)
VALUES (:day, :hotel_id, :recipients, :now_us)
ON CONFLICT (day, hotel_id) DO NOTHING
