CREATE TABLE counts AS
SELECT key, count(*) AS count FROM sample WHERE key IS NOT NULL GROUP BY key;
