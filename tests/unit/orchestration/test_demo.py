"""What the demo does about runs that it finds in Airflow."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.orchestration.api import AirflowError
from freshet.orchestration.demo import STEPS, Demo, Screen


class Airflow:
    """A client of an Airflow with one run of each DAG in each state."""

    url = "http://127.0.0.1:1"

    def __init__(self, *states: str) -> None:
        self.states = states
        self.ended: list[str] = []

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        return [{"dag_run_id": f"{dag_id} {state}", "state": state} for state in self.states]

    def call(self, method: str, path: str, json: dict[str, str]) -> None:
        assert (method, json) == ("PATCH", {"state": "failed"})
        self.ended.append(path.split("/")[-1])


def test_what_an_interrupted_demo_has_left_is_ended() -> None:
    client = Airflow("running", "success", "queued", "failed")
    Demo(client, Screen()).end_unfinished_runs(ours=True)  # type: ignore[arg-type]
    assert client.ended == [f"sales.{step} {state}" for step in STEPS for state in ("running", "queued")]


def test_the_runs_of_an_airflow_that_somebody_uses_are_not_touched() -> None:
    client = Airflow("success", "running")
    with pytest.raises(AirflowError, match=r"sales.provision is running in the Airflow at .* Wait until"):
        Demo(client, Screen()).end_unfinished_runs(ours=False)  # type: ignore[arg-type]
    assert client.ended == []
