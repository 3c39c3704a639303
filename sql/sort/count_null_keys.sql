SELECT count(*) FROM master WHERE {key} IS NULL;
