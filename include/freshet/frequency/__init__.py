"""How often the stream asks for each key of the master data."""
