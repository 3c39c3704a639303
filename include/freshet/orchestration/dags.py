"""The DAGs of a load definition: provision, enrich, validate, resort."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from freshet.config import Definition, all_definitions
from freshet.errors import DefinitionError
from freshet.orchestration import tasks
from freshet.orchestration.assets import facts_asset
from freshet.orchestration.connections import connection_ids
from freshet.orchestration.docs import SENTENCES, dag_docs
from freshet.orchestration.operators import RUN_TIME_PARAM, SparkJobOperator
from freshet.orchestration.params import enrich_params, resort_params

OWNER = "freshet"
# A schedule counts from a start; none of the DAGs catches up, so any date in the past will do.
START = datetime(2026, 1, 1, tzinfo=UTC)
ENRICH_OPTIONS = {
    "--algorithm": "algorithm",
    "--memory": "memory",
    "--for": RUN_TIME_PARAM,
    "--until-idle": "until_idle",
    "--max-files": "max_files_per_batch",
    "--trigger-interval": "trigger_interval",
}
# Beyond its run time, enrich needs time to start Spark and to finish its last micro-batch.
ENRICH_GRACE = timedelta(minutes=30)
VALIDATION_FAILED = {3: "The new facts did not pass validation; the log above says which and why."}
TASK_TIMEOUT = timedelta(hours=6)
# A validation that waits for a slot of the pool goes before the next run of an endless enrich.
VALIDATE_PRIORITY = 10


def all_dags() -> tuple[list[DAG], list[DefinitionError]]:
    """The DAGs of every usable definition, and what is wrong with the others."""
    definitions, refused = all_definitions()
    dags: list[DAG] = []
    for definition in definitions:
        try:
            dags += load_dags(definition)
        except Exception as error:
            # What Airflow itself refuses, a schedule say, must not take the other loads down.
            refused.append(
                DefinitionError(f"Airflow refuses the DAGs of the load {definition.load!r}: {error}")
            )
    return dags, refused


def load_dags(definition: Definition) -> list[DAG]:
    """The DAGs of one definition."""
    return [build(definition) for build in (provision_dag, enrich_dag, validate_dag, resort_dag)]


def provision_dag(definition: Definition) -> DAG:
    """By hand: fill the demo's master tables, sample the stream, publish the first snapshots."""
    with _dag(definition, "provision", schedule=None) as dag:
        filled = tasks.provision.override(**_limits())(definition.load)
        sampled = tasks.count.override(task_id="sample", **_limits())(definition.load)
        ranked = tasks.sort.override(outlets=tasks.snapshots(definition), **_limits())(definition.load)
        filled >> sampled >> ranked
    return dag


def enrich_dag(definition: Definition) -> DAG:
    """Continuously, one run at a time: the stream joined with the master data, into the facts."""
    schedule = definition.enrich.schedule
    with _dag(definition, "enrich", schedule=schedule, params=enrich_params(definition)) as dag:
        SparkJobOperator(
            task_id="enrich",
            job="enrich",
            load=definition.load,
            options=ENRICH_OPTIONS,
            connections=connection_ids(definition),
            grace=ENRICH_GRACE,
            execution_timeout=timedelta(seconds=definition.enrich.run_for) + ENRICH_GRACE,
            outlets=[facts_asset(definition.load)],
        )
    return dag


def validate_dag(definition: Definition) -> DAG:
    """After new facts: the expectations, and the last good version that readers use."""
    with _dag(definition, "validate", schedule=[facts_asset(definition.load)]) as dag:
        SparkJobOperator(
            task_id="validate",
            job="validate",
            load=definition.load,
            connections=connection_ids(definition),
            final_codes=VALIDATION_FAILED,
            execution_timeout=TASK_TIMEOUT,
            priority_weight=VALIDATE_PRIORITY,
            weight_rule="absolute",
        )
    return dag


def resort_dag(definition: Definition) -> DAG:
    """On the definition's schedule and by hand: the keys counted again, new snapshots where it pays."""
    schedule = definition.resort.schedule
    with _dag(definition, "resort", schedule=schedule, params=resort_params(definition)) as dag:
        counted = tasks.count.override(task_id="recount", **_limits())(definition.load)
        ranked = tasks.sort.override(outlets=tasks.snapshots(definition), **_limits())(definition.load)
        counted >> ranked
    return dag


def _dag(definition: Definition, step: str, **kwargs: Any) -> DAG:
    schedule = kwargs["schedule"]
    return DAG(
        f"{definition.load}.{step}",
        description=f"{definition.load}: {SENTENCES[step]}",
        doc_md=dag_docs(definition, step),
        tags=["freshet", definition.load, step],
        start_date=START,
        catchup=False,
        max_active_runs=1,
        # What runs by itself waits until somebody switches it on; validate only follows enrich.
        is_paused_upon_creation=isinstance(schedule, str),
        default_args={
            "owner": OWNER,
            "retries": 2,
            "retry_delay": timedelta(seconds=30),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=10),
        },
        # The module that wants the DAGs names them; the other one must not pick them up by the way.
        auto_register=False,
        **kwargs,
    )


def _limits() -> dict[str, Any]:
    return {"execution_timeout": TASK_TIMEOUT}
