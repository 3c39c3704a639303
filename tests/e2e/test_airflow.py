"""The demo load in a real Airflow: run by its scheduler, steered over its REST interface.

The tests build on each other and share one Airflow; the last one ends it.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from deltalake import DeltaTable

from freshet.home import LoadHome, embedded_database
from freshet.orchestration.api import FINISHED, AirflowClient
from tests.e2e.conftest import SALES, Stage, processes_of

# A time limit by signal lets the fixture end its Airflow; the thread's would leave it running.
pytestmark = pytest.mark.timeout(1200, method="signal")


def wait_until(what: str, holds: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.5)
    return value


def finished(client: AirflowClient, dag_id: str, run_id: str, seconds: float = 900) -> str:
    wait_until(f"{dag_id} finishes", lambda: client.run_state(dag_id, run_id) in FINISHED, seconds)
    state = client.run_state(dag_id, run_id)
    if state == "failed":
        for task in client.tasks(dag_id, run_id):
            print("\n".join(client.log(dag_id, run_id, task.task_id, task.try_number)[-60:]))
    return state


FACTS = ["sale_id", "surrogate_key", "supplier_id", "quantity", "cents", "sold_at"]


def expected_facts(home: Path) -> pd.DataFrame:
    """The facts as pandas finds them in the demo's files, knowing nothing of Freshet."""
    records = []
    for file in sorted((home / "demo" / "sales").glob("*")):
        for line in file.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
    sales = pd.DataFrame(records)
    is_whole = {
        name: sales[name].map(lambda value: isinstance(value, int)) for name in ("quantity", "product_id")
    }
    is_time = pd.to_datetime(sales["sold_at"], errors="coerce", format="ISO8601").notna()
    good = sales[is_whole["quantity"] & is_whole["product_id"] & is_time]
    with sqlite3.connect(embedded_database()) as database:
        products = pd.read_sql("select * from products", database)
    facts = good.astype({"product_id": "int64", "quantity": "int64"}).merge(products, on="product_id")
    facts["sold_at"] = pd.to_datetime(facts["sold_at"], utc=True, format="ISO8601")
    facts["cents"] = facts["quantity"] * (facts["sale_price"].astype(float) * 100).round().astype("int64")
    return facts[FACTS]


def loaded_facts() -> pd.DataFrame:
    facts = DeltaTable(str(LoadHome("sales").facts("sales_facts"))).to_pandas()
    facts["cents"] = (facts["total"].astype(float) * 100).round().astype("int64")
    return facts[FACTS]


def batches() -> list[dict[str, Any]]:
    rows = DeltaTable(str(LoadHome("sales").batches)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["batch"])


def add_a_sale(stage: Stage) -> None:
    """One more good record in the stream."""
    name = uuid.uuid4().hex
    sale = {"sale_id": name, "product_id": 100_001, "quantity": 2, "sold_at": "2026-11-01T10:00:00Z"}
    draft = stage.home / name
    draft.write_text(json.dumps(sale) + "\n")
    draft.rename(stage.home / "demo" / "sales" / f"more-{name}.json")


def test_the_demo_shows_the_planted_counts_and_all_that_it_promises(stage: Stage) -> None:
    shown = stage.shown
    planted = json.loads((stage.home / "demo" / "sales.planted.json").read_text())
    assert f"{SALES:,}" in shown
    for reason, count in planted.items():
        assert f"{count:,} (planted: {count:,})" in shown, reason
    for told in ("service rate", "served from the hot part", "pages read", "peak memory", "snapshot version"):
        assert told in shown
    assert "validation" in shown
    assert "passed" in shown
    assert stage.airflow.last_url in shown
    assert "The demo has worked" in shown


def test_the_airflow_that_the_demo_has_started_ends_with_it(stage: Stage) -> None:
    assert stage.left == []


def test_the_facts_are_those_that_pandas_finds(stage: Stage) -> None:
    columns = ["sale_id", "surrogate_key"]
    expected = expected_facts(stage.home).sort_values(columns).reset_index(drop=True)
    actual = loaded_facts().sort_values(columns).reset_index(drop=True)
    assert len(expected) > SALES * 0.9
    pd.testing.assert_frame_equal(actual, expected, check_dtype=False)


def test_validation_followed_the_facts_by_their_asset(stage: Stage) -> None:
    (run,) = stage.client.runs("sales.validate")
    assert run["run_type"] == "asset_triggered"
    assert run["state"] == "success"
    stage.client.pause("sales.validate", True)  # the runs of the other tests are not validated


def test_the_drivers_log_is_the_tasks_log(stage: Stage) -> None:
    (run,) = stage.client.runs("sales.enrich")
    log = "\n".join(stage.client.log("sales.enrich", run["dag_run_id"], "enrich", 1))
    assert f"{SALES:,} records in" in log


