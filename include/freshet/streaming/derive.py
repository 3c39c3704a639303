"""Derived columns: Spark SQL expressions of which a failing one parks its row instead of ending the stream.

Spark raises where an expression fails (division by zero, overflow, a cast). Each expression is therefore
wrapped into a struct and evaluated by Spark's own TryEval, which gives null instead of raising. A null
struct is a failure; a null inside the struct is an honest null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freshet.config import Definition
from freshet.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_derived(frame: DataFrame, definition: Definition) -> DataFrame:
    """The frame with the derived columns and `_failed`, the name of the first that failed or null."""
    from pyspark.sql import functions as F

    failures = []
    for name, expression in definition.derive.items():
        attempt = f"_try_{name}"
        frame = _attempted(frame, definition, name, expression, attempt)
        frame = frame.withColumn(name, F.col(attempt)["value"])
        failures.append(F.when(F.col(attempt).isNull(), F.lit(name)))
    failed = F.coalesce(*failures) if failures else F.lit(None).cast("string")
    return frame.withColumn("_failed", failed).drop(*(f"_try_{name}" for name in definition.derive))


def _attempted(frame: DataFrame, definition: Definition, name: str, expression: str, attempt: str) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    try:
        plain = frame.select(F.expr(expression).alias(name))
        attempted = frame.withColumn(attempt, _try_eval(F.struct(F.expr(expression).alias("value"))))
    except (AnalysisException, ParseException) as error:
        message = str(error).splitlines()[0]
        raise DefinitionError(
            f"Load {definition.load!r}, field derive.{name}: Spark refuses {expression!r}: {message}"
        ) from error
    if not _analyzed(plain).deterministic():
        raise DefinitionError(
            f"Load {definition.load!r}, field derive.{name}: {expression!r} is not deterministic: "
            "a retried batch would give other values. Use functions of the row alone."
        )
    return attempted


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed().expressions().head()


def _try_eval(column: Column) -> Column:
    from pyspark.sql import SparkSession
    from pyspark.sql.classic.column import Column as ClassicColumn

    session = SparkSession.getActiveSession()
    assert session is not None
    spark = session.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    expressions = spark.classic.ExpressionUtils
    wrapped = spark.catalyst.expressions.TryEval(expressions.expression(column._jc))  # type: ignore[attr-defined]
    return ClassicColumn(expressions.column(wrapped))
