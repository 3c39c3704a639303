"""The partitions of the fact table: which columns can make them, and which values they would change.

A Delta table keeps the value of a partition as text. Every type below comes back from it as it was, except
two texts, for which it gives null: such a row is parked.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from freshet.config import Definition, Problem, refused_in_use
from freshet.config.types import NESTED
from freshet.streaming.records import PARTITION_VALUE
from freshet.streaming.worker import FACT, PARKED

NULL_TEXTS = ("", "__HIVE_DEFAULT_PARTITION__")
"""The texts that a partition cannot tell from null."""


def check_partitions(definition: Definition, facts: StructType) -> None:
    """Refuse to partition by columns that cannot, whatever they turned out to be."""
    for position, name in enumerate(definition.facts.partition_by):
        what = _unfit(facts[name].dataType)
        if what:
            field = ("facts", "partition_by", position)
            raise refused_in_use(definition, Problem(field, what, "Choose another column", value=name))


def _unfit(kind: DataType) -> str | None:
    """Why a column of this type cannot partition a table."""
    if kind.typeName() in NESTED:
        return f"a column with parts ({kind.simpleString()}) cannot partition a table"
    if isinstance(kind, BinaryType):
        return "a binary column cannot partition a table: bytes that are no text would be changed"
    return None


def without_null_texts(joined: DataFrame, definition: Definition) -> DataFrame:
    """The joined batch; facts with a partition that the table would give back as null become parked rows."""
    texts = [name for name in definition.facts.partition_by if _is_text(joined, name)]
    if not texts:
        return joined
    detail = F.lit(None).cast("string")
    for name in reversed(texts):
        told = F.concat(F.lit(f"{name}: '"), F.col(name), F.lit("' in a partition would be read as null"))
        detail = F.when(F.col(name).isin(*NULL_TEXTS), told).otherwise(detail)
    parked = (F.col("_kind") == FACT) & detail.isNotNull()
    return joined.withColumns(
        {
            "_reason": F.when(parked, PARTITION_VALUE).otherwise(F.col("_reason")),
            "_detail": F.when(parked, detail).otherwise(F.col("_detail")),
            "_kind": F.when(parked, F.lit(PARKED).cast("tinyint")).otherwise(F.col("_kind")),
        }
    )


def _is_text(frame: DataFrame, name: str) -> bool:
    return isinstance(frame.schema[name].dataType, StringType)