@pytest.mark.parametrize(
    "conf",
    [
        {"algorithm": "nested-loop"},
        {"memory": "plenty"},
        {"run_for": "tomorrow"},
        {"until_idle": "perhaps"},
        {"max_files_per_batch": 0},
    ],
)
def test_a_wrong_param_is_refused_at_the_trigger(stage: Stage, conf: dict[str, Any]) -> None:
    response = stage.client.request(
        "POST", "dags/sales.enrich/dagRuns", json={"logical_date": None, "conf": conf}
    )
    assert response.status_code == 400
    assert next(iter(conf)) in response.text


def test_resort_publishes_another_snapshot_only_if_it_gains_enough(stage: Stage) -> None:
    snapshots = LoadHome("sales").snapshots("product")
    before, facts = sorted(snapshots.iterdir()), len(loaded_facts())
    # Switched on, it also makes up for the last time its schedule was due.
    stage.client.pause("sales.resort", False)
    states = {}
    for min_gain in (0, 1):
        run = stage.client.trigger("sales.resort", {"min_gain": min_gain})
        assert finished(stage.client, "sales.resort", run) == "success"
        states[min_gain] = {task.task_id: task.state for task in stage.client.tasks("sales.resort", run)}
        if min_gain == 0:
            published = sorted(path.name for path in set(snapshots.iterdir()) - set(before))
    stage.client.pause("sales.resort", True)
    assert states == {
        0: {"recount": "success", "sort": "success"},
        1: {"recount": "success", "sort": "skipped"},
    }
    assert published[0] == f"v{len(before) + 1:06d}"
    assert len(loaded_facts()) == facts


def test_a_bad_definition_is_an_import_error_and_the_others_stay(stage: Stage) -> None:
    good = (stage.loads / "sales.yaml").read_text()
    broken = stage.loads / "broken.yaml"
    broken.write_text(good.replace("load: sales", "load: broken").replace("format: json", "format: xml"))
    client = stage.client
    errors = wait_until("the import error shows", client.import_errors)
    ((file, message),) = errors.items()
    assert file.endswith("freshet_refused.py")
    for told in ("broken.yaml", "stream.format", "xml", "json"):
        assert told in message
    assert "sales.enrich" in client.dag_ids()
    broken.unlink()
    wait_until("the import error goes", lambda: not client.import_errors())
    assert "sales.enrich" in client.dag_ids()


def enrich_driver(home: Path) -> list[psutil.Process]:
    """The JVM of the running enrich job, the Python driver and its workers."""
    for process in processes_of(home):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "java" and any("jobs/enrich.py" in part for part in process.cmdline()):
                children = process.children(recursive=True)
                return [process, *children] if children else []
    return []


def start_endless_run(stage: Stage, **conf: Any) -> str:
    """A run that has loaded one more sale and waits for more."""
    before = len(batches())
    add_a_sale(stage)
    run = stage.client.trigger("sales.enrich", {"until_idle": False, "run_for": "1h", **conf})
    wait_until("the driver loads", lambda: len(batches()) > before, 400)
    return run


def fail(stage: Stage, run: str) -> None:
    stage.client.call("PATCH", f"dags/sales.enrich/dagRuns/{run}", json={"state": "failed"})


def living(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Which of the processes are alive after some time."""
    _, left = psutil.wait_procs(processes, timeout=seconds)
    return [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def test_a_run_takes_its_params_and_ends_with_its_driver_when_it_is_ended_in_airflow(stage: Stage) -> None:
    before = batches()
    assert before[-1]["lookups"][0]["algorithm"] != "inlj"
    run = start_endless_run(stage, algorithm="inlj", memory="7MB", max_files_per_batch=1)
    (added,) = batches()[len(before) :]
    (lookup,) = added["lookups"]
    assert (added["rows_in"], lookup["algorithm"], lookup["memory"]) == (1, "inlj", 7 << 20)
    driver = enrich_driver(stage.home)
    assert driver
    fail(stage, run)
    assert living(driver, 120) == []
    assert enrich_driver(stage.home) == []


def test_a_driver_does_not_outlive_its_task(stage: Stage) -> None:
    """What a crash does: nobody is left to end the driver politely."""
    run = start_endless_run(stage)
    driver = enrich_driver(stage.home)
    driver[0].parents()[0].kill()
    assert living(driver, 120) == []
    fail(stage, run)


def test_stopping_airflow_leaves_no_process(stage: Stage) -> None:
    start_endless_run(stage)
    stage.airflow.stop(print)
    assert processes_of(stage.home) == []
    assert not stage.airflow.is_running()
