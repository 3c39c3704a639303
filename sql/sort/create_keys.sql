CREATE TABLE keys AS SELECT key, position FROM source;
