-- How a version went out, or why it did not. `undeliverable_text` (0001) stays the sentence for people.
ALTER TABLE delivery ADD COLUMN rendered TEXT;      -- in which form it was found valid
ALTER TABLE delivery ADD COLUMN client_id TEXT;     -- who fetched it last, as he calls himself
ALTER TABLE delivery ADD COLUMN sent_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE delivery ADD COLUMN undeliverable_code TEXT;     -- alpinehub.alpinebits.guest.UndeliverableCode
ALTER TABLE delivery ADD COLUMN undeliverable_at INTEGER;    -- since when
ALTER TABLE delivery ADD COLUMN cancelled_at INTEGER; -- an operator took it from the list
