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
    late = bench.stream / oracle.file_name(oracle.FILES - 1)
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
    assert_exact(bench, dict.fromkeys(range(oracle.FILES), version))


def test_deleted_tables_are_refused(bench: Bench) -> None:
    bench.publish()
    assert bench.run() == 0, bench.log()
    shutil.rmtree(bench.warehouse / "parked")
    assert bench.run() == 1
    assert "ends at batch -1" in bench.log() or "deleted or rolled back" in bench.log()
