"""The last good version and the last result, read without Spark and Great Expectations."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from freshet.config import Definition
from freshet.errors import LoadStateError
from freshet.home import LoadHome
from freshet.quality.pointer import LastGood, last_good, move_last_good, read_last_good
from freshet.quality.result import (
    ExpectationResult,
    FailingRow,
    ValidationResult,
    keep_result,
    last_validation,
)

DEFINITION = Definition.from_dict(
    {
        "load": "orders",
        "stream": {"path": "in", "format": "json", "columns": {"id": "string", "k": "int"}, "event_id": "id"},
        "lookups": [{"name": "p", "table": "p", "key": "k", "add": ["a"]}],
        "facts": {"table": "orders_facts", "columns": ["id", "a"]},
    }
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))


def good(version: int) -> LastGood:
    return LastGood(version, version - 1, "2026-03-01T12:00:00+00:00")


def test_there_is_no_last_good_version_before_the_first_success() -> None:
    assert last_good(DEFINITION) is None


def test_the_pointer_moves_forwards_and_never_back() -> None:
    assert move_last_good("orders", good(3)) == good(3)
    assert move_last_good("orders", good(2)) == good(3)
    assert last_good(DEFINITION) == 3
    move_last_good("orders", good(4))
    assert read_last_good("orders") == good(4)


def test_of_many_validations_at_once_the_newest_wins() -> None:
    threads = [
        threading.Thread(target=move_last_good, args=("orders", good(version))) for version in range(1, 21)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert last_good(DEFINITION) == 20


def test_a_damaged_pointer_is_refused_with_its_file() -> None:
    file = LoadHome("orders").last_good
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.raises(LoadStateError, match=r"last_good\.json is not JSON"):
        last_good(DEFINITION)


def test_reading_the_pointer_imports_neither_spark_nor_great_expectations() -> None:
    code = (
        "import sys, freshet.quality.pointer, freshet.quality.result;"
        "print(sorted({'pyspark', 'great_expectations', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_result_comes_back_as_it_was_kept() -> None:
    result = ValidationResult(
        load="orders",
        success=False,
        validated_at="2026-03-01T12:00:00+00:00",
        from_version=None,
        to_version=4,
        rows=10,
        expectations=(
            ExpectationResult(
                "key id", "expect_column_values_to_not_be_null", "id", False, "…", 1, failing_ids=(None,)
            ),
            ExpectationResult("ledger records", "…", "records", False, "…", 1, failing_batches=(2,)),
        ),
        failing_rows=(FailingRow("a", ("key id: is null",)),),
        failing_count=1,
        unchecked={"derived x": "because"},
    )
    keep_result(result)
    assert last_validation(DEFINITION) == result


def test_a_failed_result_names_rows_batches_and_the_way_out() -> None:
    result = ValidationResult(
        load="orders",
        success=False,
        validated_at="",
        from_version=2,
        to_version=4,
        rows=10,
        expectations=(
            ExpectationResult("ledger records", "…", "records", False, "one row each", failing_batches=(7,)),
        ),
        failing_rows=(FailingRow("sale-1", ("derived total: is 9.0, should be 3.0",)),),
        failing_count=25,
        failing="/somewhere",
        held_back=9,
        last_good=2,
    )
    text = "\n".join(result.lines())
    for part in (
        "FAILED",
        "batches 7",
        "sale-1: derived total: is 9.0",
        "24 more failing rows in /somewhere",
    ):
        assert part in text
    assert "batch 9 is not finished" in text
    assert "freshet quarantine orders" in text
