-- What the hotel says of a reservation, in the words of its software.
ALTER TABLE reservation ADD COLUMN hotel_status TEXT;
ALTER TABLE reservation ADD COLUMN hotel_status_at BIGINT;
