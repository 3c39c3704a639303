"""Validation of a load: the new versions of the fact table are checked, and the last good version moves.

    ledger, then the table's log ─► new rows ─► checks as columns ─► Great Expectations ─► result, Data Docs
                                                                          │ success: last good version
                                                                          └ failure: file of failing rows

The ledger is read before the log. So every batch it has is in the log, and a batch that the log has and
the ledger has not is still being loaded: its facts are left to the next validation.
"""

from __future__ import annotations

import importlib
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshet.config import Definition
from freshet.errors import LoadStateError, ValidationError
from freshet.home import LoadHome
from freshet.progress import Progress, silent
from freshet.quality.batches import Batches, stream_ids
from freshet.quality.changes import Changes, read_changes
from freshet.quality.failing import first_failing, forget_failing, write_failing
from freshet.quality.files import locked
from freshet.quality.ledger import Ledger, ledger_frame, read_ledger
from freshet.quality.newrows import NewRows, Survey
from freshet.quality.pointer import LastGood, move_last_good, read_last_good
from freshet.quality.prepare import EVENT, Prepared, prepare
from freshet.quality.quarantine import application, finish_quarantine
from freshet.quality.result import ExpectationResult, ValidationResult, keep_result
from freshet.quality.unique import EventIds
from freshet.streaming.plan import forget_plans

if TYPE_CHECKING:
    import pandas as pd

STEPS = 5


def validate(
    definition: Definition, spark: SparkSession, progress: Progress | None = None
) -> ValidationResult:
    """Validate what is new in the fact table; on success readers get it, on failure the rows are named."""
    with locked(LoadHome(definition.load).validation_lock):
        finish_quarantine(definition, spark)
        return Validation(definition, spark, progress or silent).run()


@dataclass
class Validation:
    """One run of the validation of a load."""

    definition: Definition
    spark: SparkSession
    progress: Progress

    def run(self) -> ValidationResult:
        started = time.monotonic()
        pointer = read_last_good(self.definition.load)
        ledger = read_ledger(self.definition.load, pointer.batch if pointer else None)
        changes = self._changes(pointer, ledger)
        if changes.empty and not ledger.rows:
            result = self._result(changes)
        else:
            result = self._validated(changes, ledger)
        if result.success and changes.to_version >= 0:
            pointer = move_last_good(
                self.definition.load, LastGood(changes.to_version, ledger.last, result.validated_at)
            )
            if ledger.last is not None:
                forget_plans(self.definition.load, ledger.last)
        result = replace(
            result,
            last_good=pointer.version if pointer else None,
            seconds=round(time.monotonic() - started, 3),
        )
        keep_result(result)
        forget_failing(result.load, result.failing)
        return result

    def _changes(self, pointer: LastGood | None, ledger: Ledger) -> Changes:
        home = LoadHome(self.definition.load)
        ours = stream_ids(self.definition.load, ledger.stream_ids)
        changes = read_changes(
            home.facts(self.definition.facts.table),
            pointer.version if pointer else None,
            lambda app, version: version if app in ours else None,
            ledger.unfinished,
        )
        if application(self.definition.load) in changes.later_writers:
            raise _quarantined_behind(self.definition.load, changes.held_back)
        return changes

    def _validated(self, changes: Changes, ledger: Ledger) -> ValidationResult:
        # The import takes seconds in which Spark can work.
        importing = threading.Thread(target=importlib.import_module, args=("freshet.quality.runner",))
        importing.start()
        table = LoadHome(self.definition.load).facts(self.definition.facts.table)
        new = NewRows(self.spark, self.definition, table, changes)
        self.progress("reading the new facts", 0, STEPS)
        survey = Survey() if changes.empty else new.survey()
        ledger = ledger.including(survey.by_batch)
        self.progress("comparing the ledger with the tables", 1, STEPS)
        books = ledger_frame(ledger, new, survey)
        self.progress("looking for repeated events", 2, STEPS)
        ids = EventIds(new, survey)
        batches = Batches(self.definition.load, survey, ledger.batches, ledger.validated)
        prepared = prepare(new, batches, ids)
        prepared.frame = prepared.frame.persist()
        try:
            self.progress("checking the facts against the snapshots", 3, STEPS)
            _materialise(prepared.frame, survey.rows)
            importing.join()
            self.progress("validating", 4, STEPS)
            return self._expected(changes, ledger, survey, books, prepared)
        finally:
            prepared.frame.unpersist()
            ids.forget()
            self.progress("validated", STEPS, STEPS)

    def _expected(
        self, changes: Changes, ledger: Ledger, survey: Survey, books: pd.DataFrame, prepared: Prepared
    ) -> ValidationResult:
        """The result of all expectations."""
        import pandas as pd

        from freshet.quality.runner import Runner
        from freshet.quality.suites import AGE, FACTS, FRESHNESS, LEDGER, build_suites

        limit = self.definition.freshness
        freshness = _freshness(survey, ledger, limit)
        suites = build_suites(self.definition, prepared.checks, limit if AGE in freshness else None)
        runner = Runner(self.definition.load, f"versions {_span(changes)}")
        found: list[ExpectationResult] = []
        result = self._result(changes, rows=survey.rows, unchecked=prepared.unchecked, freshness=freshness)
        if survey.rows:
            on_rows = runner.run(suites[FACTS], prepared.frame, EVENT)
            found += on_rows
            failed = {one.check: one for one in on_rows if not one.success}
            frames = {
                check: runner.failing(suites[FACTS], check) for check, one in failed.items() if not one.error
            }
            result = self._with_failing(result, prepared, failed, frames)
        if len(books):
            found += runner.run(suites[LEDGER], books, "batch")
        if FRESHNESS in suites:
            found += runner.run(suites[FRESHNESS], pd.DataFrame([freshness]), AGE)
        return replace(
            result,
            success=all(one.success for one in found),
            expectations=tuple(found),
            data_docs=str(runner.index_page),
        )

    def _with_failing(
        self,
        result: ValidationResult,
        prepared: Prepared,
        failed: dict[str, ExpectationResult],
        frames: dict[str, DataFrame | None],
    ) -> ValidationResult:
        """The result with the failing rows, all of them in a file."""
        columns = {check.name: check.column for check in prepared.checks}
        failures: dict[str, tuple[DataFrame, Column]] = {
            check: (frame, F.col(columns[check]) if check in columns else F.lit(failed[check].description))
            for check, frame in frames.items()
            if frame is not None
        }
        if not failures:
            return result
        path = write_failing(self.definition.load, prepared, self.definition.stream.event_id, failures)
        count, first = first_failing(self.spark.read.parquet(str(path)))
        return replace(result, failing=str(path), failing_count=count, failing_rows=first)

    def _result(self, changes: Changes, **found: Any) -> ValidationResult:
        return ValidationResult(
            load=self.definition.load,
            validated_at=datetime.now(UTC).isoformat(),
            from_version=changes.from_version,
            to_version=changes.to_version,
            held_back=changes.held_back,
            **{"success": True, "rows": 0, **found},
        )


