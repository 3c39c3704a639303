-- Counts under the type of the master's key; a key of the stream that cannot be one is nobody's.
CREATE TABLE counts AS
SELECT TRY_CAST(key AS {key_type}) AS key, CAST(sum(count) AS BIGINT) AS count
FROM read_parquet(?)
GROUP BY ALL
HAVING TRY_CAST(key AS {key_type}) IS NOT NULL;
