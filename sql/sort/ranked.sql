-- Rank order: the most asked for first; equals by key, so that the same rows always rank the same.
SELECT master.*, coalesce(counts.count, 0) AS {count}
FROM master LEFT JOIN counts ON master.{key} = counts.key
ORDER BY {count} DESC, master.{key};
