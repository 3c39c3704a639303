"""The DAGs that a load definition becomes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import ParamValidationError

from freshet.home import PROJECT
from freshet.orchestration.operators import SparkJobOperator, arguments
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
    params = orders["enrich"].params
    assert set(params) == {"algorithm", "memory", "run_for", "until_idle", "max_files_per_batch"}
    for name in params:
        param = params.get_param(name)
        schema = param.schema
        assert param.description, name
        assert schema.keys() >= {"title", "type"}, name
        assert schema["type"] == "boolean" or schema.keys() & {"enum", "pattern", "minimum"}, name


def test_params_start_from_the_definition(orders: dict[str, DAG]) -> None:
    values = orders["enrich"].params.dump()
    # The two lookups differ in algorithm and memory, so each keeps its own.
    assert values == {
        "algorithm": None,
        "memory": None,
        "run_for": "90s",
        "until_idle": True,
        "max_files_per_batch": 5,
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithm": "nested-loop"},
        {"memory": "much"},
        {"memory": "-5MB"},
        {"run_for": "soon"},
        {"run_for": None},
        {"until_idle": "maybe"},
        {"max_files_per_batch": 0},
        {"max_files_per_batch": 1.5},
    ],
)
def test_a_wrong_param_is_refused(orders: dict[str, DAG], wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ParamValidationError):
        orders["enrich"].params.get_param(name).resolve(value)


def test_params_reach_the_job_as_arguments(orders: dict[str, DAG]) -> None:
    task = orders["enrich"].get_task("enrich")
    assert isinstance(task, SparkJobOperator)
    chosen = {
        "algorithm": "inlj",
        "memory": "64MB",
        "run_for": "10m",
        "until_idle": True,
        "max_files_per_batch": 3,
    }
    assert arguments(task.options, chosen) == [
        *("--algorithm", "inlj"),
        *("--memory", "64MB"),
        *("--for", "10m"),
        "--until-idle",
        *("--max-files", "3"),
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
