CREATE TABLE keys AS SELECT key, added FROM source;
