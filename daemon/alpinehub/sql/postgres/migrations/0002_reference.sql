-- References that nothing can break are not looked up any more. A row of these tables names its
-- reservation, or the hotel of its source, as the unit that writes it has just written or read it,
-- and neither is ever deleted. The look-ups were a quarter of what a webhook cost the server: one
-- for each row and reference, which locks the row that it finds, and all webhooks of a hotel shared
-- the lock of its row. The embedded store has them all, where they cost next to nothing: what would
-- break one is found there.
--
-- The inbox still checks its source and locks it thereby: whoever grants a hotel to an account relies
-- on that (hold_sources).

-- In the order in which a webhook uses them.
LOCK TABLE reservation, reservation_version, customer, inbox, delivery, reservation_history, hotel
    IN ACCESS EXCLUSIVE MODE;
ALTER TABLE customer DROP CONSTRAINT customer_hotel_id_fkey;
ALTER TABLE reservation DROP CONSTRAINT reservation_hotel_id_fkey;
ALTER TABLE reservation_version DROP CONSTRAINT reservation_version_reservation_id_fkey;
ALTER TABLE inbox DROP CONSTRAINT inbox_reservation_id_fkey;
ALTER TABLE delivery DROP CONSTRAINT delivery_reservation_id_fkey;
ALTER TABLE reservation_history DROP CONSTRAINT reservation_history_reservation_id_fkey;
