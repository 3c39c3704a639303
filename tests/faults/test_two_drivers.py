"""Two drivers on one load: whatever they do to each other, the tables are exact."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.faults import oracle
from tests.faults.bench import RUN_TIMEOUT, Bench
from tests.faults.test_kills import assert_exact

pytestmark = pytest.mark.timeout(1800)  # each test runs the job many times


def test_a_driver_held_after_its_facts_wakes_up_when_another_has_gone_on(bench: Bench) -> None:
    """The first is stopped inside batch 1; the second loads 1 under the first one's plan, then the rest."""
    first_version = bench.publish()
    reached, release = bench.home / "reached", bench.home / "release"
    first = bench.start(
        "--at", "parked:1", "--do", "hold", "--reached", str(reached), "--release", str(release)
    )
    wait_for(reached.exists)
    os.killpg(first.pid, signal.SIGSTOP)
    second_version = bench.publish()
    assert bench.run() == 0, bench.log()
    release.touch()
    os.killpg(first.pid, signal.SIGCONT)
    code = first.wait(RUN_TIMEOUT)
    # It skips what the other has written, then learns that the load has been taken over or finds it done.
    assert code in (0, 1) and "Traceback" not in bench.log(0), bench.log(0)
    assert code == 0 or "nother driver" in bench.log(0), bench.log(0)
    versions = {batch: first_version if batch < 2 else second_version for batch in range(bench.files)}
    assert_exact(bench, versions)
    assert bench.run() == 0, bench.log()
    assert_exact(bench, versions)


def test_two_drivers_started_at_once_on_an_empty_checkpoint(bench: Bench) -> None:
    """One loads; the other waits for it and finds nothing left, or is told after a while who is at work."""
    version = bench.publish()
    drivers = [bench.start(), bench.start()]
    codes = [driver.wait(RUN_TIMEOUT) for driver in drivers]
    assert 0 in codes, bench.log(0) + bench.log(1)
    for run, code in enumerate(codes):
        assert code == 0 or "The load is being run by process" in bench.log(run), bench.log(run)
    assert_exact(bench, dict.fromkeys(range(bench.files), version))


def test_two_drivers_started_at_once_with_no_lease_between_them(bench: Bench) -> None:
    """The lease saves work, not rows: one of the two may give up, and the tables are exact all the same."""
    version = bench.publish()
    drivers = [bench.start("--without-lease"), bench.start("--without-lease")]
    codes = [driver.wait(RUN_TIMEOUT) for driver in drivers]
    for run, code in enumerate(codes):
        assert code == 0 or "nother driver" in bench.log(run), bench.log(run)
    assert oracle.ledger(bench.warehouse), "what follows must not be the first to load"
    assert bench.run() == 0, bench.log()
    assert_exact(bench, dict.fromkeys(range(bench.files), version))


def wait_for(condition: object, seconds: float = RUN_TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
