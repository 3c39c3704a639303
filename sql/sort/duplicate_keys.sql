-- The most repeated keys, how often each occurs, and how many keys are repeated at all.
WITH repeated AS (SELECT key, count(*) AS times FROM keys GROUP BY key HAVING count(*) > 1)
SELECT key, times, (SELECT count(*) FROM repeated) AS repeated_keys
FROM repeated
ORDER BY times DESC, key
LIMIT 5;
