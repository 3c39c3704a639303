-- The facts keep what the lookup added, not the key itself: the master says which key that was.
CREATE TABLE counts AS
SELECT keys.key, count(*) AS count
FROM read_parquet(?, union_by_name = true, hive_partitioning = true) AS facts
JOIN keys ON keys.added = facts.{column}
GROUP BY keys.key;
