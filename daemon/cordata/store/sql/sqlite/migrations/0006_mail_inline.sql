-- Pictures of a mail's HTML: JSON [{"name", "type", "data" (base64)}, ...]; NULL: none.
ALTER TABLE mail ADD COLUMN inline TEXT;
