-- Statements for SQLite only; those for both stores are in ../administration.sql.

-- name: lock_hotel_settings
-- Columns that are not changed are written again. No lock is needed: a unit that writes runs alone.
SELECT id, code, name, time_zone, language, region, report_email, settings FROM hotel
WHERE code = :code

-- name: lock_hotel
-- No lock is needed: a unit that writes runs alone.
SELECT id, time_zone FROM hotel WHERE id = :hotel_id

-- name: list_accounts
SELECT u.id, u.name, u.created_at, u.changed_at, u.disabled_at,
    (SELECT group_concat(code, ' ') FROM (
        SELECT h.code FROM account_hotel uh JOIN hotel h ON h.id = uh.hotel_id
        WHERE uh.account_id = u.id ORDER BY h.code)) AS hotels
FROM account u ORDER BY u.name

-- name: lock_options
-- As lock_hotel_settings.
SELECT kind, options FROM source WHERE id = :id
