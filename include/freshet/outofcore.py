"""DuckDB with a bound on its memory, for work on more data than fits in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from freshet.errors import FreshetError
from freshet.queries import query

WORK_MEMORY = 512 * 1024 * 1024
LEAST_MEMORY = 128 * 1024 * 1024
_MEMORY_A_THREAD = 128 * 1024 * 1024


class OutOfMemoryError(FreshetError):
    """The work does not fit the memory it was given, even with its disk space."""


@contextmanager
def bounded_database(folder: Path, memory: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB database on disk in `folder`, which also spills there, with so many bytes of memory."""
    if memory < LEAST_MEMORY:
        raise OutOfMemoryError(f"give it at least {LEAST_MEMORY:,} bytes")
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory // 1024}KiB",
        "temp_directory": str(folder / "spill"),
        "threads": str(max(1, min(_processors(), memory // _MEMORY_A_THREAD))),
        "preserve_insertion_order": "false",  # keeping it would cost memory; every order is asked for
    }
    connection = duckdb.connect(str(folder / "work.duckdb"), config=settings)
    try:
        connection.execute(query("duckdb/session"))
        yield connection
    except duckdb.OutOfMemoryException as error:
        raise OutOfMemoryError(f"give it more ({_first_line(error)})") from error
    except duckdb.IOException as error:
        raise FreshetError(f"working in {folder} failed: {_first_line(error)}") from error
    except OSError as error:
        # Errors met while a result streams arrive through Arrow.
        if "Out of Memory" in str(error):
            raise OutOfMemoryError(f"give it more ({_first_line(error)})") from error
        raise
    finally:
        connection.close()


def _processors() -> int:
    return max(1, pa.cpu_count())


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
