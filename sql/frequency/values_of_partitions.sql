CREATE TABLE counted AS
SELECT value, CAST(sum(rows) AS BIGINT) AS count FROM files WHERE value IS NOT NULL GROUP BY value;
