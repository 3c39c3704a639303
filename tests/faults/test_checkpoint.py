"""A checkpoint that does not belong to the tables is refused with what to do."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.faults import oracle
from tests.faults.bench import Bench
from tests.faults.test_kills import assert_exact

pytestmark = pytest.mark.timeout(1800)  # each test runs the job many times


def test_a_deleted_and_a_rolled_back_checkpoint_are_refused_and_the_restored_one_goes_on(
    bench: Bench,
) -> None:
    version = bench.publish()
    late = bench.stream / oracle.file_name(bench.files - 1)
    hidden = bench.home / late.name
    late.rename(hidden)
    assert bench.run() == 0, bench.log()
    before, after = bench.home / "before", bench.home / "after"
    shutil.copytree(bench.checkpoint, before)
    hidden.rename(late)
    os.utime(late)
    assert bench.run() == 0, bench.log()
    shutil.copytree(bench.checkpoint, after)

    shutil.rmtree(bench.checkpoint)
    assert bench.run() == 1
    assert "deleted or rolled back" in bench.log() and "freshet reset kills" in bench.log()

    shutil.copytree(before, bench.checkpoint)
    assert bench.run() == 1
    assert "deleted or rolled back" in bench.log() and "Restore the checkpoint" in bench.log()

    shutil.rmtree(bench.checkpoint)
    shutil.copytree(after, bench.checkpoint)
    assert bench.run() == 0, bench.log()
    assert_exact(bench, dict.fromkeys(range(bench.files), version))


@pytest.mark.parametrize("bench", [1], indirect=True, ids=["1-file"])
def test_what_was_deleted_beside_the_rest_is_refused_and_named(bench: Bench) -> None:
    """Whatever is gone, going on would lose records or load them twice."""
    bench.publish()
    assert bench.run() == 0, bench.log()
    state = bench.home / "loads" / "kills"
    for gone, told in {
        bench.warehouse / "facts": "has given batch 0 to facts, but the table",
        bench.warehouse / "parked": "has given batch 0 to parked, but the table",
        bench.warehouse / "batches": "has no batch: tables were deleted or rolled back",
        bench.warehouse: "has no batch: tables were deleted or rolled back",
        state / "stream.json": "stream.json was deleted or replaced",
        state: "stream.json was deleted or replaced",
    }.items():
        hidden = bench.home / "hidden"
        gone.rename(hidden)
        if gone == state:
            bench.publish()
        error = bench.refused()
        assert error and told in error and "freshet reset kills" in error
        if gone.is_dir():
            shutil.rmtree(gone)
        gone.unlink(missing_ok=True)
        hidden.rename(gone)
    assert bench.refused() is None
