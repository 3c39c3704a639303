"""What things may be called, and which known name was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}", re.ASCII)
LOAD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}", re.ASCII)
CONNECTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)

OWN_COLUMNS = ("_batch", "_loaded_at")
"""The columns that Freshet itself adds to the facts."""
OWN_TABLES = ("parked", "batches", "waiting", "resolved")
"""Tables of Freshet's own beside a load's facts, now or planned."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if there is one."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'?` or the names there are, as a remedy."""
    known = list(known)
    close = nearest(name, known)
    if close is not None:
        return f"Did you mean '{close}'? There are: {', '.join(known)}"
    return f"There are: {', '.join(known)}" if known else "There are none"


def duplicates(names: Iterable[str]) -> list[tuple[int, str, str]]:
    """Names that Spark and Delta cannot tell from an earlier one: (position, name, earlier name)."""
    seen: dict[str, str] = {}
    found = []
    for position, name in enumerate(names):
        if name.lower() in seen:
            found.append((position, name, seen[name.lower()]))
        seen.setdefault(name.lower(), name)
    return found
