"""The operator of Freshet's Spark jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException

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
    run time the params ask for. `final_codes` says what exit codes mean that no retry would change.
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
        final_codes: Mapping[int, str] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("conn_id", SPARK_CONNECTION)
        kwargs.setdefault("pool", SPARK_POOL)
        super().__init__(application=f"jobs/{job}.py", name=f"{load}.{job}", **kwargs)
        self.load = load
        self.options = dict(options or {})
        self.connections = tuple(connections)
        self.grace = grace
        self.final_codes = dict(final_codes or {})

    def pre_execute(self, context: Context) -> None:
        """Set the time limit by the run time this run was given: Airflow reads it after this call."""
        if self.grace is not None:
            run_for = parse_seconds(context["params"][RUN_TIME_PARAM])
            self.execution_timeout = timedelta(seconds=run_for) + self.grace

    def execute(self, context: Context) -> None:
        from freshet.streaming.session import log_level, spark_conf

        die_with_parent()
        self.application = str(PROJECT / self.application)
        # Spark would tell every step of its own start in the task's log.
        self.conf = {**spark_conf(), "spark.log.level": log_level()}
        self.application_args = ["--load", self.load, *arguments(self.options, context["params"])]
        try:
            super().execute(context)
        except BaseException as error:
            self.on_kill()
            code = self._exit_code()
            if code in self.final_codes:
                raise AirflowFailException(self.final_codes[code]) from error
            raise

    def _exit_code(self) -> int | None:
        """How spark-submit ended, if it did."""
        process = self._hook._submit_sp if self._hook else None
        return process.poll() if process else None

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
