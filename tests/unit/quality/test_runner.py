"""Great Expectations at work, on a frame without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
import pytest
from great_expectations.expectations.registry import get_expectation_impl

from freshet.quality.runner import Runner


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))


def validated(name: str) -> Runner:
    """A runner that has validated one row under this name."""
    runner = Runner("orders", name)
    kind: Any = get_expectation_impl("expect_column_values_to_be_in_set")
    is_one = kind(column="records", value_set=[1], meta={"check": "ledger records"})
    suite = gx.ExpectationSuite(name="orders-ledger", expectations=[is_one])
    (result,) = runner.run(suite, pd.DataFrame([{"batch": 0, "records": 1}]), "batch")
    assert result.success
    return runner


def test_files_that_a_kill_left_half_written_stop_no_later_validation() -> None:
    context = validated("versions 1 to 2").home.validation / "gx"
    half_written = [file for file in context.rglob("*") if file.is_file() and file.suffix != ".css"]
    kept = {file for file in half_written if "versions 1 to 2" in file.parts}
    assert {file.name for file in half_written} >= {"great_expectations.yml", "orders-ledger.json"} and kept
    for file in set(half_written) - kept:  # the results that Data Docs show come later
        file.write_text("{")
    shown = validated("versions 2 to 3").index_page.read_text()
    assert "versions 1 to 2" in shown and "versions 2 to 3" in shown
    for file in kept:
        file.write_text("{")
    assert "versions 3 to 4" in validated("versions 3 to 4").index_page.read_text()
