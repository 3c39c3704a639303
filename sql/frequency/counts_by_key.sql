CREATE VIEW counts AS SELECT value AS key, count FROM counted;
