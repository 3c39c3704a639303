"""The enrich run: it holds the lease, lets Spark cut the stream into micro-batches, and loads each."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshet.config import Definition
from freshet.config.models import LARGEST_SIZE, LONGEST_TIME, MOST_FILES
from freshet.config.units import SIZE_REMEDY, TIME_REMEDY, format_bytes
from freshet.errors import DISK_FULL, BatchError, FreshetError, LoadStateError, disk_is_full
from freshet.home import LoadHome, local_path, resolve
from freshet.joins.registry import join_type
from freshet.streaming import sources
from freshet.streaming.batch import BatchLoader, Listener
from freshet.streaming.checkpoint import NONE, BatchInput, Checkpoint
from freshet.streaming.lease import Lease, held_lease
from freshet.streaming.ledger import written_row
from freshet.streaming.partitions import check_partitions
from freshet.streaming.patterns import check_patterns
from freshet.streaming.plan import Plan, plan_file, read_plan, stream_id
from freshet.streaming.planning import Planner
from freshet.streaming.rows import fact_schema
from freshet.streaming.session import build_session
from freshet.streaming.tables import LoadTables, carrying, check_fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2
LEAST_MEMORY = 1024
TIME_ZONE = "spark.sql.session.timeZone"
SMALL_BATCHES = {"spark.sql.adaptive.enabled": "false"}
"""Planning a query anew between its stages costs a micro-batch more than it can gain."""
OTHER_DRIVER = (
    "Multiple streaming jobs detected",
    "SparkConcurrentModificationException",
    "Multiple streaming queries are concurrently using",
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
)
"""What Spark says when another query writes the same checkpoint: its logs, its start, its list of files, and
its first batch when the other one's came in this moment."""
WORKER_ERROR = re.compile(r"^freshet\.errors\.\w+: (.+?)\.?$", re.MULTILINE)
"""An error for people, raised in a Python worker, in the text of the error that Spark makes of it."""


@dataclass(frozen=True)
class EnrichOptions:
    """How long to run, and what to override of the definition."""

    algorithm: str | None = None
    memory: int | None = None
    run_for: float | None = None
    """Seconds after which no further batch is begun; None: until stopped, or until idle."""
    until_idle: bool = False
    max_files: int | None = None
    trigger_interval: float | None = None
    """Seconds between the starts of two micro-batches."""

    def __post_init__(self) -> None:
        self._check_times()
        self._check_sizes()
        if self.algorithm is not None:
            join_type(self.algorithm)

    def _check_times(self) -> None:
        if self.run_for is not None and self.run_for <= 0:
            raise FreshetError(f"A run for {self.run_for:g} s would load nothing. {TIME_REMEDY}.")
        for name, seconds in (("A run for", self.run_for), ("A trigger interval of", self.trigger_interval)):
            if seconds is not None and not 0 <= seconds <= LONGEST_TIME:
                most = f"{LONGEST_TIME / 86400:.0f}d"
                raise FreshetError(f"{name} {seconds:g} s is not between 0 and {most}. {TIME_REMEDY}.")

    def _check_sizes(self) -> None:
        if self.memory is not None and self.memory < LEAST_MEMORY:
            raise FreshetError(f"{self.memory} bytes of memory are less than 1KB. {SIZE_REMEDY}.")
        if self.memory is not None and self.memory > LARGEST_SIZE:
            most = format_bytes(LARGEST_SIZE)
            raise FreshetError(f"{self.memory} bytes of memory are more than {most}. {SIZE_REMEDY}.")
        if self.max_files is not None and self.max_files < 1:
            raise FreshetError(
                f"A micro-batch of {self.max_files} files would load nothing. Write 1 or more."
            )
        if self.max_files is not None and self.max_files > MOST_FILES:
            raise FreshetError(
                f"{self.max_files} files are too many for a micro-batch. Write {MOST_FILES} or less."
            )


@dataclass
class EnrichResult:
    """What a run loaded."""

    batches: int = 0
    rows_in: int = 0
    facts: int = 0
    parked: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.batches:,} batches, {self.rows_in:,} records in, {self.facts:,} facts, "
            f"{self.parked:,} parked, {self.seconds:.1f} s"
        )

    def count(self, row: Mapping[str, Any]) -> None:
        self.batches += 1
        self.rows_in += row["rows_in"]
        self.facts += row["facts"]
        self.parked += row["parked"]


class StopRequested(Exception):  # noqa: N818 - a signal, not an error
    """Raised inside a micro-batch that must not begin: Spark plans it again at the next start."""


@dataclass
class Stop:
    """When a run is over; asked between two micro-batches."""

    deadline: float | None = None
    lease: Lease | None = None
    asked: threading.Event = field(default_factory=threading.Event)

    def due(self) -> bool:
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or self.asked.is_set() or (self.lease is not None and self.lease.lost)


