-- Whose hashes are to be made; once they are, nobody is in it.
CREATE INDEX customer_hash_due ON customer (id) WHERE hash_due = 1;
