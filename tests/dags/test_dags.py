"""The DAGs that a load definition becomes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import ParamValidationError
from hypothesis import given
from hypothesis import strategies as st

from freshet.config import parse_bytes, parse_seconds
from freshet.config.models import LARGEST_SIZE, LONGEST_TIME, MOST_FILES
from freshet.home import PROJECT
from freshet.orchestration.dags import ENRICH_OPTIONS
from freshet.orchestration.operators import SparkJobOperator, arguments
from freshet.orchestration.params import (
    SIZE_PATTERN,
    SOME_TIME_PATTERN,
    TIME_PATTERN,
    written_bytes,
    written_seconds,
)
from freshet.orchestration.pools import SPARK_POOL
from tests.dags.conftest import ORDERS

STEPS = ("provision", "enrich", "validate", "resort")


@pytest.fixture
def orders(fill_bag: Callable[[], DagBag]) -> dict[str, DAG]:
    """The DAGs of the load `orders`, by step."""
    bag = fill_bag()
    assert bag.import_errors == {}
    return {step: bag.dags[f"orders.{step}"] for step in STEPS}


def graph(dag: DAG) -> dict[str, set[str]]:
    return {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}


def test_each_definition_becomes_four_dags(fill_bag: Callable[[], DagBag]) -> None:
    bag = fill_bag()
    assert bag.import_errors == {}
    assert set(bag.dag_ids) == {f"orders.{step}" for step in STEPS}


def test_the_projects_own_definitions_have_no_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESHET_LOADS", raising=False)
    bag = DagBag(dag_folder=PROJECT / "dags")
    assert bag.import_errors == {}
    assert {f"sales.{step}" for step in STEPS} <= set(bag.dag_ids)


def test_provision_samples_and_sorts(orders: dict[str, DAG]) -> None:
    assert graph(orders["provision"]) == {"provision": {"sample"}, "sample": {"sort"}, "sort": set()}


def test_resort_only_counts_and_publishes(orders: dict[str, DAG]) -> None:
    assert graph(orders["resort"]) == {"recount": {"sort"}, "sort": set()}


def test_enrich_and_validate_are_one_spark_job_each(orders: dict[str, DAG]) -> None:
    for step in ("enrich", "validate"):
        (task,) = orders[step].tasks
        assert isinstance(task, SparkJobOperator)
        assert task._conn_id == "spark_default"
        assert task.pool == SPARK_POOL
        assert task.connections == ("crm",)


def test_schedules_come_from_the_definition(orders: dict[str, DAG]) -> None:
    schedules: dict[str, object] = {step: dag.schedule for step, dag in orders.items() if step != "validate"}
    assert schedules == {"provision": None, "enrich": "@continuous", "resort": "15 3 * * *"}
    for dag in orders.values():
        assert not dag.catchup
        assert dag.max_active_runs == 1


def test_only_what_would_start_by_itself_waits_to_be_switched_on(orders: dict[str, DAG]) -> None:
    paused = {step for step, dag in orders.items() if dag.is_paused_upon_creation}
    assert paused == {"enrich", "resort"}


def test_validate_follows_the_facts_that_enrich_produces(orders: dict[str, DAG]) -> None:
    (produced,) = orders["enrich"].get_task("enrich").outlets
    awaited = cast("list[Asset]", orders["validate"].schedule)
    assert [asset.uri for asset in awaited] == [produced.uri] == ["freshet://orders/facts"]


def test_sorting_produces_the_snapshot_of_each_lookup(orders: dict[str, DAG]) -> None:
    for step in ("provision", "resort"):
        outlets = orders[step].get_task("sort").outlets
        assert [asset.name for asset in outlets] == ["orders.customer.snapshot", "orders.region.snapshot"]


def test_every_dag_is_documented_tagged_and_owned(orders: dict[str, DAG]) -> None:
    for step, dag in orders.items():
        assert {"freshet", "orders", step} == dag.tags
        assert dag.description
        assert f"orders.{step}" in (dag.doc_md or "")
        assert "Orders with their customers" in (dag.doc_md or "")
        assert dag.owner == "freshet"


def test_every_task_retries_and_has_a_time_limit(orders: dict[str, DAG]) -> None:
    for dag in orders.values():
        for task in dag.tasks:
            assert task.retries
            assert task.execution_timeout


def test_every_param_is_a_form_field_with_a_type_and_a_sentence(orders: dict[str, DAG]) -> None:
    enrich, resort = orders["enrich"].params, orders["resort"].params
    assert set(enrich) == set(ENRICH_OPTIONS.values())
    assert set(enrich) == {
        *("algorithm", "memory", "run_for", "until_idle", "max_files_per_batch", "trigger_interval")
    }
    assert set(resort) == {"min_gain"}
    for name in (*enrich, *resort):
        param = (enrich if name in enrich else resort).get_param(name)
        schema = param.schema
        assert param.description, name
        assert schema.keys() >= {"title", "type"}, name
        assert schema["type"] == "boolean" or schema.keys() & {"enum", "pattern", "minimum"}, name


def test_params_start_from_the_definition(orders: dict[str, DAG]) -> None:
    assert orders["resort"].params.dump() == {"min_gain": 0.2}
    values = orders["enrich"].params.dump()
    # The two lookups differ in algorithm and memory, so each keeps its own.
    assert values == {
        "algorithm": None,
        "memory": None,
        "run_for": "90s",
        "until_idle": True,
        "max_files_per_batch": 5,
        "trigger_interval": "0.5s",
    }
    description = orders["enrich"].params.get_param("algorithm").description
    assert description
    assert "customer: inlj, region: auto" in description


def test_params_of_one_lookup_show_its_own_values(loads: Path, fill_bag: Callable[[], DagBag]) -> None:
    single = {
        **ORDERS,
        "lookups": ORDERS["lookups"][:1],
        "facts": {"table": "f", "columns": ["order_id", "city"]},
    }
    (loads / "orders.yaml").write_text(yaml.safe_dump(single, sort_keys=False))
    values = fill_bag().dags["orders.enrich"].params.dump()
    assert (values["algorithm"], values["memory"]) == ("inlj", "3MB")


def test_a_limit_in_bytes_holds_unless_a_number_of_files_is_given(
    loads: Path, fill_bag: Callable[[], DagBag]
) -> None:
    limited = {**ORDERS, "stream": {**ORDERS["stream"], "max_bytes_per_batch": "64MB"}}
    (loads / "orders.yaml").write_text(yaml.safe_dump(limited, sort_keys=False))
    dag = fill_bag().dags["orders.enrich"]
    task, values = dag.get_task("enrich"), dag.params.dump()
    assert isinstance(task, SparkJobOperator)
    assert "--max-files" not in arguments(task.options, values)
    assert arguments(task.options, {**values, "max_files_per_batch": 3})[-4:-2] == ["--max-files", "3"]

    param = dag.params.get_param("max_files_per_batch")
    assert "64MB" in (param.description or "")
    assert (param.resolve(None), param.resolve(3)) == (None, 3)
    with pytest.raises(ParamValidationError):
        param.resolve(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithm": "nested-loop"},
        {"memory": "much"},
        {"memory": "-5MB"},
        {"memory": "0MB"},
        {"memory": "0.0001MB"},
        {"memory": "0.9KB"},
        {"memory": "1B"},
        {"memory": "1023"},
        {"memory": "9999999TB"},
        {"memory": "9999999999999999"},
        {"run_for": "soon"},
        {"run_for": None},
        {"run_for": "0s"},
        {"run_for": "0h 0.00m"},
        {"run_for": "99999d"},
        {"trigger_interval": "often"},
        {"trigger_interval": "-1s"},
        {"trigger_interval": None},
        {"until_idle": "maybe"},
        {"max_files_per_batch": 0},
        {"max_files_per_batch": 1.5},
        {"max_files_per_batch": None},
    ],
)
def test_a_wrong_param_is_refused(orders: dict[str, DAG], wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ParamValidationError):
        orders["enrich"].params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    "right",
    [
        *({"memory": size} for size in ("1024", "1999 b", "1KB", "0.5MB", "1.5GiB", "64m", "999TB", None)),
        *({"run_for": time} for time in ("1ms", "0.5s", "90s", "1h30m", "1d 0h 10min")),
        *({"trigger_interval": time} for time in ("0s", "250ms", "1m")),
    ],
)
def test_a_right_param_is_accepted(orders: dict[str, DAG], right: dict[str, Any]) -> None:
    ((name, value),) = right.items()
    assert orders["enrich"].params.get_param(name).resolve(value) == value


@given(st.from_regex(re.compile(SIZE_PATTERN, re.ASCII)))
def test_every_size_that_the_trigger_accepts_is_one_a_definition_may_have(size: str) -> None:
    assert 1 << 10 <= parse_bytes(size) < 1 << 50


@given(st.from_regex(re.compile(SOME_TIME_PATTERN, re.ASCII)))
def test_every_run_time_that_the_trigger_accepts_is_one_a_timer_can_have(time: str) -> None:
    assert 0 < parse_seconds(time) < threading.TIMEOUT_MAX


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(5400, "90m"), (7200, "2h"), (90.25, "90.25s"), (1234567, "1234567s"), (0.00001, "0.00001s"), (0, "0s")],
)
def test_a_time_of_a_definition_is_written_as_its_form_field_takes_it(seconds: float, written: str) -> None:
    assert written_seconds(seconds) == written
    assert parse_seconds(written) == seconds
    assert re.search(TIME_PATTERN, written)


@pytest.mark.parametrize("seconds", [LONGEST_TIME, LONGEST_TIME - 1, LONGEST_TIME - 0.001, 0.001])
def test_every_time_of_a_definition_fits_its_form_field(seconds: float) -> None:
    assert re.search(SOME_TIME_PATTERN, written_seconds(seconds))


@pytest.mark.parametrize("size", [LARGEST_SIZE >> shift for shift in (0, 1, 2, 11, 21, 31)])
def test_every_size_of_a_definition_fits_its_form_field(size: int) -> None:
    for near in (size, size - 1, size - 1024, size - (1 << 20), size - (1 << 30)):
        if near >= 1024:
            assert re.search(SIZE_PATTERN, written_bytes(near))


def test_what_is_largest_in_a_definition_is_no_import_error(
    loads: Path, fill_bag: Callable[[], DagBag]
) -> None:
    largest = {
        **ORDERS,
        "stream": {**ORDERS["stream"], "max_files_per_batch": MOST_FILES, "trigger_interval": LONGEST_TIME},
        "lookups": [{**ORDERS["lookups"][0], "memory": LARGEST_SIZE}],
        "facts": {"table": "f", "columns": ["order_id", "city"]},
        "enrich": {"run_for": LONGEST_TIME - 1},
    }
    (loads / "orders.yaml").write_text(yaml.safe_dump(largest))
    bag = fill_bag()
    assert (bag.import_errors, len(bag.dags)) == ({}, len(STEPS))


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "much", None])
def test_a_wrong_least_gain_is_refused(orders: dict[str, DAG], wrong: object) -> None:
    with pytest.raises(ParamValidationError):
        orders["resort"].params.get_param("min_gain").resolve(wrong)


def test_params_reach_the_job_as_arguments(orders: dict[str, DAG]) -> None:
    task = orders["enrich"].get_task("enrich")
    assert isinstance(task, SparkJobOperator)
    chosen = {
        "algorithm": "inlj",
        "memory": "64MB",
        "run_for": "10m",
        "until_idle": True,
        "max_files_per_batch": 3,
        "trigger_interval": "2s",
    }
    assert arguments(task.options, chosen) == [
        *("--algorithm", "inlj"),
        *("--memory", "64MB"),
        *("--for", "10m"),
        "--until-idle",
        *("--max-files", "3"),
        *("--trigger-interval", "2s"),
    ]


def test_empty_params_leave_it_to_the_definition(orders: dict[str, DAG]) -> None:
    task = orders["enrich"].get_task("enrich")
    assert isinstance(task, SparkJobOperator)
    assert arguments(
        task.options, {"algorithm": None, "memory": "", "run_for": "10m", "until_idle": False}
    ) == [
        "--for",
        "10m",
    ]


def test_the_time_limit_follows_the_run_time_that_was_asked_for(orders: dict[str, DAG]) -> None:
    task = orders["enrich"].get_task("enrich")
    assert isinstance(task, SparkJobOperator)
    task.pre_execute({"params": {"run_for": "8h"}})
    assert task.execution_timeout is not None
    assert timedelta(hours=8) < task.execution_timeout < timedelta(hours=9)
