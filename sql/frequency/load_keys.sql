INSERT INTO keys SELECT key, added FROM source;
