-- What waits because it cannot be written in its account's protocol: for the review list.
CREATE INDEX delivery_undeliverable ON delivery (hotel_id, reservation_id)
    WHERE waiting = 1 AND undeliverable_code IS NOT NULL;
