"""DuckDB with a bound on its memory, for work on more data than fits in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from freshet.errors import DISK_FULL, FreshetError, disk_is_full
from freshet.queries import query

WORK_MEMORY = 512 * 1024 * 1024
LEAST_MEMORY = 128 * 1024 * 1024
_MEMORY_A_THREAD = 128 * 1024 * 1024
_SPILL_LIMIT = "max_temp_directory_size"
"""What DuckDB names when it may spill no more: by default it may as long as the disk has room."""


class OutOfMemoryError(FreshetError):
    """The work does not fit the memory it was given, even with disk space to spill to."""


@contextmanager
def bounded_database(folder: Path, memory: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB database on disk in `folder`, which also spills there, with so many bytes of memory."""
    if memory < LEAST_MEMORY:
        raise OutOfMemoryError(f"{memory:,} bytes of memory are too few: give it at least {LEAST_MEMORY:,}")
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
    except (duckdb.Error, OSError) as error:
        if ran_out(error):
            raise _told(error, memory) from error
        if isinstance(error, duckdb.IOException):
            raise FreshetError(f"working in {folder} failed: {_first_line(error)}") from error
        raise
    finally:
        connection.close()


def ran_out(error: BaseException) -> bool:
    """Whether DuckDB had too little disk or memory; errors met while a result streams come through Arrow."""
    return disk_is_full(error) or "Out of Memory" in str(error)


def _told(error: BaseException, memory: int) -> FreshetError:
    if disk_is_full(error) or _SPILL_LIMIT in str(error):
        return FreshetError(f"{DISK_FULL}.")
    return OutOfMemoryError(f"{memory:,} bytes of memory were too few: give it more ({_first_line(error)})")


def _processors() -> int:
    return max(1, pa.cpu_count())


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
