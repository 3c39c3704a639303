-- The master table of the load that set-up runs once, to see which classes of Java a load needs.
CREATE TABLE things (
    key   BIGINT         NOT NULL PRIMARY KEY,
    name  TEXT,
    price DECIMAL(10, 2)
);
