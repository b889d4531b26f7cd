-- What the command line changes and shows (hotels.py, accounts.py, sources.py). Each change bumps
-- the directory's revision in the same unit.

-- name: add_hotel
INSERT INTO hotel (code, name, time_zone, language, region, report_email, created_at)
VALUES (:code, :name, :time_zone, :language, :region, :report_email, :now)
ON CONFLICT (code) DO NOTHING
RETURNING id

-- name: list_hotels
SELECT h.id, h.code, h.name, h.time_zone, h.language, h.region, h.report_email, h.created_at,
    h.disabled_at,
    (SELECT count(*) FROM account_hotel uh WHERE uh.hotel_id = h.id) AS accounts,
    (SELECT count(*) FROM source s WHERE s.hotel_id = h.id) AS sources
FROM hotel h ORDER BY h.code

-- name: show_hotel
SELECT id, code, name, time_zone, language, region, report_email, settings, created_at, disabled_at
FROM hotel WHERE code = :code

-- name: change_hotel
UPDATE hotel SET
    name = :name,
    time_zone = :time_zone,
    language = :language,
    region = :region,
    report_email = :report_email,
    settings = :settings
WHERE id = :id

-- name: get_hotel
SELECT id, code, disabled_at FROM hotel WHERE code = :code

-- name: hotel_zone
SELECT id, time_zone FROM hotel WHERE id = :hotel_id

-- name: lock_sources
-- newest
-- Until the end of the unit of work no reservation is added or changed: a unit that does so first locks
-- the source, by the foreign key of the inbox, and then reads the hotel's accounts and what waits. A
-- unit with an older snapshot finds that this key has changed, and runs again.
UPDATE source SET readers_revision = readers_revision + 1 WHERE hotel_id = :hotel_id

-- name: set_hotel_disabled
UPDATE hotel
SET disabled_at = CAST(:disabled_at AS BIGINT),
    enabled_at = CASE
        WHEN disabled_at IS NOT NULL AND CAST(:disabled_at AS BIGINT) IS NULL THEN :now ELSE enabled_at
    END
WHERE code = :code

-- name: add_account
-- newest
INSERT INTO account (name, password, created_at, changed_at)
VALUES (:name, :password, :now, :now)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: list_accounts
SELECT id, name, created_at, changed_at, disabled_at FROM account ORDER BY name

-- name: list_account_hotels
SELECT uh.account_id, h.code FROM account_hotel uh JOIN hotel h ON h.id = uh.hotel_id
ORDER BY h.code

-- name: get_account
SELECT id, name, disabled_at FROM account WHERE name = :name

-- name: get_password
SELECT password FROM account WHERE name = :name

-- name: set_password
-- until: how long the previous password is accepted.
UPDATE account
SET password = :password, changed_at = :now, before_until = :until,
    password_before = CASE WHEN CAST(:until AS BIGINT) IS NULL THEN NULL ELSE password END
WHERE name = :name

-- name: set_account_disabled
UPDATE account
SET disabled_at = CAST(:disabled_at AS BIGINT),
    enabled_at = CASE
        WHEN disabled_at IS NOT NULL AND CAST(:disabled_at AS BIGINT) IS NULL THEN :now ELSE enabled_at
    END
WHERE name = :name

-- name: grant_hotel
INSERT INTO account_hotel (account_id, hotel_id, from_at) VALUES (:account_id, :hotel_id, :from_at)
ON CONFLICT DO NOTHING

-- name: revoke_hotel
DELETE FROM account_hotel WHERE account_id = :account_id AND hotel_id = :hotel_id

-- name: deliver_open
-- For an account new to a hotel: the newest version of each request that no account has acknowledged,
-- or that was sent to this account when it read the hotel before (also cancellations). Nothing that
-- was erased or withdrawn, and no past stay. :today is the hotel's.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT r.id, :account_id, r.version, r.hotel_id,
    CASE r.status WHEN 'cancelled' THEN 15 ELSE 14 END, 1
FROM reservation r
WHERE r.hotel_id = :hotel_id AND r.erased_at IS NULL AND r.withdrawn_at IS NULL
    AND (r.ends_on IS NULL OR r.ends_on >= :today)
    AND ((r.status <> 'cancelled' AND NOT EXISTS (
            SELECT 1 FROM delivery d
            WHERE d.reservation_id = r.id AND d.version = r.version AND d.acked_at IS NOT NULL))
        OR EXISTS (
            SELECT 1 FROM delivery given
            WHERE given.reservation_id = r.id AND given.account_id = :account_id
                AND given.version < r.version AND given.ever_sent = 1))
ON CONFLICT (reservation_id, account_id, version) DO NOTHING

-- name: list_sources
SELECT s.id, h.code AS hotel, s.kind, s.name, s.created_at, s.changed_at, s.disabled_at,
    s.before_until
FROM source s JOIN hotel h ON h.id = s.hotel_id ORDER BY h.code, s.name

-- name: sealed_secrets
SELECT h.code AS hotel, s.name, s.secret FROM source s JOIN hotel h ON h.id = s.hotel_id
WHERE s.disabled_at IS NULL ORDER BY s.id

-- name: get_source
SELECT s.id, h.code AS hotel, s.kind, s.name, s.fingerprint, s.mapping, s.options, s.before_until,
    s.created_at, s.changed_at, s.disabled_at
FROM source s JOIN hotel h ON h.id = s.hotel_id
WHERE h.code = :hotel AND s.name = :name

-- name: add_source
INSERT INTO source (hotel_id, kind, name, secret, fingerprint, options, created_at, changed_at)
VALUES (:hotel_id, :kind, :name, :secret, :fingerprint, :options, :now, :now)
ON CONFLICT DO NOTHING
RETURNING id

-- name: find_source_by_fingerprint
-- Including secrets from before a rotation that are still accepted.
SELECT name FROM source
WHERE hotel_id = :hotel_id AND (fingerprint = :fingerprint
    OR (id <> :id AND fingerprint_before = :fingerprint AND before_until > :now))

-- name: google_hotels
-- Other hotels with this key, so that a lead has to name its own.
SELECT h.code AS hotel FROM source s JOIN hotel h ON h.id = s.hotel_id
WHERE s.kind = 'google' AND s.fingerprint = :fingerprint AND h.code <> :hotel
    AND s.disabled_at IS NULL AND h.disabled_at IS NULL
ORDER BY h.code

-- name: set_secret
-- until: how long the previous secret is accepted.
UPDATE source
SET secret = :secret, fingerprint = :fingerprint, changed_at = :now, before_until = :until,
    secret_before = CASE WHEN CAST(:until AS BIGINT) IS NULL THEN NULL ELSE secret END,
    fingerprint_before = CASE WHEN CAST(:until AS BIGINT) IS NULL THEN NULL ELSE fingerprint END
WHERE id = :id

-- name: source_options
SELECT kind, options FROM source WHERE id = :id

-- name: set_options
UPDATE source SET options = :options WHERE id = :id

-- name: set_mapping
-- was: the expected mapping; no row changed: it is another one by now.
UPDATE source SET mapping = :mapping WHERE id = :id AND coalesce(mapping, '') = :was

-- name: set_source_disabled
UPDATE source SET disabled_at = :disabled_at WHERE id = :id
