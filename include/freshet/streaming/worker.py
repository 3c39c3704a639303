"""What runs in Spark's Python workers: positions, checks and lookups of one partition of a batch.

    records of a partition ─► number ─► check ─► lookup 1 ─► lookup 2 ─► … ─► facts
                                          │          │           │
                                          └──────────┴───────────┴──────────► parked / refused
                                                                              one row of statistics

Join operators stay warm between micro-batches: a worker keeps one for each lookup, as long as it is
asked for the same snapshot and settings. That is a cache, never the truth: everything a batch depends
on comes with its task.
"""

from __future__ import annotations

import decimal
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.config.types import is_nested
from freshet.joins import registry
from freshet.joins.base import JoinOperator, JoinOutput
from freshet.master.snapshot import open_snapshot
from freshet.memory import Budget
from freshet.streaming import records
from freshet.streaming.csv_lines import CsvFormat
from freshet.streaming.records import BROKEN, SOUND, Fault, nested_fault

FACT, PARKED, REFUSED, STATS = range(4)
"""What a row of the output is: a fact, a parked record, one that its lookup's `fail` refuses, statistics."""

META_FIELDS = [
    pa.field("_raw", pa.string()),
    pa.field("_file", pa.string()),
    pa.field("_block", pa.int64()),
    pa.field("_row", pa.int64()),
    pa.field("_kind", pa.int8()),
    pa.field("_reason", pa.string()),
    pa.field("_lookup", pa.string()),
    pa.field("_key", pa.string()),
    pa.field("_detail", pa.string()),
    pa.field("_stats", pa.string()),
]
"""The columns of the output besides those of the stream and of the lookups."""


