INSERT INTO keys SELECT key, position FROM source;
