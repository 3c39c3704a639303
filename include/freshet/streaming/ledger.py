"""The ledger row of a micro-batch: what came in, where it went, and what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from freshet.delta import read_rows
from freshet.streaming.plan import Plan
from freshet.streaming.transactions import Commit, last_transaction

SUMMED = (
    "tuples_in",
    "joined",
    "unmatched",
    "hot",
    "cold",
    "iterations",
    "page_reads",
    "bytes_read",
    "evictions",
)


@dataclass
class Tally:
    """What a joined batch holds, counted before anything is written."""

    rows_in: int = 0
    facts: int = 0
    refused: int = 0
    parked_by_reason: Counter[str] = field(default_factory=Counter)
    max_event_time: datetime | None = None
    tasks: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def parked(self) -> int:
        return sum(self.parked_by_reason.values())


def ledger_row(
    plan: Plan,
    tally: Tally,
    facts: Commit | None,
    parked: Commit | None,
    started: datetime,
    laps: Mapping[str, float],
) -> dict[str, Any]:
    """The row of the `batches` table; facts and parked rows are those of the committed Delta actions."""
    finished = datetime.now(UTC)
    seconds = (finished - started).total_seconds()
    fact_count, parked_count = (commit.rows if commit else 0 for commit in (facts, parked))
    return {
        "batch": plan.batch,
        "stream_id": plan.stream_id,
        "started_at": started,
        "finished_at": finished,
        "loaded_at": plan.load_time,
        "rows_in": tally.rows_in,
        "facts": fact_count,
        "parked": parked_count,
        "parked_by_reason": dict(tally.parked_by_reason),
        "waiting_before": 0,
        "waiting_after": 0,
        "balanced": tally.rows_in == fact_count + parked_count,
        "seconds": seconds,
        "seconds_by_phase": dict(laps),
        "rate": tally.rows_in / seconds,
        "facts_version": facts.version if facts else None,
        "parked_version": parked.version if parked else None,
        "max_event_time": tally.max_event_time,
        "freshness_seconds": _age(finished, tally.max_event_time),
        "shift_score": None,
        "code_version": plan.code_version,
        "offsets_digest": plan.offsets_digest,
        "tasks": len(tally.tasks),
        "lookups": [_lookup_row(plan, name, tally.tasks) for name in plan.snapshots],
    }


def written_row(table: Path, stream_id: str, batch: int) -> Mapping[str, Any] | None:
    """The row of a batch that the ledger has; it is written last, so all of the batch is in the tables."""
    if last_transaction(table, stream_id) < batch:
        return None
    rows = read_rows(table, where=(pc.field("batch") == batch) & (pc.field("stream_id") == stream_id))
    return next(iter(rows), None)


def _lookup_row(plan: Plan, name: str, tasks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One lookup over all tasks: counts are summed; memory and time are those of the task that used most."""
    stats = [task["lookups"][name] for task in tasks]
    return {
        "name": name,
        "algorithm": plan.algorithms[name],
        "memory": plan.memory[name],
        "snapshot": plan.snapshots[name],
        **{count: sum(s[count] for s in stats) for count in SUMMED},
        "peak_bytes": max((s["peak_bytes"] for s in stats), default=0),
        "memory_by_component": _most(s["memory"] for s in stats),
        "outside_by_component": _most(s["outside"] for s in stats),
        "seconds": max((s["wall"] for s in stats), default=0.0),
        "seconds_by_phase": _sum(s["seconds"] for s in stats),
    }


def _most(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    most: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            most[name] = max(value, most.get(name, 0))
    return most


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _age(moment: datetime, event: datetime | None) -> float | None:
    return None if event is None else (moment - event).total_seconds()