@dataclass(frozen=True)
class LookupTask:
    """One lookup as a worker must do it."""

    name: str
    stream_key: str
    key_may_be_null: bool
    """Whether a null key was left by an earlier lookup (then it is unmatched, not bad)."""
    add: Mapping[str, str]
    defaults: Mapping[str, Any]
    unmatched: str
    snapshot: str
    version: int
    algorithm: str
    memory: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class PartitionTask:
    """What a worker must know to enrich a partition of a batch."""

    load: str
    format: str
    columns: Mapping[str, str]
    event_id: str
    csv: CsvFormat
    """Of no meaning for other formats."""
    lookups: tuple[LookupTask, ...]
    schema: pa.Schema
    """Of the output."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return Partition(self).enrich(batches)


@dataclass
class WarmOperator:
    """A join kept between micro-batches, with what it was made for."""

    made_for: LookupTask
    join: JoinOperator


_warm: dict[tuple[str, str], WarmOperator] = {}

_Stage = Iterator[pa.RecordBatch | None]
"""What a stage hands to the next: records, or None so that what was parked leaves the worker meanwhile."""


@dataclass
class Partition:
    """One partition of one batch on its way through a worker."""

    task: PartitionTask
    rows_in: int = 0
    parked: list[pa.RecordBatch] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    """Files whose header has been seen."""
    stats: dict[str, Any] = field(default_factory=dict)

    def enrich(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbered = _numbered_rows(batches) if self.task.format == "parquet" else _numbered_lines(batches)
        stream = self._checked(numbered)
        for lookup in self.task.lookups:
            stream = self._looked_up(stream, lookup)
        for batch in stream:
            if batch is not None:
                yield self._output(batch, FACT)
            yield from self._take_parked()
        yield from self._take_parked()
        yield self._statistics()

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> _Stage:
        """Let sound records through; park the others with what is wrong with them."""
        for numbered in batches:
            batch = self._without_non_records(numbered)
            self.rows_in += batch.num_rows
            batch = self._without_broken(batch)
            yield self._without_nulls(batch, self.task.event_id, records.NULL_EVENT_ID)

    def _without_non_records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop what is no record: blank lines and header lines."""
        drop = np.zeros(batch.num_rows, dtype=bool)
        doubtful = batch["_suspect"].to_numpy() != SOUND  # blank lines are, unless blanks separate the fields
        if doubtful.any():
            drop |= doubtful & _mask(pc.equal(pc.ascii_trim_whitespace(batch["_raw"]), ""))
        if self.task.csv.header:
            drop[self._header_lines(batch)] = True
        return batch.filter(pa.array(~drop)) if drop.any() else batch

    def _header_lines(self, batch: pa.RecordBatch) -> list[int]:
        """Where the batch has the header of a file: the file's first line that is not blank."""
        found = []
        for start, end in _runs(batch):
            file = batch["_file"][start].as_py()
            if batch["_block"][start].as_py() or file in self.begun:
                continue
            lines = pc.ascii_trim_whitespace(batch["_raw"].slice(start, end - start))
            written = np.flatnonzero(_mask(pc.not_equal(lines, "")))
            if len(written):
                self.begun.add(file)
                found.append(start + int(written[0]))
        return found

    def _without_broken(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        trust = batch["_suspect"].to_numpy()
        suspect = np.flatnonzero(trust != SOUND)
        batch = batch.drop_columns(["_suspect"])
        if not len(suspect):
            return batch
        faults = self._faults(batch.take(pa.array(suspect)), trust[suspect] == BROKEN)
        broken = [(int(row), fault) for row, fault in zip(suspect, faults, strict=True) if fault]
        if not broken:
            return batch
        rows = pa.array([row for row, _ in broken])
        bad = batch.take(rows)
        self._park(
            bad.set_column(
                bad.schema.get_field_index("_raw"), "_raw", pa.array(_texts(bad["_raw"]), pa.string())
            ),
            _reason=pa.array([fault.reason for _, fault in broken]),
            _detail=pa.array([fault.detail for _, fault in broken]),
        )
        return _without_rows(batch, rows.to_numpy())

    def _faults(self, suspects: pa.RecordBatch, broken: np.ndarray[Any, Any]) -> list[Fault | None]:
        """What is wrong with each suspect record, told from its text and the columns that parsed to null."""
        nulls = {name: _mask(pc.is_null(suspects[name])) for name in self.task.columns}
        nested = {name: ddl for name, ddl in self.task.columns.items() if is_nested(ddl)}
        faults = []
        for row, raw in enumerate(suspects["_raw"].cast(pa.binary()).to_pylist()):
            missing = [name for name, is_null in nulls.items() if is_null[row]]
            fault = self._fault(raw, missing, parsed=not broken[row])
            # Inside a nested column Spark leaves out what does not fit, and only says that something did not.
            faults.append(nested_fault(nested) if fault is None and nested and broken[row] else fault)
        return faults

    def _fault(self, raw: bytes, nulls: list[str], parsed: bool) -> Fault | None:
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            return Fault(records.MALFORMED, f"not UTF-8: {error}")
        if self.task.format == "json":
            return records.json_fault(text, self.task.columns, nulls, parsed)
        return records.csv_fault(text, self.task.columns, nulls, self.task.csv)

    def _without_nulls(
        self, batch: pa.RecordBatch, column: str, reason: str, lookup: str | None = None
    ) -> pa.RecordBatch:
        if not batch[column].null_count:
            return batch
        rows = np.flatnonzero(_mask(pc.is_null(batch[column])))
        self._park(batch.take(pa.array(rows)), _reason=reason, _lookup=lookup, _detail=f"{column} is null")
        return _without_rows(batch, rows)

    def _looked_up(self, batches: _Stage, lookup: LookupTask) -> _Stage:
        """One lookup: matched records go on with their new columns, the others as its policy says."""
        join = self._take_warm(lookup)
        seconds = _Stopwatch()
        for batch in batches:
            if batch is not None:
                if not lookup.key_may_be_null:
                    batch = self._without_nulls(batch, lookup.stream_key, records.NULL_KEY, lookup.name)
                yield from self._apply(seconds.timed(join.push(batch, batch[lookup.stream_key])), lookup)
            yield None  # perhaps all of the batch was parked
        yield from self._apply(seconds.timed(join.drain()), lookup)
        self.stats[lookup.name] = {**asdict(join.take_stats()), "wall": seconds.total}
        _warm[self.task.load, lookup.name] = WarmOperator(lookup, join)

    def _apply(self, outputs: Iterator[JoinOutput], lookup: LookupTask) -> _Stage:
        for output in outputs:
            if output.master is not None:
                yield self._with_master(output.stream, output.master, lookup)
            elif lookup.unmatched == "keep":
                yield self._with_defaults(output.stream, lookup)
            else:
                self._park(
                    output.stream,
                    kind=PARKED if lookup.unmatched == "park" else REFUSED,
                    _reason=records.UNMATCHED,
                    _lookup=lookup.name,
                    _key=output.stream[lookup.stream_key].cast(pa.string()),
                )
                yield None

    def _take_warm(self, lookup: LookupTask) -> JoinOperator:
        """The lookup's operator, warm if it was made for just this; it comes back when the partition is done.

        It is taken out meanwhile, so that a failed task leaves no operator with waiting tuples behind.
        """
        warm = _warm.pop((self.task.load, lookup.name), None)
        if warm and warm.made_for == lookup:
            return warm.join
        del warm  # before its successor is made, so that both never hold their memory at once
        store = open_snapshot(Path(lookup.snapshot), list(dict.fromkeys(lookup.add.values())))
        budget = Budget(lookup.memory, f"lookup {lookup.name}")
        return registry.create(lookup.algorithm, store, budget, lookup.settings)

    def _with_master(
        self, stream: pa.RecordBatch, master: pa.RecordBatch, lookup: LookupTask
    ) -> pa.RecordBatch:
        added = {new: self._typed(new, master[old]) for new, old in lookup.add.items()}
        return _with_columns(stream, added)

    def _with_defaults(self, stream: pa.RecordBatch, lookup: LookupTask) -> pa.RecordBatch:
        added = {
            new: pa.repeat(
                typed_default(lookup.defaults.get(new), self.task.schema.field(new).type), stream.num_rows
            )
            for new in lookup.add
        }
        return _with_columns(stream, added)

    def _typed(self, name: str, column: pa.Array) -> pa.Array:
        wanted = self.task.schema.field(name).type
        return column if column.type == wanted else column.cast(wanted)

    def _park(self, batch: pa.RecordBatch, kind: int = PARKED, **why: Any) -> None:
        if batch.num_rows:
            self.parked.append(self._output(batch, kind, **why))

    def _take_parked(self) -> list[pa.RecordBatch]:
        parked, self.parked = self.parked, []
        return parked

    def _output(self, batch: pa.RecordBatch, kind: int, **why: Any) -> pa.RecordBatch:
        """The batch in the shape of the output; columns it does not have are null."""
        rows = batch.num_rows
        given = {"_kind": pa.repeat(pa.scalar(kind, pa.int8()), rows), **why}
        columns = []
        for target in self.task.schema:
            value = batch[target.name] if target.name in batch.schema.names else given.get(target.name)
            if not isinstance(value, pa.Array):
                value = pa.repeat(pa.scalar(value, target.type), rows)
            columns.append(value)
        return pa.RecordBatch.from_arrays(columns, schema=self.task.schema)

    def _statistics(self) -> pa.RecordBatch:
        text = json.dumps({"rows_in": self.rows_in, "lookups": self.stats})
        return self._output(pa.record_batch({"_stats": [text]}), STATS)


def typed_default(value: Any, wanted: pa.DataType) -> pa.Scalar:
    """A value of `defaults` as its column has it; ValueError when it cannot be."""
    try:
        if pa.types.is_decimal(wanted) and isinstance(value, (int, float, str)):
            return pa.scalar(decimal.Decimal(str(value)), wanted)
        return pa.scalar(value).cast(wanted)  # unlike making it of that type, a cast never cuts a number off
    except (pa.ArrowException, ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from error


def _numbered_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parquet batches with `_row`: they come with each row's number in its file."""
    for batch in batches:
        yield batch.append_column("_row", batch["_block"])


def _numbered_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Text batches with `_row`, each line's number in its split."""
    counted: dict[tuple[str, int], int] = {}
    for batch in batches:
        numbers = np.empty(batch.num_rows, dtype=np.int64)
        for start, end in _runs(batch):
            split = (batch["_file"][start].as_py(), batch["_block"][start].as_py())
            first = counted.get(split, 0)
            numbers[start:end] = np.arange(first, first + end - start)
            counted[split] = first + end - start
        yield batch.append_column("_row", pa.array(numbers))


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """The stretches of a batch that come from one split of one file."""
    if not batch.num_rows:
        return
    changes = pc.or_(*(pc.not_equal(batch[name][1:], batch[name][:-1]) for name in ("_file", "_block")))
    starts = [0, *(np.flatnonzero(_mask(changes)) + 1)]
    yield from zip(starts, [*starts[1:], batch.num_rows], strict=True)


def _with_columns(batch: pa.RecordBatch, added: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *added.values()], names=[*batch.schema.names, *added])


def _without_rows(batch: pa.RecordBatch, rows: np.ndarray[Any, Any]) -> pa.RecordBatch:
    keep = np.ones(batch.num_rows, dtype=bool)
    keep[rows] = False
    return batch.filter(pa.array(keep))


def _mask(values: pa.Array) -> np.ndarray[Any, Any]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)


def _texts(raw: pa.Array) -> list[str]:
    """Raw records as text that any reader of the parked table can read: other bytes become escapes."""
    return [value.decode(errors="backslashreplace") for value in raw.cast(pa.binary()).to_pylist()]


class _Stopwatch:
    """Seconds spent inside an iterator, without those of its consumer."""

    def __init__(self) -> None:
        self.total = 0.0

    def timed(self, items: Iterator[JoinOutput]) -> Iterator[JoinOutput]:
        while True:
            start = time.perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.total += time.perf_counter() - start
            yield item
