CREATE TABLE counts AS
SELECT key, count(*) AS count
FROM (SELECT {column} AS key FROM sample LIMIT {rows})
WHERE key IS NOT NULL
GROUP BY key;
