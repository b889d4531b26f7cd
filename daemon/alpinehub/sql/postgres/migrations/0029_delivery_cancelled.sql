-- Cancellations that wait: few, of which those do not count that an account is not told of (0030).
CREATE INDEX delivery_cancelled ON delivery (account_id, hotel_id)
    WHERE waiting = 1 AND unique_id_type = 15;
