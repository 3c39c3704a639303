ALTER TABLE {table} RENAME TO {new};
