-- What a customer sent: to merge, export and erase him.
CREATE INDEX reservation_customer ON reservation (customer_id) WHERE customer_id IS NOT NULL;
