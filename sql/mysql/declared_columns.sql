SELECT column_name AS name, column_type AS declared
FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
ORDER BY ordinal_position;
