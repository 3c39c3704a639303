"""Seeded streams and master rows, for the demo and for tests."""
