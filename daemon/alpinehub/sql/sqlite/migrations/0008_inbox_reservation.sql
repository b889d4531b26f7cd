-- What was sent of a reservation: for its trail, and to erase it.
CREATE INDEX inbox_reservation ON inbox (reservation_id) WHERE reservation_id IS NOT NULL;
