"""Intake: how a pushed batch is cut up so that working on it stays within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from freshet.errors import BudgetError
from freshet.joins.columns import Int64s

INTAKE_BYTES = 64
"""Bytes of working arrays for each row located at once: hash, slot, rank, place, order."""

_MOST_ROWS = 16_384
_FEWEST_ROWS = 64


def intake_rows(limit: int, share: float) -> int:
    """How many rows of a pushed batch are located at once, with that share of so many bytes."""
    return min(max(int(limit * share / INTAKE_BYTES), _FEWEST_ROWS), _MOST_ROWS)


def intake_bytes(limit: int, share: float) -> int:
    """The bytes to reserve for working on that many rows."""
    return intake_rows(limit, share) * INTAKE_BYTES


def page_runs(ranks: Int64s, page_rows: int) -> Iterator[tuple[int, int, int]]:
    """The pages that hold the given ascending ranks, each with the stretch of ranks it holds."""
    pages = ranks // page_rows
    starts = [0, *((pages[1:] != pages[:-1]).nonzero()[0] + 1).tolist()] if len(ranks) else []
    yield from zip(pages[starts].tolist(), starts, [*starts[1:], len(ranks)], strict=False)


def smallest_limit(suffices: Callable[[int], bool]) -> int:
    """The smallest budget that suffices (every larger one is taken to suffice too)."""
    enough = 1
    while not suffices(enough):
        enough *= 2
    too_small = enough // 2
    while enough - too_small > 1:
        middle = (enough + too_small) // 2
        enough, too_small = (middle, too_small) if suffices(middle) else (enough, middle)
    return enough


def refuse(name: str, limit: int, smallest: int, what_for: str) -> BudgetError:
    """The error for a budget that is too small, naming one that would do."""
    few = f"{limit:,} bytes of memory are too few for {name}"
    return BudgetError(f"{few}: give it at least {smallest:,} bytes for {what_for}")
