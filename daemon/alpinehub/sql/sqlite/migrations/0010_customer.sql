-- Who a customer is, as he last said it, and whether he may be told to others.
ALTER TABLE customer ADD COLUMN phone_e164 TEXT;    -- NULL: not made yet, or no number
ALTER TABLE customer ADD COLUMN first_name TEXT;
ALTER TABLE customer ADD COLUMN last_name TEXT;
ALTER TABLE customer ADD COLUMN city TEXT;
ALTER TABLE customer ADD COLUMN postal_code TEXT;
ALTER TABLE customer ADD COLUMN country TEXT;       -- ISO 3166, upper case
ALTER TABLE customer ADD COLUMN state TEXT;
ALTER TABLE customer ADD COLUMN birth_date TEXT;    -- YYYY-MM-DD
ALTER TABLE customer ADD COLUMN gender TEXT;        -- female, male
ALTER TABLE customer ADD COLUMN language TEXT;
ALTER TABLE customer ADD COLUMN consent INTEGER;    -- 1 yes, 0 no, NULL never asked
ALTER TABLE customer ADD COLUMN consent_at INTEGER;
ALTER TABLE customer ADD COLUMN merged_into INTEGER; -- his reservations are that customer's now
ALTER TABLE customer ADD COLUMN erased_at INTEGER;
-- 1: number and hashes are to be made; so is what an older program adds.
ALTER TABLE customer ADD COLUMN hash_due INTEGER NOT NULL DEFAULT 1;
