"""The checks Freshet makes on each row by itself: each becomes a column of the rows, and so an expectation.

The column of a check says what is wrong with a row, in words, and is null where nothing is. So the
expectation is that it is null, and Data Docs show the words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check of each row."""

    name: str
    column: str
    description: str


BATCH = Check("batch", "_check_batch", "Every row was written by the batch it names, which has a plan")
UNIQUE = Check("event id unique", "_check_unique", "The event id is unique over the whole table")


def key_check(column: str) -> Check:
    return Check(f"key {column}", f"_check_key_{column}", f"The key {column} is not null")


def lookup_check(lookup: str, keeps_unmatched: bool) -> Check:
    exception = ", or are the defaults of an unmatched row" if keeps_unmatched else ""
    return Check(
        f"lookup {lookup}",
        f"_check_lookup_{lookup}",
        f"The columns added by lookup {lookup} are those of the snapshot of the row's batch{exception}",
    )


def derived_check(column: str) -> Check:
    return Check(f"derived {column}", f"_check_derived_{column}", f"{column} is what its expression gives")
