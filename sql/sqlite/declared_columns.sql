SELECT name, type AS declared
FROM pragma_table_info(:table, COALESCE(:schema, 'main'))
ORDER BY cid;
