-- What an operator chose for one hotel. A program leaves alone what it does not know of it.
ALTER TABLE hotel ADD COLUMN settings TEXT;         -- JSON of alpinehub.models.Settings; NULL: none
