"""How the validation job ends decides whether Airflow tries again."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from freshet.config import find_definition
from freshet.orchestration import operators
from freshet.orchestration.dags import validate_dag


@pytest.fixture
def job_that_ends_with(loads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The validation task of a load, with a stand-in for spark-submit that ends with a code."""
    # The process of the tests must not end with its parent, as a task does.
    monkeypatch.setattr(operators, "die_with_parent", lambda: None)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local"}')

    def make(code: int):
        script = tmp_path / "spark-submit"
        script.write_text(f"#!/bin/sh\nexit {code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("FRESHET_SPARK_SUBMIT", str(script))
        return validate_dag(find_definition("orders")).get_task("validate")

    return make


def test_failed_facts_are_not_validated_again(job_that_ends_with) -> None:
    with pytest.raises(AirflowFailException, match="did not pass validation"):
        job_that_ends_with(3).execute({"params": {}})


@pytest.mark.parametrize("code", [1, 2])
def test_a_validation_that_broke_is_tried_again(job_that_ends_with, code: int) -> None:
    with pytest.raises(AirflowException) as broken:
        job_that_ends_with(code).execute({"params": {}})
    assert not isinstance(broken.value, AirflowFailException)
    assert "did not pass" not in str(broken.value)


def test_good_facts_end_the_task_well(job_that_ends_with) -> None:
    job_that_ends_with(0).execute({"params": {}})
