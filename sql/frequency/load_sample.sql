-- As text, whatever the format: the master's key decides what it is.
INSERT INTO sample SELECT CAST({column} AS VARCHAR) FROM records LIMIT {rows};
