"""The last good version of a fact table: the one to read. Needs neither Spark nor Great Expectations."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from freshet.config import Definition
from freshet.home import LoadHome
from freshet.master.files import write_json
from freshet.quality.files import locked, read_json


@dataclass(frozen=True)
class LastGood:
    """A version of the fact table of which every row has passed validation."""

    version: int
    batch: int | None
    """The last batch of the ledger that it covers; None before the first."""
    validated_at: str


def last_good(definition: Definition) -> int | None:
    """The last good version of the load's fact table; None before the first validation succeeds."""
    found = read_last_good(definition.load)
    return found.version if found else None


def read_last_good(load: str) -> LastGood | None:
    """The pointer as it stands."""
    content = read_json(LoadHome(load).last_good)
    return LastGood(content["version"], content["batch"], content["validated_at"]) if content else None


def move_last_good(load: str, to: LastGood) -> LastGood:
    """Move the pointer forwards; the pointer in force comes back. It never moves backwards."""
    file = LoadHome(load).last_good
    with locked(file.with_suffix(".lock")):
        there = read_last_good(load)
        if there and there.version > to.version:
            return there
        write_json(file, asdict(to))
        return to
