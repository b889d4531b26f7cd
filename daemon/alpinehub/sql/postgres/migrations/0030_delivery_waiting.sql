-- With all that says whether a version waits (0031), so that counting what waits reads no row.
DROP INDEX delivery_waiting;
CREATE INDEX delivery_waiting
    ON delivery (user_id, hotel_id, reservation_id, version, unique_id_type) WHERE waiting = 1;
