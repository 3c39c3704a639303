INSERT INTO master SELECT * FROM source;
