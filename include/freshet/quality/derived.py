"""Are the derived columns of a fact what their expressions give?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sqlglot
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from freshet.config import Definition
from freshet.quality.checks import derived_check
from freshet.quality.lookups import comparable
from freshet.streaming.derive import try_eval


@dataclass(frozen=True)
class DerivedCheck:
    """Which derived columns are computed again and compared, and which cannot be."""

    computed: Mapping[str, str]
    """Expressions that can be computed, in order; some only because others use them."""
    compared: tuple[str, ...]
    unchecked: Mapping[str, str]

    def applied(self, rows: DataFrame) -> DataFrame:
        """The rows with a check column for each compared derived column."""
        columns = rows.columns
        carried = [name for name in self.computed if name in columns]
        rows = rows.withColumnsRenamed({name: _actual(name) for name in carried})
        for name, expression in self.computed.items():
            value = F.expr(expression).alias("value")
            rows = rows.withColumn(_attempt(name), try_eval(F.struct(value)))
            rows = rows.withColumn(name, F.col(_attempt(name))["value"])
        checks = {derived_check(name).column: _problem(name) for name in self.compared}
        rows = rows.withColumns(checks).drop(*self.computed)
        rows = rows.withColumnsRenamed({_actual(name): name for name in carried})
        return rows.select(*columns, *checks)


def plan_derived(definition: Definition, rows: DataFrame) -> DerivedCheck:
    """What can be computed again from the columns the rows have."""
    available = {name.lower() for name in rows.columns} - {name.lower() for name in definition.derive}
    known = all_columns(definition)
    computed: dict[str, str] = {}
    unchecked: dict[str, str] = {}
    for name, expression in definition.derive.items():
        missing = sorted(inputs(expression, known) - available)
        if not missing:
            computed[name] = expression
        elif name in rows.columns:
            unchecked[name] = (
                f"{', '.join(missing)} of {expression!r} cannot be had: the facts carry neither it nor "
                "the key, or a unique column, of the lookup that adds it"
            )
        if not missing or name in rows.columns:
            available.add(name.lower())
    types = {field.name: field.dataType for field in rows.schema}
    compared = tuple(name for name in computed if name in types and comparable(types[name]))
    unchecked |= {
        name: "maps cannot be compared" for name in computed if name in types and name not in compared
    }
    return DerivedCheck(computed, compared, unchecked)


def needed_columns(definition: Definition) -> set[str]:
    """The columns that checks compute with: inputs of derived columns and keys of lookups."""
    known = all_columns(definition)
    used = {name for expression in definition.derive.values() for name in inputs(expression, known)}
    keys = {lookup.stream_key for lookup in definition.lookups}
    return {name for name in known if name.lower() in used} | keys


def all_columns(definition: Definition) -> list[str]:
    """Every column there is while a batch is loaded."""
    added = (name for lookup in definition.lookups for name in lookup.add)
    return [*definition.stream.columns, *added, *definition.derive]


def inputs(expression: str, known: Collection[str]) -> set[str]:
    """The columns an expression uses, in lower case (Spark does not tell cases apart)."""
    names = {name.lower() for name in known}
    used = sqlglot.parse_one(expression, dialect="spark").find_all(exp.Column)
    return {column.parts[0].name.lower() for column in used} & names


def _problem(name: str) -> Column:
    actual, right = F.col(_actual(name)), F.col(name)
    told = F.concat(F.lit("is "), _text(actual), F.lit(", should be "), _text(right))
    fails = F.when(F.col(_attempt(name)).isNull(), F.lit("its expression fails on this row"))
    return fails.when(~actual.eqNullSafe(right), told)


def _attempt(name: str) -> str:
    return f"_try_{name}"


def _actual(name: str) -> str:
    return f"_actual_{name}"


def _text(value: Column) -> Column:
    return F.coalesce(value.cast("string"), F.lit("null"))
