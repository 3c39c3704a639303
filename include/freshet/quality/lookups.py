"""Are the added columns of a fact those of the snapshot its batch was loaded from?

How a fact finds its master row depends on what the facts carry:

    by key      the facts carry the stream key (or it can be fetched): the strongest check
    by column   they do not, but an added column that is unique in the snapshot, such as a surrogate key
    by values   neither: the added columns together must occur in the snapshot
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from freshet.config import Lookup
from freshet.quality.checks import Check, lookup_check
from freshet.quality.masters import KEY, VERSION, Master, master_column

FOUND = "_m_found"


def version_column(lookup: str) -> str:
    """The column with the version of a lookup's snapshot that the row's batch was loaded from."""
    return f"_v_{lookup}"


@dataclass(frozen=True)
class LookupCheck:
    """The check of one lookup: how, and what it lets the later checks see."""

    lookup: Lookup
    carried: tuple[str, ...]
    """The added columns that the facts carry and that can be compared."""
    incomparable: tuple[str, ...]
    """Those that hold maps, which Spark cannot compare."""
    by_key: bool
    by_column: str | None
    fetched: tuple[str, ...]
    """Columns the facts do not carry and later checks need."""

    @property
    def check(self) -> Check:
        return lookup_check(self.lookup.name, self.lookup.unmatched == "keep")

    @property
    def possible(self) -> bool:
        return self.by_key or bool(self.carried)

    def applied(self, rows: DataFrame, master: Master) -> DataFrame:
        """The rows with the check's column and the fetched ones."""
        added = list(dict.fromkeys((*self.carried, *self.fetched)))
        joined = rows.join(self._master_rows(master, added), self._same_row(), "left")
        problem = F.when(F.col(version_column(self.lookup.name)).isNotNull(), self._problem(joined))
        fetched = {name: self._expected(joined, name) for name in self.fetched}
        checked = joined.withColumns({self.check.column: problem, **fetched})
        return checked.drop(VERSION, KEY, FOUND, *(master_column(name) for name in added))

    def _master_rows(self, master: Master, added: Sequence[str]) -> DataFrame:
        rows = master.frame(added)
        if not self.by_key and self.by_column is None:
            rows = rows.drop(KEY).distinct()
        rows = rows.withColumn(FOUND, F.lit(True))
        return F.broadcast(rows) if master.small(added) else rows

    def _same_row(self) -> Column:
        same_version = F.col(version_column(self.lookup.name)) == F.col(VERSION)
        if self.by_key:
            return same_version & (F.col(self.lookup.stream_key) == F.col(KEY))
        if self.by_column is not None:
            return same_version & (F.col(self.by_column) == F.col(master_column(self.by_column)))
        return same_version & _all(
            F.col(name).eqNullSafe(F.col(master_column(name))) for name in self.carried
        )

    def _problem(self, joined: DataFrame) -> Column:
        found = F.col(FOUND).isNotNull()
        snapshot = F.concat(
            F.lit("snapshot "),
            F.col(version_column(self.lookup.name)).cast("string"),
            F.lit(f" of {self.lookup.name}"),
        )
        like_master = _all(F.col(name).eqNullSafe(F.col(master_column(name))) for name in self.carried)
        missing = F.concat(self._subject(), F.lit(" is not in "), snapshot)
        other = F.concat(
            F.lit(f"{', '.join(self.carried)} differ from "), self._subject(), F.lit(" in "), snapshot
        )
        problem = F.when(~found, missing).when(~like_master, other)
        if self.lookup.unmatched != "keep":
            return problem
        like_defaults = _all(F.col(name).eqNullSafe(self._default(joined, name)) for name in self.carried)
        # By key a match is a match; otherwise a default may happen to be the value of some master row.
        kept = like_defaults & ~found if self.by_key else like_defaults
        return F.when(~kept, problem)

    def _subject(self) -> Column:
        if self.by_key:
            return _told(self.lookup.stream_key)
        if self.by_column is not None:
            return _told(self.by_column)
        return F.concat_ws(", ", *(_told(name) for name in self.carried))

    def _expected(self, joined: DataFrame, name: str) -> Column:
        value = F.col(master_column(name))
        if self.lookup.unmatched != "keep":
            return value
        return F.when(F.col(FOUND).isNotNull(), value).otherwise(self._default(joined, name))

    def _default(self, joined: DataFrame, name: str) -> Column:
        """What an unmatched row that is kept has in an added column."""
        value: Any = self.lookup.defaults.get(name)
        return F.lit(value).cast(joined.schema[master_column(name)].dataType)


def plan_check(lookup: Lookup, rows: DataFrame, needed: set[str], master: Master) -> LookupCheck:
    """How a lookup can be checked on these rows, and which of the needed columns it can fetch."""
    types = {field.name: field.dataType for field in rows.schema}
    carried = tuple(name for name in lookup.add if name in types and comparable(types[name]))
    by_key = lookup.stream_key in types
    by_column = None if by_key or not carried else master.unique_column(carried)
    wanted = tuple(name for name in lookup.add if name in needed and name not in types)
    fetched = wanted if by_key or by_column is not None else ()
    incomparable = tuple(name for name in lookup.add if name in types and name not in carried)
    return LookupCheck(lookup, carried, incomparable, by_key, by_column, fetched)


def comparable(kind: DataType) -> bool:
    """Whether Spark can compare values of a type: not maps, nor anything that holds one."""
    if isinstance(kind, ArrayType):
        return comparable(kind.elementType)
    if isinstance(kind, StructType):
        return all(comparable(field.dataType) for field in kind)
    return not isinstance(kind, MapType)


def _told(name: str) -> Column:
    return F.concat(F.lit(f"{name} "), F.coalesce(F.col(name).cast("string"), F.lit("null")))


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions, F.lit(True))
