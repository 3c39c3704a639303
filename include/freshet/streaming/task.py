"""The task of a micro-batch's workers, made from its plan.

Everything that could make a lookup impossible is found here, on the driver, and so before a plan is fixed:
a snapshot that is damaged or of other columns, keys that do not fit, too little memory, defaults of a wrong
type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from freshet.config import Definition, Lookup, Problem, definition_file, format_bytes, refused_in_use
from freshet.config.types import to_arrow, to_ddl
from freshet.errors import BudgetError, DefinitionError, FreshetError, MasterError, SnapshotError
from freshet.joins import registry
from freshet.master.manifest import Manifest
from freshet.master.snapshot import open_snapshot, snapshot_path
from freshet.memory import Budget
from freshet.streaming.csv_lines import CsvFormat
from freshet.streaming.plan import Plan
from freshet.streaming.worker import META_FIELDS, LookupTask, PartitionTask, typed_default


def partition_task(definition: Definition, plan: Plan) -> PartitionTask:
    """What the workers must know of a batch, all of it from the plan; refused when it cannot be done."""
    stream = definition.stream
    types = {name: to_arrow(ddl) for name, ddl in stream.columns.items()}
    lookups = []
    for position, lookup in enumerate(definition.lookups):
        task = _lookup_task(definition, lookup, plan)
        master = _master_schema(_Use.of(definition, position, task, types[lookup.stream_key]))
        # The type by way of Spark's name for it: what Arrow has and Spark has not is cast to what Spark has.
        types |= {new: to_arrow(to_ddl(master.field(old).type)) for new, old in lookup.add.items()}
        _check_defaults(definition, position, types)
        lookups.append(task)
    return PartitionTask(
        load=definition.load,
        format=stream.format,
        columns=stream.columns,
        event_id=stream.event_id,
        csv=CsvFormat.of(stream.options),
        lookups=tuple(lookups),
        schema=pa.schema([*(pa.field(name, kind) for name, kind in types.items()), *META_FIELDS]),
    )


def _lookup_task(definition: Definition, lookup: Lookup, plan: Plan) -> LookupTask:
    algorithm = plan.algorithms[lookup.name]
    version = plan.snapshots[lookup.name]
    # The settings of one join mean nothing to another that a run was asked to use instead.
    is_its_own = algorithm == registry.join_type(lookup.algorithm).name
    return LookupTask(
        name=lookup.name,
        stream_key=lookup.stream_key,
        key_may_be_null=lookup.stream_key not in definition.stream.columns,
        add=lookup.add,
        defaults=lookup.defaults,
        unmatched=lookup.unmatched,
        snapshot=str(snapshot_path(definition.load, lookup.name, version)),
        version=version,
        algorithm=algorithm,
        memory=plan.memory[lookup.name],
        settings=lookup.settings if is_its_own else {},
    )


@dataclass(frozen=True)
class _Use:
    """How a lookup wants to use a snapshot; hashable, so that each use is checked once."""

    load: str
    lookup: str
    snapshot: Path
    source: tuple[tuple[str, str | None], ...]
    """Connection, table and key of the definition."""
    columns: tuple[str, ...]
    stream_key: str
    key_type: pa.DataType
    algorithm: str
    memory: int
    settings: str
    definition: Definition = field(compare=False, repr=False)
    position: int = field(compare=False)
    """Of the lookup in the definition."""

    @classmethod
    def of(cls, definition: Definition, position: int, task: LookupTask, key_type: pa.DataType) -> _Use:
        lookup = definition.lookups[position]
        return cls(
            load=definition.load,
            lookup=lookup.name,
            snapshot=Path(task.snapshot),
            source=(("connection", lookup.connection), ("table", lookup.table), ("key", lookup.key)),
            columns=tuple(dict.fromkeys(lookup.add.values())),
            stream_key=lookup.stream_key,
            key_type=key_type,
            algorithm=task.algorithm,
            memory=task.memory,
            settings=json.dumps(task.settings, sort_keys=True),
            definition=definition,
            position=position,
        )

    def place(self, name: str) -> str:
        """A field of the lookup, with the file that it stands in."""
        file = definition_file(self.definition)
        return f"{f'{file}: ' if file else ''}load {self.load!r}, field {name} of lookup {self.lookup!r}"

    def refused(self, name: str, what: str, remedy: str, value: Any) -> DefinitionError:
        problem = Problem(("lookups", self.position, name), what, remedy, value=value)
        return refused_in_use(self.definition, problem)


@lru_cache(maxsize=64)
def _master_schema(use: _Use) -> pa.Schema:
    """The columns of a snapshot, once it is known that the lookup can be done with it."""
    store = open_snapshot(use.snapshot, list(use.columns), full=True)
    _check_source(use, store.manifest)
    try:
        store.locate(pa.array([], use.key_type))
    except MasterError as error:
        remedy = "Name a column of the same kind"
        raise use.refused("stream_key", str(error), remedy, use.stream_key) from None
    try:
        registry.create(use.algorithm, store, Budget(use.memory, use.lookup), json.loads(use.settings))
    except BudgetError as error:
        raise _too_little(use, error) from None
    return store.schema


def _too_little(use: _Use, error: BudgetError) -> FreshetError:
    """The error for a budget that is too small, be it the definition's or the run's own."""
    if use.memory != use.definition.lookups[use.position].memory:
        return BudgetError(f"The run's own memory for lookup {use.lookup!r}: {error}")
    remedy = "Write that much or more, such as 64MB"
    return use.refused("memory", str(error).rstrip("."), remedy, format_bytes(use.memory))


def _check_source(use: _Use, manifest: Manifest) -> None:
    """Refuse a snapshot of another table or by another key than the definition names now."""
    known: Mapping[str, Any] = {**manifest.watermark, "key": manifest.key}
    for name, wanted in use.source:
        if name in known and known[name] != wanted:
            raise SnapshotError(
                f"{use.place(name)} is {wanted!r}, but the newest snapshot {use.snapshot} was made with "
                f"{known[name]!r}. Publish a new one with `freshet sort {use.load}`."
            )


def _check_defaults(definition: Definition, position: int, types: Mapping[str, pa.DataType]) -> None:
    for name, value in definition.lookups[position].defaults.items():
        try:
            typed_default(value, types[name])
        except ValueError as error:
            place = ("lookups", position, "defaults", name)
            what = f"no {to_ddl(types[name])} ({error})"
            problem = Problem(place, what, "Write a value of that type, or null", value=value)
            raise refused_in_use(definition, problem) from None


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema in Spark's types."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
