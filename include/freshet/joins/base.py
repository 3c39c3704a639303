"""The contract of every semi-stream join.

A join is fed record batches of the stream with their join keys and yields outputs: stream rows next to
their master rows, or stream rows that R does not have. It may keep tuples waiting between calls, as
far as its budget allows. `drain` resolves all that wait; `suspend` hands them back unresolved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from freshet.errors import DefinitionError
from freshet.master.store import MasterStore
from freshet.memory import Budget


@dataclass(frozen=True)
class JoinOutput:
    """Resolved tuples: stream rows and, row for row, their master rows (None: R has none of these keys)."""

    stream: pa.RecordBatch
    master: pa.RecordBatch | None


@dataclass
class JoinStats:
    """What a join did, in one shape for all joins; counts since the last `take_stats`.

    `tuples_in` = `joined` + `unmatched` + `suspended` + waiting now - waiting at the last `take_stats`,
    and `joined` = `hot` + `cold`.
    """

    tuples_in: int = 0
    joined: int = 0
    unmatched: int = 0
    hot: int = 0
    """Joined tuples served from memory (hot part, cache) without a page read of their own."""
    cold: int = 0
    """Joined tuples served from pages read for them."""
    suspended: int = 0
    """Tuples handed back unresolved."""
    iterations: int = 0
    page_reads: int = 0
    bytes_read: int = 0
    evictions: int = 0
    peak_bytes: int = 0
    """The most bytes reserved at once; never above the budget."""
    memory: dict[str, int] = field(default_factory=dict)
    """The peak of each named reservation."""
    outside: dict[str, int] = field(default_factory=dict)
    """Bytes outside the budget, by name: what is left to the operating system (index, pages), the largest
    stream batch that was pushed and the largest output."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by phase: locate, hot, pages, queue, output."""


class JoinOperator(ABC):
    """A semi-stream join of one stream with one store, under one budget."""

    name: ClassVar[str]
    known_settings: ClassVar[Mapping[str, str]] = {}
    """The settings a lookup may give this join, each with a sentence; all are numbers of something."""

    def __init__(self, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None) -> None:
        self.store = store
        self.budget = budget
        self.stats = JoinStats()
        self.settings = self._checked(settings or {})

    @classmethod
    def hot_rows(cls, memory: int, store: MasterStore, settings: Mapping[str, Any]) -> int:
        """How many of the most frequent rows of R it keeps in memory for good."""
        return 0

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Tuples taken in and not resolved."""

    @abstractmethod
    def push(self, stream: pa.RecordBatch, keys: pa.Array) -> Iterator[JoinOutput]:
        """Take stream rows in and yield whatever is resolved by it. The iterator must be exhausted."""

    @abstractmethod
    def drain(self) -> Iterator[JoinOutput]:
        """Resolve every waiting tuple. Afterwards nothing waits; warm parts stay warm."""

    @abstractmethod
    def suspend(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        """Hand back the waiting tuples with their keys, unresolved. Afterwards nothing waits."""

    def take_stats(self) -> JoinStats:
        """The statistics since the last call, with the memory in use now as the new start."""
        taken, self.stats = self.stats, JoinStats()
        taken.peak_bytes = self.budget.peak
        taken.memory = self.budget.peaks
        taken.outside = {**self.store.outside_bytes, **taken.outside}
        self.budget.reset_peaks()
        return taken

    def _checked(self, settings: Mapping[str, Any]) -> dict[str, int]:
        for name, value in settings.items():
            if name not in self.known_settings:
                known = ", ".join(self.known_settings) or "none"
                raise DefinitionError(f"{self.name} has no setting {name!r} (it has: {known}): remove it")
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                meaning = self.known_settings[name]
                raise DefinitionError(
                    f"setting {name} of {self.name} is {value!r}, it must be a whole number: {meaning}"
                )
        return dict(settings)
