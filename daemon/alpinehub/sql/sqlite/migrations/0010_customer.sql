-- Who a customer is, as they last said it, and whether a platform may be told.
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
-- 1: phone_e164 is to be made, and duplicates are to be merged.
ALTER TABLE customer ADD COLUMN phone_due INTEGER NOT NULL DEFAULT 1;
