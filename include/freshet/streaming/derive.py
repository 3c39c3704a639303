"""Derived columns: Spark SQL expressions of which a failing one parks its row instead of ending the stream.

Spark raises where an expression fails (division by zero, overflow, a cast). Each expression is therefore
wrapped into a struct and evaluated by Spark's own TryEval, which gives null instead of raising. A null
struct is a failure; a null inside the struct is an honest null.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from freshet.config import Definition, Problem, refused_in_use
from freshet.errors import DefinitionError
from freshet.streaming.records import DERIVE_FAILED
from freshet.streaming.worker import FACT, PARKED


def with_derived(frame: DataFrame, definition: Definition) -> DataFrame:
    """The joined batch with the derived columns; facts of which one failed become parked rows."""
    failure = F.lit(None).cast("string")
    for name, expression in reversed(definition.derive.items()):
        failed = F.col(_attempt(name)).isNull()
        failure = F.when(failed, F.lit(f"{name}: {expression}")).otherwise(failure)
    for name, expression in definition.derive.items():
        frame = _attempted(frame, definition, name, expression)
        frame = frame.withColumn(name, F.col(_attempt(name))["value"])
    failed_fact = (F.col("_kind") == FACT) & F.col("_failure").isNotNull()
    marked = frame.withColumn("_failure", failure).withColumns(
        {
            "_reason": F.when(failed_fact, DERIVE_FAILED).otherwise(F.col("_reason")),
            "_detail": F.when(failed_fact, F.col("_failure")).otherwise(F.col("_detail")),
            "_kind": F.when(failed_fact, F.lit(PARKED).cast("tinyint")).otherwise(F.col("_kind")),
        }
    )
    return marked.drop("_failure", *(_attempt(name) for name in definition.derive))


def _attempt(name: str) -> str:
    """The column that holds the wrapped value of a derived column."""
    return f"_try_{name}"


def _attempted(frame: DataFrame, definition: Definition, name: str, expression: str) -> DataFrame:
    try:
        plain = frame.select(F.expr(expression).alias(name))
        attempted = frame.withColumn(_attempt(name), try_eval(F.struct(F.expr(expression).alias("value"))))
    except (AnalysisException, ParseException) as error:
        told = f"Spark refuses it: {str(error).splitlines()[0].rstrip('.')}"
        remedy = "Correct it; a cast gives a column the type that a function wants"
        raise _refused(definition, name, told, remedy) from error
    if not _analyzed(plain).deterministic():
        told = "not deterministic: a retried batch would give other values"
        raise _refused(definition, name, told, "Use functions of the row alone")
    return attempted


def _refused(definition: Definition, name: str, what: str, remedy: str) -> DefinitionError:
    return refused_in_use(definition, Problem(("derive", name), what, remedy, value=definition.derive[name]))


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed().expressions().head()


def try_eval(column: Column) -> Column:
    """The column's value, or null where Spark would raise."""
    session = SparkSession.getActiveSession()
    assert session is not None
    spark = session.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    expressions = spark.classic.ExpressionUtils
    wrapped = spark.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return ClassicColumn(expressions.column(wrapped))
