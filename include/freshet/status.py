"""Where a load stands, read from its tables and files without Spark."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshet import delta
from freshet.config import Definition
from freshet.home import LoadHome

if TYPE_CHECKING:
    from deltalake import DeltaTable

LEDGER_COLUMNS = ["batch", "rows_in", "facts", "parked", "waiting_before", "waiting_after", "balanced"]


@dataclass(frozen=True)
class Parked:
    """The parked rows."""

    total: int
    by_reason: dict[str, int]


@dataclass(frozen=True)
class Ledger:
    """The sums of the `batches` table, and whether they balance."""

    rows_in: int
    facts: int
    parked: int
    waiting: int
    balanced: bool
    """Every batch balances by itself and all of them together."""
    unrecorded: int
    """Rows in the tables beyond the ledger: those of a batch being written. Negative: rows are lost."""


@dataclass(frozen=True)
class Driver:
    """The process that holds the load's lease."""

    host: str
    pid: int


@dataclass(frozen=True)
class LoadStatus:
    """Where a load stands."""

    load: str
    facts: int
    facts_version: int | None
    parked: Parked
    batches: int
    ledger: Ledger
    snapshots: dict[str, int | None]
    """The newest snapshot of each lookup."""
    last_good: int | None
    """The newest version of the fact table that passed validation."""
    last_validation: dict[str, Any] | None
    running: Driver | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def load_status(definition: Definition) -> LoadStatus:
    """Where the load of a definition stands now."""
    from freshet.master.snapshot import latest
    from freshet.quality.pointer import last_good
    from freshet.quality.result import last_validation

    home = LoadHome(definition.load)
    # A batch writes its facts first and its ledger row last. Read the other way round, one that ends
    # meanwhile has rows too many, as it has while it is loaded, and none too few.
    batches = sorted(delta.read_rows(home.batches, LEDGER_COLUMNS), key=lambda row: row["batch"])
    facts_path = home.facts(definition.facts.table)
    facts = delta.open_table(facts_path)
    fact_rows = _rows(facts, facts_path)
    parked = _parked(home.parked)
    validation = last_validation(definition)
    return LoadStatus(
        load=definition.load,
        facts=fact_rows,
        facts_version=facts.version() if facts else None,
        parked=parked,
        batches=len(batches),
        ledger=_ledger(batches, fact_rows, parked, _moving(home)),
        snapshots={lookup.name: latest(definition.load, lookup.name) for lookup in definition.lookups},
        last_good=last_good(definition),
        last_validation=validation.as_dict() if validation else None,
        running=_running(home.lease),
    )


def _rows(table: DeltaTable | None, path: Path) -> int:
    """The rows of a table, by the statistics in its log."""
    if table is None:
        return 0
    import pyarrow as pa

    counts = pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist()
    if None not in counts:
        return sum(counts)
    rows = delta.dataset(path)
    return rows.count_rows() if rows else 0


def _parked(path: Path) -> Parked:
    reasons: Counter[str] = Counter()
    rows = delta.dataset(path)
    for batch in rows.to_batches(columns=["reason"]) if rows else ():
        for entry in batch.column("reason").value_counts().to_pylist():
            reasons[entry["values"]] += entry["counts"]
    return Parked(reasons.total(), dict(sorted(reasons.items())))


def _moving(home: LoadHome) -> int:
    """The rows that a quarantine at work may have taken out of the facts and not parked yet."""
    from freshet.quality.files import read_json

    pending = read_json(home.pending_quarantine)
    return int(pending["rows"]) if pending else 0


def _ledger(batches: list[dict[str, Any]], facts: int, parked: Parked, moving: int) -> Ledger:
    rows_in, facts_out, parked_out = (
        sum(row[name] for row in batches) for name in ("rows_in", "facts", "parked")
    )
    before = batches[0]["waiting_before"] if batches else 0
    after = batches[-1]["waiting_after"] if batches else 0
    # Quarantine moves facts to the parked table; both together stay what the ledger says.
    unrecorded = facts + parked.total - facts_out - parked_out
    sums_balance = rows_in + before == facts_out + parked_out + after
    return Ledger(
        rows_in=rows_in,
        facts=facts_out,
        parked=parked_out,
        waiting=after,
        balanced=sums_balance and all(row["balanced"] for row in batches),
        unrecorded=unrecorded if unrecorded >= 0 else min(0, unrecorded + moving),
    )


def _running(lease: Path) -> Driver | None:
    from freshet.streaming.lease import read_lease

    holder = read_lease(lease)
    if holder is None or holder["expires_at"] <= time.time():
        return None
    return Driver(holder["host"], holder["pid"])
