"""The task of a micro-batch's workers, made from its plan."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from freshet.config import Definition
from freshet.config.types import to_arrow, to_ddl
from freshet.master.snapshot import open_snapshot, snapshot_path
from freshet.streaming import sources
from freshet.streaming.plan import Plan
from freshet.streaming.worker import META_FIELDS, LookupTask, PartitionTask


def partition_task(definition: Definition, plan: Plan, refused_files: frozenset[str]) -> PartitionTask:
    """What the workers must know of a batch, all of it from the plan."""
    stream = definition.stream
    fields = [pa.field(name, to_arrow(ddl)) for name, ddl in stream.columns.items()]
    lookups = []
    for lookup in definition.lookups:
        path = snapshot_path(definition.load, lookup.name, plan.snapshots[lookup.name])
        master = _snapshot_schema(path, tuple(lookup.add.values()))
        # The type by way of Spark's name for it: what Arrow has and Spark has not is cast to what Spark has.
        fields += [pa.field(new, to_arrow(to_ddl(master.field(old).type))) for new, old in lookup.add.items()]
        lookups.append(
            LookupTask(
                name=lookup.name,
                stream_key=lookup.stream_key,
                key_may_be_null=lookup.stream_key not in stream.columns,
                add=lookup.add,
                defaults=lookup.defaults,
                unmatched=lookup.unmatched,
                snapshot=str(path),
                version=plan.snapshots[lookup.name],
                algorithm=plan.algorithms[lookup.name],
                memory=plan.memory[lookup.name],
                settings=lookup.settings,
            )
        )
    return PartitionTask(
        load=definition.load,
        format=stream.format,
        columns=stream.columns,
        event_id=stream.event_id,
        header=sources.has_header(definition),
        delimiter=sources.delimiter(definition),
        refused_files=refused_files,
        lookups=tuple(lookups),
        schema=pa.schema([*fields, *META_FIELDS]),
    )


@lru_cache(maxsize=64)
def _snapshot_schema(path: Path, columns: tuple[str, ...]) -> pa.Schema:
    """The columns of a snapshot, whose files are verified when the driver first takes it up."""
    return open_snapshot(path, list(dict.fromkeys(columns)), full=True).schema


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema in Spark's types."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
