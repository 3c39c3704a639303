CREATE TABLE counted AS
SELECT {column} AS value, count(*) AS count
FROM read_parquet(?, union_by_name = true, hive_partitioning = false)
WHERE {column} IS NOT NULL
GROUP BY {column};
