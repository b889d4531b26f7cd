-- What waits because it cannot be written in its user's protocol: for the review list.
CREATE INDEX delivery_held ON delivery (hotel_id, reservation_id)
    WHERE waiting = 1 AND held_code IS NOT NULL;
