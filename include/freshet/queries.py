"""The SQL of Freshet, read from the files in `sql/`."""

from __future__ import annotations

from functools import cache

from freshet.home import PROJECT


@cache
def _text(name: str) -> str:
    return (PROJECT / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip().removesuffix(";")


def query(name: str, **identifiers: str) -> str:
    """The statement in `sql/<name>.sql`, with its {placeholders} filled with names, quoted by the caller.

    Values never come in this way: they are bound as parameters when the statement is executed.
    """
    return _text(name).format_map(identifiers) if identifiers else _text(name)


def duckdb_name(name: str) -> str:
    """A name quoted as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'
