"""Great Expectations at work: one file context a load, so that suites, results and Data Docs stay."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint.actions import UpdateDataDocsAction
from great_expectations.core.batch_definition import BatchDefinition
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.data_context.file_data_context import FileDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.validator import Validator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshet.home import LoadHome
from freshet.quality.result import SHOWN_IDS, ExpectationResult

KEPT_RUNS = 30
"""How many validations Data Docs show."""

_SITE = "local_site"

_RESULTS = Path("uncommitted", "validations")
"""Where in the context the results are that Data Docs show, a folder a suite."""


class Runner:
    """The validation runs of one load."""

    def __init__(self, load: str, run_name: str) -> None:
        self.home = LoadHome(load)
        self.home.validation.mkdir(parents=True, exist_ok=True)
        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        self.context = self._open()
        self.run_id = RunIdentifier(run_name=run_name)
        self._batches: dict[str, tuple[BatchDefinition, Any]] = {}

    def run(
        self, suite: gx.ExpectationSuite, frame: DataFrame | pd.DataFrame, index: str
    ) -> list[ExpectationResult]:
        """Validate a frame; `index` is the column that names a row."""
        batch = self._batch_definition(suite.name, frame)
        self._batches[suite.name] = (batch, frame)
        suite = self.context.suites.add_or_update(suite)
        validation = self.context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=suite.name, data=batch, suite=suite)
        )
        checkpoint = self.context.checkpoints.add_or_update(
            gx.Checkpoint(
                name=suite.name,
                validation_definitions=[validation],
                actions=[UpdateDataDocsAction(name="data docs", site_names=[_SITE])],
                result_format={
                    "result_format": "SUMMARY",
                    "unexpected_index_column_names": [index],
                    "partial_unexpected_count": SHOWN_IDS,
                },
            )
        )
        outcome = checkpoint.run(batch_parameters={"dataframe": frame}, run_id=self.run_id)
        (result,) = outcome.run_results.values()
        return [_told(one, index) for one in result.results]

    def failing(self, suite: gx.ExpectationSuite, check: str) -> DataFrame | None:
        """The rows of a Spark frame that fail one expectation; None when it does not tell single rows."""
        expectation = next(one for one in suite.expectations if (one.meta or {}).get("check") == check)
        metric = getattr(expectation, "map_metric", None)
        definition, frame = self._batches[suite.name]
        batch = definition.get_batch(batch_parameters={"dataframe": frame})
        engine: Any = batch.data.execution_engine
        needed = expectation.get_validation_dependencies(
            engine, {"result_format": {"result_format": "BASIC"}}
        )
        # On Spark the type of a column is asked of its schema, though elsewhere it is of each value.
        counted = needed.metric_configurations.get(f"{metric}.unexpected_count")
        if counted is None:
            return None
        validator = Validator(engine, batches=[batch])
        validator.metrics_calculator.show_progress_bars = False
        condition, domain, accessor = validator.get_metric(
            MetricConfiguration(
                f"{metric}.condition", counted.metric_domain_kwargs, counted.metric_value_kwargs
            )
        )
        rows: DataFrame = engine.get_domain_records(domain_kwargs={**domain, **accessor})
        # As a column first: the condition may hold a window function, which a filter may not.
        return rows.withColumn("_unexpected", condition).where(F.col("_unexpected")).drop("_unexpected")

    @property
    def index_page(self) -> Path:
        return self.home.data_docs / "index.html"

    def _open(self) -> FileDataContext:
        _clear(self.home.validation / "gx")
        context = gx.get_context(mode="file", project_root_dir=self.home.validation)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        context.variables.data_docs_sites = {
            _SITE: {
                "class_name": "SiteBuilder",
                "show_how_to_buttons": False,
                "store_backend": {
                    "class_name": "TupleFilesystemStoreBackend",
                    "base_directory": "../data_docs/",
                },
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            }
        }
        context.variables.save()
        _prune(Path(context.root_directory) / _RESULTS, self.home.data_docs / "validations")
        return context

    def _batch_definition(self, name: str, frame: DataFrame | pd.DataFrame) -> BatchDefinition:
        sources = self.context.data_sources
        if isinstance(frame, pd.DataFrame):
            asset: Any = sources.add_or_update_pandas(name).add_dataframe_asset(name)
        else:
            asset = sources.add_or_update_spark(name, persist=False).add_dataframe_asset(name)
        batch: BatchDefinition = asset.add_batch_definition_whole_dataframe("new")
        return batch


def _clear(context: Path) -> None:
    """Remove what an earlier run has left of the context, all but the results.

    Each run makes it anew. Great Expectations writes its files in place, and over half a file, which is what
    a kill leaves, it opens no context.
    """
    results = context / _RESULTS
    loose = (entry for entry in results.glob("*") if not entry.is_dir())
    for entry in (*context.glob("*"), *results.parent.glob("*"), *loose):
        if entry.is_dir() and not results.is_relative_to(entry):
            shutil.rmtree(entry)
        elif not entry.is_dir():
            entry.unlink()


def _prune(results: Path, pages: Path) -> None:
    """Forget the oldest runs: building the index page reads all of them."""
    for suite in results.glob("*/"):
        runs = sorted(suite.glob("*/*/"), key=lambda run: run.name)
        for run in runs[:-KEPT_RUNS]:
            shutil.rmtree(pages / run.relative_to(results), ignore_errors=True)
            shutil.rmtree(run, ignore_errors=True)


def _told(outcome: ExpectationValidationResult, index: str) -> ExpectationResult:
    """One expectation's result, in our words."""
    plain: Mapping[str, Any] = outcome.to_json_dict()
    config: Mapping[str, Any] = plain["expectation_config"]
    result: Mapping[str, Any] = plain.get("result") or {}
    named = [row.get(index) for row in result.get("partial_unexpected_index_list") or []]
    arguments = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    return ExpectationResult(
        check=config["meta"]["check"],
        type=config["type"],
        column=arguments.get("column"),
        success=bool(plain["success"]),
        description=config.get("description") or _described(config["type"], arguments),
        unexpected_count=int(result.get("unexpected_count") or 0),
        failing_ids=() if index == "batch" else tuple(named),
        failing_batches=tuple(named) if index == "batch" else (),
        observed=result.get("observed_value"),
        error=_error(plain.get("exception_info") or {}),
    )


def _described(kind: str, arguments: Mapping[str, Any]) -> str:
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _error(info: Mapping[str, Any]) -> str | None:
    """What kept an expectation from being computed, in one line."""
    if "raised_exception" in info:
        return _cause(str(info["exception_message"])) if info["raised_exception"] else None
    return next((error for entry in info.values() if (error := _error(entry))), None)


def _cause(message: str) -> str:
    """The line of an exception's message that says why: of a Java stack trace the innermost cause."""
    lines = message.splitlines() or ["no reason was given"]
    causes = [line for line in lines if line.startswith(("Caused by: ", ": "))]
    return (causes or lines[:1])[-1].removeprefix("Caused by").lstrip(": ")
