CREATE TABLE counts (key {key_type}, count BIGINT);
