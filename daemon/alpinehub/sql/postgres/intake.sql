-- Statements for PostgreSQL only; those for both stores are in ../intake.sql.

-- name: fan_out
-- newest
-- One delivery for each account of the hotel, disabled ones too: they get it when they are
-- enabled again.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT new.reservation_id, a.account_id, new.version::integer, a.hotel_id,
    new.unique_id_type::integer, 1
FROM (VALUES :row(reservation_id, version, hotel_id, unique_id_type))
    AS new (reservation_id, version, hotel_id, unique_id_type)
CROSS JOIN LATERAL (  -- one look-up for each, by the index
    SELECT * FROM account_hotel WHERE hotel_id = new.hotel_id::bigint OFFSET 0) AS a
