-- Nulls are not counted among the values: a column with nulls does not tell the key of every row.
SELECT count(*) AS rows, count(DISTINCT added) AS "values" FROM keys;
