-- Rank order: the most asked for first; equals by key, so that the same rows always rank the same.
SELECT keys.position, coalesce(counts.count, 0) AS count
FROM keys LEFT JOIN counts ON keys.key = counts.key
ORDER BY coalesce(counts.count, 0) DESC, keys.key;
