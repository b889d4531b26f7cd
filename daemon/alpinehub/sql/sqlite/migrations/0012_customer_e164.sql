-- Who has a number, however it was written.
CREATE INDEX customer_e164 ON customer (hotel_id, phone_e164) WHERE phone_e164 IS NOT NULL;
