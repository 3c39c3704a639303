"""The operator of Freshet's Spark jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from freshet.config import parse_seconds
from freshet.home import PROJECT
from freshet.orchestration.connections import connection_variables
from freshet.orchestration.driver import DriverHook, die_with_parent, driver_environment, spark_submit
from freshet.orchestration.pools import SPARK_POOL

if TYPE_CHECKING:
    from airflow.sdk import Context

SPARK_CONNECTION = "spark_default"
RUN_TIME_PARAM = "run_for"


class SparkJobOperator(SparkSubmitOperator):
    """A job of `jobs/`, run by spark-submit on the Spark connection, with the run's params as its arguments.

    The driver lives below the task: its output is the task's log, and whatever ends the task (a kill, a time
    limit, a dead worker) ends the driver and its Python workers too. `options` names the param behind each
    argument; an empty param leaves the argument out. With `grace`, the task may take that long beyond the
    run time the params ask for.
    """

    ui_color = "#cfe8f3"

    def __init__(
        self,
        *,
        job: str,
        load: str,
        options: Mapping[str, str] | None = None,
        connections: Sequence[str] = (),
        grace: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("conn_id", SPARK_CONNECTION)
        kwargs.setdefault("pool", SPARK_POOL)
        super().__init__(application=f"jobs/{job}.py", name=f"{load}.{job}", **kwargs)
        self.load = load
        self.options = dict(options or {})
        self.connections = tuple(connections)
        self.grace = grace

    def pre_execute(self, context: Context) -> None:
        """Set the time limit by the run time this run was given: Airflow reads it after this call."""
        if self.grace is not None:
            run_for = parse_seconds(context["params"][RUN_TIME_PARAM])
            self.execution_timeout = timedelta(seconds=run_for) + self.grace

    def execute(self, context: Context) -> None:
        from freshet.streaming.session import spark_conf

        die_with_parent()
        self.application = str(PROJECT / self.application)
        self.conf = spark_conf()
        self.application_args = ["--load", self.load, *arguments(self.options, context["params"])]
        try:
            super().execute(context)
        except BaseException:
            self.on_kill()
            raise

    def _get_hook(self) -> DriverHook:
        return DriverHook(
            environment={**driver_environment(), **connection_variables(self.connections)},
            conf=self.conf,
            conn_id=self._conn_id,
            name=self.name,
            application_args=self.application_args,
            spark_binary=spark_submit(),
        )


def arguments(options: Mapping[str, str], params: Mapping[str, Any]) -> list[str]:
    """The command-line arguments that say what the params say."""
    given: list[str] = []
    for flag, name in options.items():
        value = params.get(name)
        if value is True:
            given.append(flag)
        elif value not in (None, "", False):
            given += [flag, str(value)]
    return given
