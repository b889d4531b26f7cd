-- Hotels, accounts and sources as the workers need and cache them (directory.py).

-- name: directory_revision
SELECT revision FROM directory WHERE id = 1

-- name: bump_directory
UPDATE directory SET revision = revision + 1 WHERE id = 1

-- name: active_hotels
SELECT id, code, name, time_zone, language, region, settings,
    EXISTS (SELECT 1 FROM account_hotel ah JOIN push_target t ON t.account_id = ah.account_id
            WHERE ah.hotel_id = hotel.id AND t.disabled_at IS NULL) AS pushed
FROM hotel WHERE disabled_at IS NULL

-- name: active_sources
SELECT s.id, s.hotel_id, s.kind, s.name, s.secret, s.fingerprint, s.secret_before,
    s.fingerprint_before, s.before_until, s.mapping, s.options
FROM source s JOIN hotel h ON h.id = s.hotel_id
WHERE s.disabled_at IS NULL AND h.disabled_at IS NULL
ORDER BY s.id

-- name: active_accounts
SELECT id, name, password, password_before, before_until FROM account WHERE disabled_at IS NULL

-- name: active_account_hotels
SELECT uh.account_id, uh.hotel_id
FROM account_hotel uh JOIN hotel h ON h.id = uh.hotel_id
WHERE h.disabled_at IS NULL
ORDER BY uh.account_id, uh.hotel_id
