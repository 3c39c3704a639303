"""`freshet status` tells where a load stands, from its tables and without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from freshet.home import LoadHome
from tests.unit.cli.conftest import Run, hold_lease, ledger_row, write_batches, write_facts, write_parked


def status(run: Run) -> dict[str, Any]:
    result = run("status", "sales", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_load_that_never_ran_has_nothing(run: Run, home: LoadHome) -> None:
    assert status(run) == {
        "load": "sales",
        "facts": 0,
        "facts_version": None,
        "parked": {"total": 0, "by_reason": {}},
        "batches": 0,
        "ledger": {"rows_in": 0, "facts": 0, "parked": 0, "waiting": 0, "balanced": True, "unrecorded": 0},
        "snapshots": {"product": None},
        "last_good": None,
        "last_validation": None,
        "running": None,
    }
    assert not home.state.exists()


def test_facts_parked_rows_batches_and_snapshots_are_counted(run: Run, loaded: LoadHome) -> None:
    found = status(run)
    assert (found["facts"], found["facts_version"], found["batches"]) == (7, 1, 2)
    assert found["parked"] == {"total": 3, "by_reason": {"malformed": 1, "unmatched": 2}}
    assert found["snapshots"] == {"product": 2}
    assert found["ledger"] == {
        "rows_in": 10,
        "facts": 7,
        "parked": 3,
        "waiting": 0,
        "balanced": True,
        "unrecorded": 0,
    }


def test_the_last_good_version_and_the_last_validation_are_shown(run: Run, validated: LoadHome) -> None:
    found = status(run)
    assert found["last_good"] == 0
    assert found["last_validation"]["success"] is False
    assert found["last_validation"]["to_version"] == 1
    assert "FAILED at 2026-01-02" in run("status", "sales").stdout


def test_a_batch_that_does_not_balance_is_seen(run: Run, loaded: LoadHome) -> None:
    write_batches(loaded, [ledger_row(2, 5, 4, 0)])
    assert status(run)["ledger"]["balanced"] is False
    assert "DOES NOT BALANCE" in run("status", "sales").stdout


def test_batches_that_balance_each_for_itself_must_also_balance_together(run: Run, loaded: LoadHome) -> None:
    write_batches(loaded, [ledger_row(2, 5, 5, 0, waiting_before=9, waiting_after=9, balanced=True)])
    assert status(run)["ledger"]["balanced"] is False


def test_waiting_tuples_are_part_of_the_balance(run: Run, loaded: LoadHome) -> None:
    write_batches(loaded, [ledger_row(2, 5, 3, 0, waiting_after=2, balanced=True)])
    found = status(run)["ledger"]
    assert (found["balanced"], found["waiting"]) == (True, 2)


def test_facts_of_a_batch_that_is_not_finished_are_told_apart(run: Run, loaded: LoadHome) -> None:
    write_facts(loaded, ["h", "i"], 2)
    found = status(run)["ledger"]
    assert (found["balanced"], found["unrecorded"]) == (True, 2)
    assert "2 rows of a batch that is not finished" in run("status", "sales").stdout


def test_quarantined_facts_are_not_counted_twice(run: Run, loaded: LoadHome) -> None:
    from deltalake import DeltaTable

    DeltaTable(str(loaded.facts("sales_facts"))).delete("sale_id = 'a'")
    write_parked(loaded, ["quarantined"], 0)
    found = status(run)
    assert found["facts"] == 6
    assert found["parked"]["by_reason"]["quarantined"] == 1
    assert found["ledger"]["unrecorded"] == 0


def test_rows_that_no_batch_has_written_are_of_no_unfinished_batch(run: Run, loaded: LoadHome) -> None:
    write_facts(loaded, ["foreign"], None)
    write_parked(loaded, ["quarantined"], None)
    assert status(run)["ledger"]["unrecorded"] == 0


@pytest.mark.parametrize("compacted", [False, True])
def test_facts_may_be_deleted_once_they_are_validated(run: Run, validated: LoadHome, compacted: bool) -> None:
    from deltalake import DeltaTable

    facts = DeltaTable(str(validated.facts("sales_facts")))
    if compacted:
        facts.optimize.compact()
    facts.delete("sale_id in ('a', 'b')")
    assert status(run)["ledger"]["unrecorded"] == 0
    facts.delete("sale_id = 'e'")
    write_facts(validated, ["h", "i"], 2)
    assert status(run)["ledger"]["unrecorded"] == -1
    assert "1 rows that the ledger has and the tables have not" in run("status", "sales").stdout


def test_facts_on_their_way_to_the_parked_table_are_not_lost(run: Run, loaded: LoadHome) -> None:
    from deltalake import DeltaTable

    DeltaTable(str(loaded.facts("sales_facts"))).delete("sale_id in ('a', 'b')")
    assert "LOST" in run("status", "sales").stdout
    loaded.pending_quarantine.parent.mkdir(parents=True, exist_ok=True)
    loaded.pending_quarantine.write_text('{"rows": 2}')
    assert status(run)["ledger"]["unrecorded"] == 0
    loaded.pending_quarantine.write_text('{"rows": 1}')
    assert status(run)["ledger"]["unrecorded"] == -1


def test_a_batch_that_ends_meanwhile_is_not_taken_for_lost(
    run: Run, loaded: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    from freshet import delta

    read = delta.dataset

    def read_slowly(path: Path) -> Any:
        found = read(path)
        if path == loaded.parked and not ended:
            ended.append(True)
            write_facts(loaded, ["h"], 2)
            write_parked(loaded, ["unmatched"], 2)
            write_batches(loaded, [ledger_row(2, 2, 1, 1)])
        return found

    ended: list[bool] = []
    monkeypatch.setattr(delta, "dataset", read_slowly)
    assert status(run)["ledger"]["unrecorded"] >= 0
    assert ended


def test_a_running_driver_is_shown_and_a_silent_one_is_not(run: Run, home: LoadHome) -> None:
    hold_lease(home, time.time() + 60)
    assert status(run)["running"] == {"host": "elsewhere", "pid": 7}
    assert "process 7 on elsewhere" in run("status", "sales").stdout
    hold_lease(home, time.time() - 1)
    assert status(run)["running"] is None


def test_people_see_the_same_numbers(run: Run, loaded: LoadHome) -> None:
    shown = run("status", "sales").stdout
    for text in (
        "load sales",
        "7 (version 1)",
        "unmatched",
        "10 in, 7 facts + 3 parked",
        "snapshot of product",
    ):
        assert text in shown


def test_status_starts_neither_spark_nor_great_expectations(loaded: LoadHome) -> None:
    program = (
        "import sys; from freshet.config import find_definition; from freshet.status import load_status;"
        "assert load_status(find_definition('sales')).facts == 7;"
        "sys.exit(', '.join({'pyspark', 'great_expectations', 'airflow'} & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "command", ["status", "last-good", "sort", "enrich", "validate", "replan", "provision"]
)
def test_an_unknown_load_is_one_sentence_and_exit_code_1(run: Run, command: str) -> None:
    result = run(command, "sale")
    assert result.exit_code == 1
    assert "error: There is no load 'sale'" in result.stderr
    assert "Did you mean 'sales'?" in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
