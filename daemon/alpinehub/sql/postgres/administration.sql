-- Statements for PostgreSQL only; those for both stores are in ../administration.sql.

-- name: lock_hotel_settings
-- newest
-- Locked until the end of the unit, because columns that are not changed are written again.
SELECT id, code, name, time_zone, language, region, report_email, settings FROM hotel
WHERE code = :code
FOR NO KEY UPDATE

-- name: lock_hotel
-- newest
-- Until the end of the unit the hotel gets no other source: adding one also locks this row, by its
-- foreign key.
SELECT id, time_zone FROM hotel WHERE id = :hotel_id FOR UPDATE

-- name: list_accounts
SELECT u.id, u.name, u.created_at, u.changed_at, u.disabled_at,
    (SELECT string_agg(h.code, ' ' ORDER BY h.code)
        FROM account_hotel uh JOIN hotel h ON h.id = uh.hotel_id
        WHERE uh.account_id = u.id) AS hotels
FROM account u ORDER BY u.name

-- name: lock_options
-- newest
-- As lock_hotel_settings.
SELECT kind, options FROM source WHERE id = :id
FOR NO KEY UPDATE
