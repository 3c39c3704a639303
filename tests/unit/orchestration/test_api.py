"""The client of Airflow's REST interface when Airflow is slow, or gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from freshet.errors import FreshetError
from freshet.orchestration import api
from freshet.orchestration.api import ATTEMPTS, AirflowClient, AirflowError

URL = "http://127.0.0.1:1"


class Airflow:
    """A stand-in that answers every request, after what `trouble` says has come first."""

    def __init__(self) -> None:
        self.trouble: Iterator[Exception | None] = iter(())
        self.asked: list[str] = []
        self.dags: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        error = next(self.trouble, None)
        if error:
            raise error
        start = int(request.url.params.get("offset", 0))
        page = [{"dag_id": dag} for dag in self.dags[start : start + 100]]
        answer = {
            "access_token": "t",
            "state": "success",
            "task_instances": [],
            "dag_run_id": "run",
            "dags": page,
            "total_entries": len(self.dags),
        }
        return httpx.Response(200, content=json.dumps(answer))


@pytest.fixture
def airflow() -> Airflow:
    return Airflow()


@pytest.fixture
def client(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> AirflowClient:
    monkeypatch.setattr(api, "SECONDS_BETWEEN_ATTEMPTS", 0.0)
    client = AirflowClient(URL, "admin", "secret")
    client._http = httpx.Client(base_url=URL, transport=httpx.MockTransport(airflow))
    client._log_in()
    return client


def timed_out() -> Exception:
    return httpx.ReadTimeout("timed out")


def test_a_time_out_while_watching_is_not_the_end(client: AirflowClient, airflow: Airflow) -> None:
    airflow.trouble = iter([timed_out(), None, timed_out()])
    assert list(client.watch("sales.enrich", "run", timeout=5)) == [[]]
    assert len(airflow.asked) == 5, "the login, two questions, each asked twice"


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.run_state("sales.enrich", "run"),
        lambda client: client.trigger("sales.enrich"),
        lambda client: client.pause("sales.enrich", False),
        lambda client: client._log_in(),
    ],
    ids=["read", "trigger", "change", "login"],
)
def test_an_airflow_that_is_gone_is_an_error_for_people(
    client: AirflowClient, airflow: Airflow, ask: Callable[[AirflowClient], object]
) -> None:
    airflow.trouble = iter([httpx.ConnectError("Connection refused")] * ATTEMPTS)
    with pytest.raises(FreshetError, match=f"{URL} does not answer .Connection refused.*`make down`"):
        ask(client)


def test_a_run_is_not_triggered_twice(client: AirflowClient, airflow: Airflow) -> None:
    airflow.trouble = iter([timed_out()])
    with pytest.raises(AirflowError):
        client.trigger("sales.enrich")
    assert airflow.asked.count("POST /api/v2/dags/sales.enrich/dagRuns") == 1


def test_all_dags_are_found_though_airflow_gives_them_page_by_page(
    client: AirflowClient, airflow: Airflow
) -> None:
    airflow.dags = [f"load{number}.enrich" for number in range(250)]
    assert client.dag_ids() == set(airflow.dags)
