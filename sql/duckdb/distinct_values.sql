-- How many values a column of the pages has. DISTINCT in a subquery can spill to disk, count(DISTINCT) cannot.
SELECT count(*) FROM (SELECT DISTINCT {column} FROM pages WHERE {column} IS NOT NULL) AS found;
