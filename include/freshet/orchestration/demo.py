"""The demo: the load `sales` from nothing to validated facts, run by Airflow's scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from freshet.config import find_definition
from freshet.delta import read_rows
from freshet.errors import FreshetError
from freshet.home import LoadHome
from freshet.orchestration.api import AirflowClient, AirflowError, TaskState
from freshet.orchestration.local import USER, LocalAirflow
from freshet.orchestration.summary import Summary
from freshet.reset import reset

LOAD = "sales"
STEPS = ("provision", "enrich", "validate")
SECONDS_TO_APPEAR = 120.0
SECONDS_A_RUN = 1800.0
LOG_LINES = 40


def run_demo(airflow: LocalAirflow) -> None:
    """Run the whole chain and show what came of it; raises if anything is not as planted.

    Airflow is stopped afterwards, unless it was running before.
    """
    definition = find_definition(LOAD)
    screen = Screen()
    with _running(airflow, screen) as is_ours, closing(airflow.client()) as client:
        demo = Demo(client, screen)
        demo.wait_for_dags()
        demo.end_unfinished_runs(is_ours)
        screen.say(f"Emptying the load {LOAD}")
        reset(LOAD)
        demo.run_all()
    summary = Summary.read(definition)
    screen.show(summary.table())
    for name, place in places(airflow, running=not is_ours):
        screen.show(f"{name:<10} {place}")
    problems = list(summary.problems())
    if problems:
        raise FreshetError(f"The demo did not do what it should: {'; '.join(problems)}.")
    screen.show(f"The demo has worked, in {screen.seconds():.0f} s.")


def places(airflow: LocalAirflow, running: bool) -> Iterator[tuple[str, str]]:
    """Where to look further."""
    home = LoadHome(LOAD)
    yield "Tables", str(home.warehouse)
    yield "Data Docs", str(_index_page(home.data_docs))
    if running:
        yield "Airflow", airflow.how_to_log_in()
    else:
        log_in = f"{airflow.last_url} (user {USER}, password {airflow.password()})"
        yield "Airflow", f"`make up` starts it again, with these runs: {log_in}"


def _index_page(data_docs: Path) -> Path:
    pages = sorted(data_docs.rglob("index.html"), key=lambda page: len(page.parts))
    return pages[0] if pages else data_docs


@contextmanager
def _running(airflow: LocalAirflow, screen: Screen) -> Iterator[bool]:
    """Airflow for the time of the block; whether it was started for it, and so is stopped after it."""
    with screen.working("Starting Airflow"):
        is_ours = airflow.start(screen.say)
    try:
        yield is_ours
    finally:
        if is_ours:
            airflow.stop(screen.say)


class Screen:
    """Progress on stderr, with a line that lives where there is a terminal; results on stdout."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._progress = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._results = Console(highlight=False, markup=False, soft_wrap=True)

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        self._progress.print(f"{self.seconds():5.0f} s  {text}")

    def show(self, what: Any) -> None:
        self._results.print(what)

    @contextmanager
    def working(self, text: str) -> Iterator[LiveLine]:
        with self._progress.status(text) as status:
            yield LiveLine(status)


class LiveLine:
    """The line that says what is being waited for."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def update(self, text: str) -> None:
        self._status.update(text)


class Demo:
    """The runs of the demo in one Airflow."""

    def __init__(self, client: AirflowClient, screen: Screen) -> None:
        self.client = client
        self.screen = screen

    def wait_for_dags(self) -> None:
        """Wait until Airflow has parsed the load's DAGs."""
        wanted = {_dag_id(step) for step in STEPS}
        deadline = time.monotonic() + SECONDS_TO_APPEAR
        with self.screen.working("Waiting for the DAGs"):
            while not wanted <= self.client.dag_ids():
                if time.monotonic() > deadline:
                    errors = "\n".join(self.client.import_errors().values())
                    raise AirflowError(f"Airflow has not found the DAGs of the load {LOAD}. {errors}")
                time.sleep(0.5)

    def end_unfinished_runs(self, ours: bool) -> None:
        """End what an interrupted demo has left; runs of an Airflow that somebody uses are not touched."""
        for step in STEPS:
            dag_id = _dag_id(step)
            for run in self.client.runs(dag_id):
                if run["state"] not in ("queued", "running"):
                    continue
                if not ours:
                    raise AirflowError(
                        f"{dag_id} is {run['state']} in the Airflow at {self.client.url}. "
                        "Wait until it is done, or stop it there, before running the demo."
                    )
                self.client.call(
                    "PATCH", f"dags/{dag_id}/dagRuns/{run['dag_run_id']}", json={"state": "failed"}
                )

    def run_all(self) -> None:
        """The chain: two runs started by hand, the third started by Airflow when there are facts."""
        seen = {run["dag_run_id"] for run in self.client.runs(_dag_id("validate"))}
        for step in STEPS:
            self.client.pause(_dag_id(step), False)
        self.run("provision", self.client.trigger(_dag_id("provision")))
        self.run("enrich", self.client.trigger(_dag_id("enrich"), {"until_idle": True}))
        self.run("validate", self._asset_run("validate", seen))

    def _asset_run(self, step: str, seen: set[str]) -> str:
        """The run that Airflow starts because its asset was updated."""
        deadline = time.monotonic() + SECONDS_TO_APPEAR
        with self.screen.working(f"Waiting for Airflow to start {_dag_id(step)}"):
            while time.monotonic() < deadline:
                for run in self.client.runs(_dag_id(step)):
                    if run["dag_run_id"] not in seen:
                        return str(run["dag_run_id"])
                time.sleep(0.5)
        raise AirflowError(f"Airflow has not started {_dag_id(step)} although there are new facts.")

    def run(self, step: str, run_id: str) -> None:
        """Wait for a run, telling how its tasks go; raises with the log's end when it fails."""
        dag_id = _dag_id(step)
        told: set[tuple[str, str | None, int]] = set()
        with self.screen.working(dag_id) as line:
            for tasks in self.client.watch(dag_id, run_id, SECONDS_A_RUN):
                for task in tasks:
                    if (task.task_id, task.state, task.try_number) not in told:
                        told.add((task.task_id, task.state, task.try_number))
                        self._tell(dag_id, run_id, task)
                line.update(_now(dag_id, tasks, step))
        if self.client.run_state(dag_id, run_id) != "success":
            raise AirflowError(f"{dag_id} has failed; the end of its log is above.")

    def _tell(self, dag_id: str, run_id: str, task: TaskState) -> None:
        name = f"{dag_id} · {task.task_id}"
        if task.state == "success":
            self.screen.say(f"{name}: done in {task.seconds or 0:.1f} s")
        elif task.state in ("failed", "up_for_retry"):
            again = ", Airflow will try again" if task.state == "up_for_retry" else ""
            log = self.client.log(dag_id, run_id, task.task_id, task.try_number)
            self.screen.say(f"{name}: failed{again}. The end of its log:\n" + "\n".join(log[-LOG_LINES:]))


def _dag_id(step: str) -> str:
    return f"{LOAD}.{step}"


def _now(dag_id: str, tasks: list[TaskState], step: str) -> str:
    """What is happening in a run, in a line."""
    at_work = [task.task_id for task in tasks if task.state in ("queued", "running")]
    text = f"{dag_id} · {', '.join(at_work)}" if at_work else dag_id
    return f"{text}: {_loaded():,} tuples loaded" if step == "enrich" else text


def _loaded() -> int:
    """How many tuples the finished micro-batches had."""
    return sum(row["rows_in"] for row in read_rows(LoadHome(LOAD).batches, ["rows_in"]))
