-- What went out and what was acknowledged on a day, for the daily report.
CREATE INDEX delivery_sent ON delivery (hotel_id, first_sent_at) WHERE first_sent_at IS NOT NULL;
CREATE INDEX delivery_acked ON delivery (hotel_id, acked_at) WHERE acked_at IS NOT NULL;
