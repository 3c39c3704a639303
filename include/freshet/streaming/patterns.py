"""The patterns and the locale of a CSV stream, tried on Spark before a batch is planned.

A pattern that Spark cannot use would make every record of the stream a broken one.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshet.config import Definition, Problem, refused_in_use
from freshet.config.options import PATTERNS

_REMEDY = (
    "Write it as Spark's datetime patterns are, such as yyyy-MM-dd HH:mm:ss: see "
    "https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html"
)


def check_patterns(spark: SparkSession, definition: Definition) -> None:
    """Refuse patterns and a locale that this Spark does not know."""
    options = definition.stream.options
    for name in PATTERNS:
        if name in options and not _is_pattern(spark, options[name]):
            raise _refused(definition, name, "not a pattern by which Spark reads times", _REMEDY)
    if "locale" in options and not _is_locale(spark, options["locale"]):
        raise _refused(definition, "locale", "not a language that Java knows", "Write its tag, such as de-DE")


def _refused(definition: Definition, option: str, what: str, remedy: str) -> Exception:
    value = definition.stream.options[option]
    return refused_in_use(definition, Problem(("stream", "options", option), what, remedy, value=value))


def _is_pattern(spark: SparkSession, pattern: str) -> bool:
    try:
        spark.range(1).select(F.try_to_timestamp(F.lit("no time"), F.lit(pattern))).collect()
    except PySparkException as error:
        if "DATETIME" not in str(error.getCondition()):
            raise
        return False
    return True


def _is_locale(spark: SparkSession, tag: str) -> bool:
    java = spark.sparkContext._jvm.java  # type: ignore[union-attr]
    try:
        return bool(java.util.Locale.forLanguageTag(tag).getISO3Language())
    except Py4JJavaError:
        return False
