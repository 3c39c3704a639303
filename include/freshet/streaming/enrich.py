"""The enrich run: it holds the lease, lets Spark cut the stream into micro-batches, and loads each."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from freshet.config import Definition
from freshet.errors import FreshetError, LoadStateError
from freshet.home import LoadHome
from freshet.streaming import sources
from freshet.streaming.batch import BatchLoader, Listener
from freshet.streaming.checkpoint import BatchInput, Checkpoint
from freshet.streaming.lease import Lease, held_lease
from freshet.streaming.plan import Plan, batch_sections, read_plan, stream_id
from freshet.streaming.planning import Planner
from freshet.streaming.rows import fact_schema
from freshet.streaming.session import build_session
from freshet.streaming.tables import LoadTables, check_fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class EnrichOptions:
    """How long to run, and what to override of the definition."""

    algorithm: str | None = None
    memory: int | None = None
    run_for: float | None = None
    """Seconds after which no further batch is begun; None: until stopped, or until idle."""
    until_idle: bool = False
    max_files: int | None = None


@dataclass
class EnrichResult:
    """What a run loaded."""

    batches: int = 0
    rows_in: int = 0
    facts: int = 0
    parked: int = 0
    seconds: float = 0.0

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
        deadline = started + options.run_for if options.run_for else None
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

    def go(self) -> None:
        check_fit(self.checkpoint, LoadTables(self.definition), self.stream_id)
        self._finish_pending()
        planner = self._planner(self.definition, sources.split_settings(self.spark))
        self._create_tables(planner)
        while not self.stop.due():
            loaded = self._stream(planner)
            if self.options.until_idle and not loaded:
                break
        if self.stop.lease is not None and self.stop.lease.lost:
            raise LoadStateError(
                f"Another driver has taken load {self.definition.load!r} over; this one stops."
            )

    def _finish_pending(self) -> None:
        """Run a batch that was begun under another definition, or with other splits, as it was planned."""
        pending = self.checkpoint.pending()
        plan = read_plan(self.definition.load, pending) if pending is not None else None
        if plan is None or not self._differs(plan):
            return
        self.report(
            f"batch {plan.batch} was begun under an earlier definition or set-up and is finished under it"
        )
        planner = self._planner(plan.load_definition(), plan.splits)
        self._create_tables(planner)
        self._stream(planner, only_one=True)

    def _differs(self, plan: Plan) -> bool:
        return batch_sections(plan.definition) != batch_sections(self.definition.as_dict()) or dict(
            plan.splits
        ) != sources.split_settings(self.spark)

    def _create_tables(self, planner: Planner) -> None:
        plan = planner.propose(batch=0, batch_input=BatchInput((), ""))
        schema = fact_schema(self.spark, planner.definition, plan)
        LoadTables(planner.definition).create(self.spark, schema)

    def _planner(self, definition: Definition, splits: Mapping[str, str]) -> Planner:
        return Planner(
            definition,
            self.stream_id,
            splits,
            time_zone=str(self.spark.conf.get("spark.sql.session.timeZone")),
            algorithm=self.options.algorithm,
            memory=self.options.memory,
        )

    def _stream(self, planner: Planner, only_one: bool = False) -> int:
        """Run the streaming query once; the number of batches it loaded comes back."""
        for name, value in planner.splits.items():
            self.spark.conf.set(name, value)
        return Query(self, BatchLoader(self.spark, planner, self.listener), only_one).run()


class Query:
    """One start of Spark's streaming query."""

    def __init__(self, run: Run, loader: BatchLoader, only_one: bool) -> None:
        self.run_ = run
        self.loader = loader
        self.only_one = only_one
        self.loaded = 0
        self.busy = False
        self.error: Exception | None = None

    def run(self) -> int:
        query = self._start(self.loader.definition)
        try:
            while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                if self._over() and not self.busy:
                    query.stop()
        except Exception as error:
            self._explain(error)
        return self.loaded

    def _start(self, definition: Definition) -> StreamingQuery:
        options = self.run_.options
        max_files = options.max_files or definition.stream.max_files_per_batch
        frame = sources.read_stream(self.run_.spark, definition, max_files)
        writer = frame.writeStream.foreachBatch(self._load).option(
            "checkpointLocation", str(self.run_.checkpoint.folder)
        )
        if options.until_idle or self.only_one:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{definition.stream.trigger_interval} seconds").start()

    def _load(self, frame: DataFrame, batch: int) -> None:
        self.busy = True
        try:
            if self._over():
                raise StopRequested
            row = self.loader.load(frame, batch)
        except Exception as error:
            self.error = error
            raise
        finally:
            self.busy = False
        self.loaded += 1
        self.run_.result.count(row)
        self.run_.report(describe(row))

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
        if "CONCURRENT_STREAM_LOG_UPDATE" in str(error):
            raise LoadStateError(
                f"Another driver works on the checkpoint {self.run_.checkpoint.folder}; this one stops. "
                "Nothing is lost: the other one goes on, or run enrich again."
            ) from error
        raise self.error or error


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
