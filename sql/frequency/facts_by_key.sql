CREATE TABLE counts AS
SELECT {column} AS key, count(*) AS count
FROM read_parquet(?, union_by_name = true, hive_partitioning = true)
WHERE {column} IS NOT NULL
GROUP BY {column};
