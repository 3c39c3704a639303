"""Kills at every step of a batch, with a new snapshot published after each: nothing lost, nothing doubled."""

from __future__ import annotations

import itertools

import pytest

from tests.faults import oracle
from tests.faults.bench import Bench

pytestmark = pytest.mark.timeout(1800)  # each test runs the job many times

STEPS = ["plan", "join", "parked", "ledger", "commit"]
"""Before the plan, after it, between facts and parked, before the batches row, before Spark's own commit."""

KILLS = ["kill-group", "kill-jvm", "kill-python"]

MIXED = list(zip(STEPS, itertools.cycle(KILLS)))


def one_kind(kill: str) -> list[tuple[str, str]]:
    return [(step, kill) for step in STEPS]


CHAINS = [
    pytest.param(MIXED, id="mixed"),
    *(pytest.param(one_kind(kill), id=kill, marks=pytest.mark.slow) for kill in KILLS),
]


@pytest.mark.parametrize("kills", CHAINS)
@pytest.mark.parametrize("bench", [2], indirect=True, ids=["2-files"])
def test_batch_0_is_loaded_once_though_killed_at_each_of_its_steps(
    bench: Bench, kills: list[tuple[str, str]]
) -> None:
    """Each run gets one step further in batch 0 than the one before."""
    versions = kill_and_publish(bench, [(0, step, kill) for step, kill in kills])
    assert bench.run() == 0, bench.log()
    assert_exact(bench, versions)


@pytest.mark.parametrize("kills", CHAINS)
@pytest.mark.parametrize("bench", [6], indirect=True, ids=["6-files"])
def test_later_batches_are_loaded_once_though_each_is_killed_at_another_step(
    bench: Bench, kills: list[tuple[str, str]]
) -> None:
    faults = [(batch, step, kill) for batch, (step, kill) in enumerate(kills, start=1)]
    versions = kill_and_publish(bench, faults)
    assert bench.run() == 0, bench.log()
    assert_exact(bench, versions)


def kill_and_publish(bench: Bench, faults: list[tuple[int, str, str]]) -> dict[int, int]:
    """Run into each fault in turn; the master version each batch must have been loaded with comes back."""
    versions: dict[int, int] = {}
    for batch, step, kill in faults:
        version = bench.publish()
        bench.run_into(step, batch, kill)
        planned = batch if step == "plan" else batch + 1
        for begun in range(planned):
            versions.setdefault(begun, version)
    version = bench.publish()
    for batch in range(bench.files):
        versions.setdefault(batch, version)
    return versions


def assert_exact(bench: Bench, versions: dict[int, int]) -> None:
    wanted = oracle.expected(bench.stream, versions)
    found = oracle.loaded(bench.warehouse)
    assert found.facts - wanted.facts == {} and wanted.facts - found.facts == {}
    assert found.parked - wanted.parked == {} and wanted.parked - found.parked == {}
    times = oracle.load_times(bench.warehouse)
    assert sorted(times) == list(range(bench.files))
    assert all(len(of_batch) == 1 for of_batch in times.values()), "a retry keeps the batch's load time"
    rows = oracle.ledger(bench.warehouse)
    assert [row["batch"] for row in rows] == list(range(bench.files))
    assert all(row["balanced"] and row["rows_in"] == oracle.LINES for row in rows)
    assert [row["facts"] for row in rows] == [
        sum(count for fact, count in wanted.facts.items() if fact[-1] == batch)
        for batch in range(bench.files)
    ]
