-- Whose number is to be read; once they are, nobody is in it.
CREATE INDEX customer_phone_due ON customer (id) WHERE phone_due = 1;
