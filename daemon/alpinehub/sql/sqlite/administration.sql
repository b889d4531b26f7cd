-- Of SQLite alone; what both stores run is in ../administration.sql.

-- name: hold_hotel_settings
-- Locked until the end of the unit: columns that are not changed are written again.
SELECT id, code, name, time_zone, language, region, report_email, settings FROM hotel
WHERE code = :code

-- name: hold_hotel
-- On PostgreSQL it keeps new sources of the hotel out until the end of the unit; here they are.
SELECT id, time_zone FROM hotel WHERE id = :hotel_id

-- name: list_accounts
SELECT u.id, u.name, u.created_at, u.changed_at, u.disabled_at,
    (SELECT group_concat(code, ' ') FROM (
        SELECT h.code FROM account_hotel uh JOIN hotel h ON h.id = uh.hotel_id
        WHERE uh.account_id = u.id ORDER BY h.code)) AS hotels
FROM account u ORDER BY u.name

-- name: hold_options
-- As hold_hotel_settings.
SELECT kind, options FROM source WHERE id = :id
