-- Statements for PostgreSQL only; those for both stores are in ../customers.sql.

-- name: customer_looked_at
-- newest
-- Records that customers were examined for duplicates. :customers is [[customer, number, country and
-- region that it was read with], ...]. A customer whose values have changed stays due.
UPDATE customer SET phone_due = 0
FROM (
    SELECT c.ctid
    FROM json_array_elements(:customers::json) AS j (value)
    CROSS JOIN LATERAL (  -- one look-up for each, by the index
        SELECT ctid FROM customer
        WHERE id = (j.value ->> 0)::bigint AND phone IS NOT DISTINCT FROM j.value ->> 1
            AND country IS NOT DISTINCT FROM j.value ->> 2
            AND (SELECT h.region FROM hotel h WHERE h.id = hotel_id) = j.value ->> 3
        OFFSET 0) AS c) AS found
WHERE customer.ctid = found.ctid  -- nobody has changed it since

-- name: customer_numbers
-- The numbers that end with the digits of :tails, [[hotel, last digits], ...], and how many customers
-- have each.
SELECT c.hotel_id, c.phone_tail, c.phone, c.country, count(*) AS customers,
    count(c.email) AS owners, min(c.id) FILTER (WHERE c.email IS NOT NULL) AS owner
FROM json_array_elements(:tails::json) AS j (value)
CROSS JOIN LATERAL (
    SELECT * FROM customer
    WHERE hotel_id = (j.value ->> 0)::bigint AND phone_tail = j.value ->> 1 OFFSET 0) AS c
GROUP BY c.hotel_id, c.phone_tail, c.phone, c.country
