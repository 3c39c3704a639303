"""DuckDB under a bound: what it runs out of is told in a sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from freshet.errors import DISK_FULL, FreshetError
from freshet.outofcore import LEAST_MEMORY, OutOfMemoryError, bounded_database

# More than fits the memory, so that DuckDB spills.
LARGE_SORT = (
    "SELECT * FROM (SELECT hash(range) AS h, repeat('x', 100) FROM range(3_000_000)) "
    "ORDER BY h LIMIT 1 OFFSET 2_000_000"
)


def sort_on_a_small_disk(folder: Path) -> None:
    with bounded_database(folder, LEAST_MEMORY) as database:
        # What the limit is by itself on a disk with so little room.
        database.execute("SET max_temp_directory_size = '1MB'")
        database.execute(LARGE_SORT)


def test_no_room_to_spill_is_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(FreshetError) as told:
        sort_on_a_small_disk(tmp_path)
    assert str(told.value) == f"{DISK_FULL}."


@pytest.mark.parametrize(
    "error",
    [
        duckdb.IOException('IO Error: Could not write file "work.duckdb": No space left on device'),
        OSError(28, "No space left on device"),
    ],
)
def test_a_write_that_finds_no_space_is_a_full_disk(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(FreshetError) as told, bounded_database(tmp_path, LEAST_MEMORY):
        raise error
    assert str(told.value) == f"{DISK_FULL}."


@pytest.mark.parametrize("kind", [duckdb.OutOfMemoryException, OSError])
def test_too_little_memory_is_told_with_what_there_was(tmp_path: Path, kind: type[Exception]) -> None:
    told = r"134,217,728 bytes of memory were too few: give it more \(Out of Memory"
    with pytest.raises(OutOfMemoryError, match=told), bounded_database(tmp_path, LEAST_MEMORY):
        raise kind("Out of Memory Error: could not allocate block\nPossible solutions: …")


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(duckdb.CatalogException), bounded_database(tmp_path, LEAST_MEMORY) as database:
        database.execute("SELECT * FROM nothing_of_that_name")
