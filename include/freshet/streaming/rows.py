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


def fact_schema(spark: SparkSession, definition: Definition, plan: Plan) -> StructType:
    """The columns and types of the fact table under a plan."""
    task = partition_task(definition, plan, frozenset())
    empty = spark.createDataFrame([], spark_schema(task.schema))
    return fact_rows(with_derived(empty, definition), definition, plan).schema


def fact_rows(joined: DataFrame, definition: Definition, plan: Plan) -> DataFrame:
    facts = joined.where(F.col("_kind") == FACT).select(*definition.facts.columns)
    return facts.withColumns(_stamp(plan))


def parked_rows(joined: DataFrame, definition: Definition, plan: Plan) -> DataFrame:
    is_parquet = definition.stream.format == "parquet"
    row = F.col("_row").cast("string")
    position = row if is_parquet else F.concat(F.col("_block").cast("string"), F.lit(":"), row)
    raw = F.to_json(F.struct(*definition.stream.columns)) if is_parquet else F.col("_raw")
    parked = joined.where(F.col("_kind") == PARKED).select(
        F.concat(F.col("_file"), F.lit("#"), position).alias("id"),
        F.col("_reason").alias("reason"),
        F.col("_lookup").alias("lookup"),
        F.col("_key").alias("key"),
        F.col("_detail").alias("detail"),
        F.col("_file").alias("source_file"),
        position.alias("source_position"),
        raw.alias("raw"),
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
