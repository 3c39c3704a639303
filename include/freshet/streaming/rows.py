"""The rows of a joined batch as the fact table and the parked table have them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshet.config import Definition
from freshet.streaming.derive import with_derived
from freshet.streaming.plan import Plan
from freshet.streaming.records import MALFORMED_FILE
from freshet.streaming.task import partition_task, spark_schema
from freshet.streaming.worker import FACT, PARKED

EXACT_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How a row becomes JSON without loss: by default Spark cuts times off behind the milliseconds."""


def fact_schema(spark: SparkSession, definition: Definition, plan: Plan) -> StructType:
    """The columns and types of the fact table under a plan."""
    task = partition_task(definition, plan)
    empty = spark.createDataFrame([], spark_schema(task.schema))
    return fact_rows(with_derived(empty, definition), definition, plan).schema


def kept_columns(joined: DataFrame, definition: Definition) -> DataFrame:
    """What the tables and the ledger need of a joined batch: facts leave raw record and position behind.

    The batch is held in memory until it is written; raw records would be most of what is held.
    """
    stream = definition.stream
    whole = F.to_json(F.struct(*stream.columns), {**EXACT_JSON, "ignoreNullFields": "false"})
    raw = whole if stream.format == "parquet" else F.col("_raw")
    wanted = [*definition.facts.columns, *([stream.event_time] if stream.event_time else [])]
    is_fact = F.col("_kind") == FACT
    return joined.select(
        *dict.fromkeys(wanted),
        *("_kind", "_reason", "_lookup", "_key", "_detail", "_stats"),
        F.when(~is_fact, raw).alias("_raw"),
        *(F.when(~is_fact, F.col(name)).alias(name) for name in ("_file", "_block", "_row")),
    )


def fact_rows(joined: DataFrame, definition: Definition, plan: Plan) -> DataFrame:
    facts = joined.where(F.col("_kind") == FACT).select(*definition.facts.columns)
    return facts.withColumns(_stamp(plan))


def parked_rows(joined: DataFrame, definition: Definition, plan: Plan) -> DataFrame:
    row = F.col("_row").cast("string")
    in_split = F.concat(F.col("_block").cast("string"), F.lit(":"), row)
    position = row if definition.stream.format == "parquet" else in_split
    parked = joined.where(F.col("_kind") == PARKED).select(
        F.concat(F.col("_file"), F.lit("#"), position).alias("id"),
        F.col("_reason").alias("reason"),
        F.col("_lookup").alias("lookup"),
        F.col("_key").alias("key"),
        F.col("_detail").alias("detail"),
        F.col("_file").alias("source_file"),
        position.alias("source_position"),
        F.col("_raw").alias("raw"),
    )
    return parked.withColumns(_stamp(plan))


def _stamp(plan: Plan) -> dict[str, Column]:
    return {
        "_batch": F.lit(plan.batch).cast("bigint"),
        "_loaded_at": F.lit(plan.loaded_at).cast("timestamp"),
    }


def parked_files(spark: SparkSession, refused: Mapping[str, str], plan: Plan) -> DataFrame:
    """One parked row for each file that cannot be read; the file itself is the raw record."""
    rows = [(f"{uri}#", MALFORMED_FILE, detail, uri) for uri, detail in refused.items()]
    files = spark.createDataFrame(rows, "id string, reason string, detail string, source_file string")
    nothing = F.lit(None).cast("string")
    columns = dict.fromkeys(("lookup", "key", "source_position", "raw"), nothing)
    return files.withColumns(columns).withColumns(_stamp(plan))
