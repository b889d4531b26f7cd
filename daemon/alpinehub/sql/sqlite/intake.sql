-- Statements for SQLite only; those for both stores are in ../intake.sql.

-- name: fan_out
-- One delivery for each account of the hotel, disabled ones too: they get it when they are
-- enabled again.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT :reservation_id, account_id, :version, hotel_id, :unique_id_type, 1
FROM account_hotel WHERE hotel_id = :hotel_id