def enrich(
    definition: Definition,
    options: EnrichOptions,
    spark: SparkSession | None = None,
    report: Callable[[str], None] = print,
    listener: Listener = lambda step, batch: None,
    with_lease: bool = True,
) -> EnrichResult:
    """Load the stream until idle, for a time, or until SIGTERM; no micro-batch is cut short."""
    started = time.monotonic()
    lease_or_not = held_lease(definition.load, waiting=report) if with_lease else nullcontext()
    with lease_or_not as lease:
        spark = spark or build_session(f"freshet enrich {definition.load}")
        deadline = started + options.run_for if options.run_for is not None else None
        run = Run(spark, definition, options, Stop(deadline, lease), report, listener)
        with _stop_on_sigterm(run.stop):
            run.go()
    run.result.seconds = time.monotonic() - started
    return run.result


class Run:
    """One run of the enrich job."""

    def __init__(
        self,
        spark: SparkSession,
        definition: Definition,
        options: EnrichOptions,
        stop: Stop,
        report: Callable[[str], None],
        listener: Listener,
    ) -> None:
        self.spark = spark
        self.definition = definition
        self.options = options
        self.stop = stop
        self.report = report
        self.listener = listener
        self.stream_id = stream_id(definition.load)
        self.checkpoint = Checkpoint(LoadHome(definition.load).checkpoint)
        self.result = EnrichResult()
        self._fitting: Mapping[str, int] | None = None
        """Snapshots whose columns the fact table is known to take."""

    def go(self) -> None:
        check_fit(self.checkpoint, LoadTables(self.definition), self.stream_id)
        if self.stop.lease is not None:  # or it could be another driver's that writes in this moment
            self.checkpoint.sweep()
        time_zone = str(self.spark.conf.get(TIME_ZONE))
        planner = self._planner(self.definition, sources.split_settings(self.spark), time_zone)
        self._finish_pending(planner)
        self._check_folder()
        if not self.stop.due():
            check_patterns(self.spark, self.definition)
            self._create_tables(planner.definition, planner.propose(0, BatchInput((), "")))
        while not self.stop.due():
            loaded = self._stream(planner)
            if self.options.until_idle and not loaded:
                break
        if self.stop.lease is not None and self.stop.lease.lost:
            raise LoadStateError(
                f"Another driver has taken load {self.definition.load!r} over, or the lease "
                f"{self.stop.lease.file} could not be renewed in time; this one stops. Nothing is lost: the "
                "other one goes on, or run enrich again."
            )

    def _finish_pending(self, planner: Planner) -> None:
        """Run a batch that was begun under another definition, or with other settings, as it was planned."""
        pending = self.checkpoint.pending()
        if pending is None:
            return
        plan = read_plan(self.definition.load, pending)
        if plan is None:
            self._refuse_if_written(pending)
            return
        if planner.fits(plan) or written_row(LoadTables(self.definition).batches, self.stream_id, pending):
            return
        self.report(
            f"batch {plan.batch} was begun under an earlier definition or set-up and is finished under it"
        )
        as_planned = self._planner(plan.load_definition(), plan.splits, plan.time_zone)
        self._create_tables(as_planned.definition, plan)
        self._stream(as_planned, only_one=True)
        # The batch may have gone to a table that the definition names no longer.
        check_fit(self.checkpoint, LoadTables(self.definition), self.stream_id)

    def _check_folder(self) -> None:
        """Refuse another folder than the one that the checkpoint has files of: Spark cannot go on in it."""
        last = self.checkpoint.planned()
        folder = Path(os.path.normpath(resolve(self.definition.stream.path)))
        files = self.checkpoint.batch_input(last).files if last > NONE else ()
        elsewhere = next((file for file in files if not local_path(file).is_relative_to(folder)), None)
        if elsewhere:
            load = self.definition.load
            raise LoadStateError(
                f"The stream of load {load!r} reads the folder {folder} (stream.path), but batch {last} was "
                f"loaded from {local_path(elsewhere)}, and the checkpoint goes on there only. Put it back "
                f"and new files there; or empty the load with `freshet reset {load}`, and the new folder is "
                "read from the start."
            )

    def _refuse_if_written(self, batch: int) -> None:
        """Refuse to plan a batch anew that was written, in part, under a plan that is gone."""
        load = self.definition.load
        written = carrying(load, self.stream_id, batch)
        # Another driver may have planned and written it in this moment.
        if written and read_plan(load, batch) is None:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} is in {', '.join(written)}, but its plan "
                f"{plan_file(load, batch)} is gone: under another one records would be lost or doubled. "
                f"Restore it, or empty the load and read the stream again with `freshet reset {load}`."
            )

    def _create_tables(self, definition: Definition, plan: Plan) -> None:
        facts = fact_schema(self.spark, definition, plan)
        check_partitions(definition, facts)
        LoadTables(definition).create(self.spark, facts)
        self._fitting = plan.snapshots

    def _check_columns(self, definition: Definition, plan: Plan) -> None:
        """Refuse a plan whose facts the table cannot take: newer snapshots may have other types."""
        if plan.snapshots != self._fitting:
            LoadTables(definition).check_columns(fact_schema(self.spark, definition, plan))
            self._fitting = plan.snapshots

    def _planner(self, definition: Definition, splits: Mapping[str, str], time_zone: str) -> Planner:
        return Planner(
            definition,
            self.stream_id,
            splits,
            time_zone=time_zone,
            algorithm=self.options.algorithm,
            memory=self.options.memory,
            check=partial(self._check_columns, definition),
        )

    def _stream(self, planner: Planner, only_one: bool = False) -> int:
        """Run the streaming query once; the number of batches it loaded comes back."""
        for name, value in {**planner.splits, **SMALL_BATCHES, TIME_ZONE: planner.time_zone}.items():
            self.spark.conf.set(name, value)
        return Query(self, BatchLoader(self.spark, planner, self.listener), only_one).run()


