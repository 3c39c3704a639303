"""Delta tables read without Spark: absent ones, odd paths, and a process that ends right after reading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from freshet.delta import dataset, open_table, read_rows

PROCESSES = 6
READ = "import sys, pathlib, freshet.delta as d; print(d.read_rows(pathlib.Path(sys.argv[1])))"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a load" / "fäcts"
    path.parent.mkdir()
    for batch in range(3):
        write_deltalake(str(path), pa.table({"batch": [batch], "rows": [10 * batch]}), mode="append")
    return path


def test_rows_of_a_table_whose_path_has_spaces_and_umlauts(table: Path) -> None:
    assert sorted(row["rows"] for row in read_rows(table)) == [0, 10, 20]
    assert read_rows(table, ["batch"], pc.field("rows") == 10) == [{"batch": 1}]


@pytest.mark.parametrize("made", ["nothing", "folder", "empty log"])
def test_a_table_that_is_not_there_yet_has_no_rows(tmp_path: Path, made: str) -> None:
    path = tmp_path / "table"
    if made != "nothing":
        (path / "_delta_log" if made == "empty log" else path).mkdir(parents=True)
    assert (open_table(path), dataset(path), read_rows(path)) == (None, None, [])


def test_a_process_that_ends_right_after_reading_ends_well(table: Path) -> None:
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, "-c", READ, str(table)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
