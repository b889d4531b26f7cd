-- Of SQLite alone; what both stores run is in ../alert.sql.

-- name: alert.add
INSERT INTO alert (fingerprint, cause, title, sample, place, urgent, count, pending, first_at,
    last_at, since_at)
VALUES (:fingerprint, :cause, :title, :sample, :place, :urgent, :count, :pending, :first_at,
    :last_at, :since_at)
ON CONFLICT (fingerprint) DO UPDATE SET
    cause = excluded.cause, title = excluded.title, sample = excluded.sample,
    place = excluded.place, urgent = excluded.urgent, count = alert.count + excluded.count,
    pending = alert.pending + excluded.pending,
    first_at = min(alert.first_at, excluded.first_at),
    last_at = max(alert.last_at, excluded.last_at),
    since_at = CASE WHEN alert.pending = 0 THEN excluded.since_at ELSE alert.since_at END;
