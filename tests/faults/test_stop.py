"""A driver that is asked to end does so between two micro-batches."""

from __future__ import annotations

import os
import signal

import pytest

from tests.faults import oracle
from tests.faults.bench import RUN_TIMEOUT, Bench
from tests.faults.test_kills import assert_exact
from tests.faults.test_two_drivers import wait_for

pytestmark = pytest.mark.timeout(1800)  # each test runs the job many times


def test_sigterm_in_mid_batch_ends_the_run_once_that_batch_is_loaded_and_committed(bench: Bench) -> None:
    version = bench.publish()
    reached, release = bench.home / "reached", bench.home / "release"
    run = bench.start(
        "--at", "parked:1", "--do", "hold", "--reached", str(reached), "--release", str(release)
    )
    wait_for(lambda: reached.exists() and reached.read_text())
    os.kill(int(reached.read_text()), signal.SIGTERM)
    release.touch()
    assert run.wait(RUN_TIMEOUT) == 0, bench.log()
    assert [row["batch"] for row in oracle.ledger(bench.warehouse)] == [0, 1]
    assert (bench.checkpoint / "commits" / "1").exists(), (
        "Spark has committed the batch before it was stopped"
    )
    assert not (bench.home / "loads" / "kills" / "lease.json").exists()
    assert bench.run() == 0, bench.log()
    assert_exact(bench, dict.fromkeys(range(bench.files), version))
