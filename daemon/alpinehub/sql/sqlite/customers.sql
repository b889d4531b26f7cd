-- Statements for SQLite only; those for both stores are in ../customers.sql.

-- name: customer_looked_at
-- Records that customers were examined for duplicates. :customers is [[customer, number, country and
-- region that it was read with], ...]. A customer whose values have changed stays due.
UPDATE customer SET phone_due = 0
FROM json_each(:customers) AS j
WHERE customer.id = j.value ->> 0 AND phone IS j.value ->> 1 AND country IS j.value ->> 2
    AND (SELECT region FROM hotel WHERE id = hotel_id) = j.value ->> 3

-- name: customer_numbers
-- The numbers that end with the digits of :tails, [[hotel, last digits], ...], and how many customers
-- have each.
SELECT c.hotel_id, c.phone_tail, c.phone, c.country, count(*) AS customers,
    count(c.email) AS owners, min(c.id) FILTER (WHERE c.email IS NOT NULL) AS owner
FROM json_each(:tails) j
JOIN customer c ON c.hotel_id = j.value ->> 0 AND c.phone_tail = j.value ->> 1
GROUP BY c.hotel_id, c.phone_tail, c.phone, c.country