def _quarantined_behind(load: str, batch: int | None) -> LoadStateError:
    """The refusal of facts that a quarantine has taken away behind an unfinished batch.

    The version before the batch still has the rows, and the parked table has them as well: no books of that
    version balance, and its failing rows cannot be moved once more.
    """
    return LoadStateError(
        f"Batch {batch} of load {load!r} is not finished, and a quarantine came after its facts, so the "
        "facts before it cannot be validated by themselves. Have the batch finished, by the enrich run at "
        f"work or by `freshet enrich {load}`, then validate again."
    )


def _materialise(frame: DataFrame, rows: int) -> None:
    """Compute the prepared rows here: Great Expectations would take an error for a failed expectation."""
    computed = frame.count()
    if computed != rows:
        raise ValidationError(
            f"{rows:,} new facts became {computed:,} when they were joined with their snapshots: a snapshot "
            "has a key twice, or a file changed under the validation. Run it again; if it persists, "
            "publish new snapshots with `freshet sort`."
        )


def _freshness(survey: Survey, ledger: Ledger, limit: float | None) -> dict[str, Any]:
    """How old the newest of the new facts is.

    By its event time, when the load has one: its age when it was loaded, which does not depend on when
    somebody validates. Without one: the time since it was loaded.
    """
    if survey.newest_load is None:
        return {}
    loaded = _utc(survey.newest_load)
    event = _utc(survey.newest_event) if survey.newest_event else ledger.newest_event()
    age = loaded - event if event else datetime.now(UTC) - loaded
    return {
        "newest_event": event.isoformat() if event else None,
        "newest_load": loaded.isoformat(),
        "age_seconds": age.total_seconds(),
        "limit_seconds": limit,
    }


def _utc(moment: datetime) -> datetime:
    """A time as PySpark hands it over (without a zone, in the driver's local time)."""
    return moment.astimezone(UTC)


def _span(changes: Changes) -> str:
    return f"{'start' if changes.from_version is None else changes.from_version} to {changes.to_version}"
