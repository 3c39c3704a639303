-- The demo's product master. Both SQLite and MySQL take this; MEDIUMINT is a 32-bit column in either.
CREATE TABLE {table} (
    product_id    BIGINT         NOT NULL PRIMARY KEY,
    surrogate_key BIGINT         NOT NULL UNIQUE,
    supplier_id   MEDIUMINT      NOT NULL,
    sale_price    DECIMAL(10, 2) NOT NULL,
    name          VARCHAR(100)   NOT NULL
);
