"""What a validation found, as it is kept in the load's state. Needs neither Spark nor Great Expectations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from freshet.config import Definition
from freshet.home import LoadHome
from freshet.master.files import write_json
from freshet.quality.files import read_json

SHOWN_IDS = 20
"""How many failing events a result names; the file of failing rows has all of them."""


@dataclass(frozen=True)
class ExpectationResult:
    """One expectation and what came of it."""

    check: str
    """What is checked, in a word or two: `event id unique`, `lookup product`, `expectations[0]`."""
    type: str
    column: str | None
    success: bool
    description: str
    unexpected_count: int = 0
    failing_ids: tuple[Any, ...] = ()
    """Event ids of the first failing rows."""
    failing_batches: tuple[int, ...] = ()
    observed: Any = None
    error: str | None = None
    """Why it could not be computed, if it could not."""


@dataclass(frozen=True)
class FailingRow:
    """A fact that failed, for people; the file of failing rows has it in full."""

    event_id: Any
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class ValidationResult:
    """The outcome of validating the versions after `from_version` up to `to_version`."""

    load: str
    success: bool
    validated_at: str
    from_version: int | None
    to_version: int
    rows: int
    expectations: tuple[ExpectationResult, ...] = ()
    failing_rows: tuple[FailingRow, ...] = ()
    """The first failing rows."""
    failing_count: int = 0
    failing: str | None = None
    """The Parquet folder with all failing rows."""
    unchecked: dict[str, str] = field(default_factory=dict)
    """What could not be checked, and why."""
    freshness: dict[str, Any] = field(default_factory=dict)
    held_back: int | None = None
    """A batch whose facts are written and which is not finished: it is left to the next validation."""
    last_good: int | None = None
    """The last good version after this validation."""
    quarantined: int | None = None
    """How many failing rows have been moved to the parked table since."""
    data_docs: str | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[ExpectationResult, ...]:
        return tuple(expectation for expectation in self.expectations if not expectation.success)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, recorded: dict[str, Any]) -> Self:
        expectations = tuple(_expectation(entry) for entry in recorded["expectations"])
        rows = tuple(FailingRow(row["event_id"], tuple(row["reasons"])) for row in recorded["failing_rows"])
        return cls(**{**recorded, "expectations": expectations, "failing_rows": rows})

    def lines(self) -> Iterator[str]:
        """The result for people, a line at a time."""
        span = f"versions {'start' if self.from_version is None else self.from_version} to {self.to_version}"
        state = "passed" if self.success else "FAILED"
        yield f"validation of {self.load} {state}: {self.rows:,} new facts ({span}), {self.seconds:.1f} s"
        for expectation in self.failed:
            yield f"  failed  {expectation.check}: {expectation.description}{_counted(expectation)}"
        for row in self.failing_rows:
            yield f"  row     {row.event_id}: {'; '.join(row.reasons)}"
        if self.failing_count > len(self.failing_rows):
            yield f"  … {self.failing_count - len(self.failing_rows):,} more failing rows in {self.failing}"
        for check, reason in self.unchecked.items():
            yield f"  not checkable  {check}: {reason}"
        if self.held_back is not None:
            yield f"  batch {self.held_back} is not finished; its facts wait for the next validation"
        yield f"last good version: {'none' if self.last_good is None else self.last_good}"
        if self.data_docs:
            yield f"Data Docs: {self.data_docs}"
        if self.failing_count and self.quarantined is None:
            yield f"`freshet quarantine {self.load}` moves the failing rows to the parked table."


def _counted(expectation: ExpectationResult) -> str:
    if expectation.error:
        return f" ({expectation.error})"
    if expectation.failing_batches:
        return f" (batches {', '.join(map(str, expectation.failing_batches))})"
    if expectation.unexpected_count:
        return f" ({expectation.unexpected_count:,} rows)"
    return f" (observed {expectation.observed})"


def _expectation(entry: dict[str, Any]) -> ExpectationResult:
    lists = {name: tuple(entry[name]) for name in ("failing_ids", "failing_batches")}
    return ExpectationResult(**{**entry, **lists})


def last_validation(definition: Definition) -> ValidationResult | None:
    """The result of the load's last validation, if there was one."""
    recorded = read_json(LoadHome(definition.load).last_validation)
    return ValidationResult.from_dict(recorded) if recorded else None


def keep_result(result: ValidationResult) -> None:
    """Make this the load's last validation."""
    write_json(LoadHome(result.load).last_validation, result.as_dict())
