-- The facts keep what the lookup added, not the key itself: the master says which key that was.
CREATE TABLE counts AS
SELECT keys.key, counted.count FROM counted JOIN keys ON keys.added = counted.value;
