"""The demo's summary: it is content only with exactly what was planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.config import read_definition
from freshet.errors import FreshetError
from freshet.home import PROJECT
from freshet.orchestration.summary import Summary
from freshet.status import Ledger, LoadStatus, Parked

BATCH = {
    "batch": 0,
    "seconds": 2.0,
    "lookups": [
        {
            "name": "product",
            "algorithm": "x-hybridjoin",
            "memory": 8 << 20,
            "snapshot": 3,
            "joined": 90,
            "hot": 45,
            "page_reads": 7,
            "peak_bytes": 4 << 20,
        }
    ],
}


@pytest.fixture
def summary() -> Summary:
    status = LoadStatus(
        load="sales",
        facts=90,
        facts_version=5,
        parked=Parked(10, {"malformed": 4, "unmatched": 6}),
        batches=1,
        ledger=Ledger(rows_in=100, facts=90, parked=10, waiting=0, balanced=True, unrecorded=0),
        snapshots={"product": 3},
        last_good=5,
        last_validation={"success": True, "rows": 90, "expectations": [{"success": True}]},
        running=None,
    )
    definition = read_definition(Path(PROJECT / "include" / "loads" / "sales.yaml"))
    return Summary(definition, status, [BATCH], {"malformed": 4, "unmatched": 6})


def test_a_demo_that_parked_what_was_planted_has_no_problem(summary: Summary) -> None:
    assert list(summary.problems()) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"parked": Parked(10, {"malformed": 5, "unmatched": 5})}, "planted were 4 malformed, 6 unmatched"),
        ({"parked": Parked(11, {"malformed": 4, "unmatched": 6, "null_key": 1})}, "1 null_key"),
        ({"facts": 89}, "100 tuples came in, 99 are in the tables"),
        ({"last_validation": None}, "did not pass validation"),
        ({"last_validation": {"success": False, "rows": 90, "expectations": []}}, "did not pass validation"),
        ({"last_good": 4}, "version 5 of the facts is not the last good one"),
    ],
)
def test_anything_else_is_a_problem(summary: Summary, changed: dict[str, Any], told: str) -> None:
    wrong = replace(summary, status=replace(summary.status, **changed))
    assert told in " | ".join(wrong.problems())


def test_a_ledger_that_does_not_balance_is_a_problem(summary: Summary) -> None:
    ledger = replace(summary.status.ledger, balanced=False)
    wrong = replace(summary, status=replace(summary.status, ledger=ledger))
    assert list(wrong.problems()) == ["the ledger does not balance"]


def test_the_numbers_are_those_of_the_batches(summary: Summary) -> None:
    lines = dict(summary.lines())
    assert lines["tuples in"] == "100"
    assert lines["  malformed"] == "4 (planted: 4)"
    assert lines["service rate"] == "50 tuples/s"
    assert lines["  served from the hot part"] == "50.0%"
    assert lines["  pages read"] == "7"
    assert lines["  peak memory"] == "4MB of 8MB (50%)"
    assert lines["  snapshot version"] == "3"
    assert lines["validation"] == "passed: 1 of 1 expectations hold for 90 facts"


def test_a_stream_of_which_nobody_knows_what_is_bad_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: Summary
) -> None:
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))
    monkeypatch.setattr("freshet.orchestration.summary.load_status", lambda definition: summary.status)
    with pytest.raises(FreshetError, match=r"sales.planted.json is gone.*remove that folder"):
        Summary.read(summary.definition)