class Query:
    """One start of Spark's streaming query."""

    def __init__(self, run: Run, loader: BatchLoader, only_one: bool) -> None:
        self.run_ = run
        self.loader = loader
        self.only_one = only_one
        self.loaded = 0
        self.begun: int | None = None
        """The last batch that was begun."""
        self.error: Exception | None = None

    def run(self) -> int:
        try:
            query = self._start(self.loader.definition)
            while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                if self._over() and self._between_batches():
                    query.stop()
        except Exception as error:
            self._explain(error)
        return self.loaded

    def _start(self, definition: Definition) -> StreamingQuery:
        options = self.run_.options
        frame = sources.read_stream(self.run_.spark, definition, options.max_files)
        writer = frame.writeStream.foreachBatch(self._load).option(
            "checkpointLocation", str(self.run_.checkpoint.folder)
        )
        if options.until_idle or self.only_one:
            return writer.trigger(availableNow=True).start()
        interval = options.trigger_interval
        seconds = definition.stream.trigger_interval if interval is None else interval
        return writer.trigger(processingTime=spark_interval(seconds)).start()

    def _load(self, frame: DataFrame, batch: int) -> None:
        try:
            if self._over():
                raise StopRequested
            self.begun = batch
            row = self.loader.load(frame, batch)
        except Exception as error:
            self.error = error
            raise
        self.loaded += 1
        self.run_.result.count(row)
        self.run_.report(describe(row))

    def _between_batches(self) -> bool:
        """Whether Spark has committed what was begun: stopped before that, it would run the batch again."""
        return self.begun is None or self.run_.checkpoint.committed() >= self.begun

    def _over(self) -> bool:
        return self.run_.stop.due() or (self.only_one and self.loaded > 0)

    def _explain(self, error: Exception) -> None:
        """Raise what really ended the query: Spark wraps the error of a micro-batch in its own."""
        from py4j.protocol import Py4JNetworkError

        if isinstance(self.error, StopRequested):
            return
        if isinstance(self.error, FreshetError):
            raise self.error from None
        if isinstance(error, (Py4JNetworkError, ConnectionError)):
            raise FreshetError("Spark's JVM has ended. Nothing is lost: run enrich again.") from error
        if any(sign in str(error) for sign in OTHER_DRIVER):
            raise LoadStateError(
                f"Another driver works on the checkpoint {self.run_.checkpoint.folder}; this one stops. "
                "Nothing is lost: the other one goes on, or run enrich again."
            ) from error
        if disk_is_full(error):
            raise FreshetError(f"{DISK_FULL}: nothing is lost.") from error
        told = WORKER_ERROR.search(str(error))
        if told:
            raise BatchError(
                f"{told[1]}. Put it right and run enrich again; if the batch cannot succeed under its plan, "
                f"`freshet replan {self.run_.definition.load}` lets it get a new one."
            ) from error
        raise self.error or error


def spark_interval(seconds: float) -> str:
    """A trigger's time as Spark reads it: in whole milliseconds, as it takes no more than nine decimals."""
    return f"{round(seconds * 1000)} milliseconds"


def describe(row: Mapping[str, Any]) -> str:
    """A ledger row as a line for the log."""
    parked = ", ".join(f"{count:,} {reason}" for reason, count in sorted(row["parked_by_reason"].items()))
    return (
        f"batch {row['batch']}: {row['rows_in']:,} in, {row['facts']:,} facts, {row['parked']:,} parked"
        f"{f' ({parked})' if parked else ''}, {row['seconds']:.2f} s, {row['rate']:,.0f} rows/s"
    )


@contextmanager
def _stop_on_sigterm(stop: Stop) -> Iterator[None]:
    """Let SIGTERM end the run between two micro-batches."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.asked.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
