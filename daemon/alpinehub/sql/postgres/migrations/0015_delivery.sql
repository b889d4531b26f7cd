-- How a version went out, or why it did not. `held_text` (0001) stays the sentence for people.
ALTER TABLE delivery ADD COLUMN rendered TEXT;      -- in which form it was found valid
ALTER TABLE delivery ADD COLUMN client_id TEXT;     -- who fetched it last, as he calls himself
ALTER TABLE delivery ADD COLUMN sent_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE delivery ADD COLUMN held_code TEXT;     -- alpinehub.alpinebits.guest.HeldCode
ALTER TABLE delivery ADD COLUMN held_at BIGINT;     -- since when
ALTER TABLE delivery ADD COLUMN cancelled_at BIGINT;  -- an operator took it from the list
