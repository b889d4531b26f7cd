-- Alerts by kind.

-- name: alert.pending
-- The oldest first; the rest waits for the next mail.
SELECT fingerprint, cause, title, sample, place, urgent, count, pending, first_at, last_at,
    since_at, mailed_at
FROM alert WHERE pending > 0 ORDER BY since_at, fingerprint LIMIT :limit;

-- name: alert.told
-- Alerts that were counted meanwhile stay pending.
UPDATE alert SET pending = pending - :pending, since_at = :now, mailed_at = :now, mail_id = :mail_id
WHERE fingerprint = :fingerprint AND pending >= :pending;

-- name: alert.mails
-- Number of mails since then, and the time of the first.
SELECT count(*) AS count, min(written_at) AS first_at FROM alert_mail WHERE written_at > :since;

-- name: alert.note_mail
INSERT INTO alert_mail (written_at) VALUES (:now);

-- name: alert.forget_mails
DELETE FROM alert_mail WHERE written_at <= :since;

-- name: alert.list
-- mailed_at: when the mail server accepted the last mail; `mail`: the state of that mail.
SELECT a.fingerprint, a.cause, a.title, a.sample, a.place, a.urgent, a.count, a.pending, a.first_at,
    a.last_at, a.since_at, m.state AS mail, m.sent_at AS mailed_at
FROM alert AS a LEFT JOIN mail AS m ON m.message_id = a.mail_id
ORDER BY a.last_at DESC, a.fingerprint LIMIT :limit;

-- name: alert.show
SELECT a.fingerprint, a.cause, a.title, a.sample, a.place, a.urgent, a.count, a.pending, a.first_at,
    a.last_at, a.since_at, m.state AS mail, m.sent_at AS mailed_at
FROM alert AS a LEFT JOIN mail AS m ON m.message_id = a.mail_id
WHERE a.fingerprint = :fingerprint;

-- name: alert.clear
DELETE FROM alert WHERE fingerprint = :fingerprint;

-- name: alert.clear_all
DELETE FROM alert;

-- name: retention.alert
DELETE FROM alert WHERE fingerprint IN (
    SELECT fingerprint FROM alert WHERE last_at < :before LIMIT :limit);

-- name: alert.add
INSERT INTO alert (fingerprint, cause, title, sample, place, urgent, count, pending, first_at,
    last_at, since_at)
VALUES (:fingerprint, :cause, :title, :sample, :place, :urgent, :count, :pending, :first_at,
    :last_at, :since_at)
ON CONFLICT (fingerprint) DO UPDATE SET
    cause = excluded.cause, title = excluded.title, sample = excluded.sample,
    place = excluded.place, urgent = excluded.urgent, count = alert.count + excluded.count,
    pending = alert.pending + excluded.pending,
    first_at = CASE WHEN excluded.first_at < alert.first_at THEN excluded.first_at
               ELSE alert.first_at END,
    last_at = CASE WHEN excluded.last_at > alert.last_at THEN excluded.last_at
              ELSE alert.last_at END,
    since_at = CASE WHEN alert.pending = 0 THEN excluded.since_at ELSE alert.since_at END;
