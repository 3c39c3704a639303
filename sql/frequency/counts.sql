SELECT key, count FROM counts ORDER BY count DESC, key;
