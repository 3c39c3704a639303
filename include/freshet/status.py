"""Where a load stands, read from its tables and files without Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshet import delta
from freshet.config import Definition
from freshet.home import LoadHome, local_path

if TYPE_CHECKING:
    import pyarrow as pa
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
    """Rows of batches that the ledger has not: of one being written. Negative: rows are lost.

    As in validation, only batches that no successful validation has covered can have lost any: the facts of
    the others may be deleted.
    """


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
    from freshet.quality.pointer import read_last_good
    from freshet.quality.result import last_validation

    home = LoadHome(definition.load)
    # A batch writes its facts first and its ledger row last. Read the other way round, one that ends
    # meanwhile has rows too many, as it has while it is loaded, and none too few.
    batches = sorted(delta.read_rows(home.batches, LEDGER_COLUMNS), key=lambda row: row["batch"])
    facts_path = home.facts(definition.facts.table)
    facts = delta.open_table(facts_path)
    good = read_last_good(definition.load)
    validated = -1 if good is None or good.batch is None else good.batch
    parked, in_parked = _parked(home.parked, validated)
    held = _by_batch(facts, facts_path, validated) + in_parked
    validation = last_validation(definition)
    return LoadStatus(
        load=definition.load,
        facts=_rows(facts, facts_path),
        facts_version=facts.version() if facts else None,
        parked=parked,
        batches=len(batches),
        ledger=_ledger(batches, _unrecorded(batches, validated, held, _moving(home))),
        snapshots={lookup.name: latest(definition.load, lookup.name) for lookup in definition.lookups},
        last_good=good.version if good else None,
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


def _by_batch(table: DeltaTable | None, path: Path, after: int) -> Counter[int]:
    """The rows of each batch after one, by the statistics in the log: only files of several are read."""
    counts: Counter[int] = Counter()
    if table is None:
        return counts
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        first, last = file.get("min._batch"), file.get("max._batch")
        if last is not None and last <= after:
            continue
        if first is not None and first == last and file["num_records"] and file["null_count._batch"] == 0:
            counts[last] += file["num_records"]
        else:
            counts += _counted(pq.read_table(path / local_path(file["path"]), columns=["_batch"]), after)
    return counts


def _counted(rows: pa.Table, after: int) -> Counter[int]:
    """The rows of each batch after one; those of no batch are left out."""
    counts = (entry.values() for entry in rows["_batch"].value_counts().to_pylist())
    return Counter({batch: count for batch, count in counts if batch is not None and batch > after})


def _parked(path: Path, after: int) -> tuple[Parked, Counter[int]]:
    """The parked rows, and how many there are of each batch after one."""
    import pyarrow as pa

    reasons: Counter[str] = Counter()
    batches: Counter[int] = Counter()
    rows = delta.dataset(path)
    for batch in rows.to_batches(columns=["reason", "_batch"]) if rows else ():
        for entry in batch.column("reason").value_counts().to_pylist():
            reasons[entry["values"]] += entry["counts"]
        batches += _counted(pa.Table.from_batches([batch]), after)
    return Parked(reasons.total(), dict(sorted(reasons.items()))), batches


def _moving(home: LoadHome) -> int:
    """The rows that a quarantine at work may have taken out of the facts and not parked yet."""
    from freshet.quality.files import read_json

    pending = read_json(home.pending_quarantine)
    return int(pending["rows"]) if pending else 0


def _unrecorded(batches: Sequence[Mapping[str, Any]], validated: int, held: Counter[int], moving: int) -> int:
    """What the tables hold of batches that the ledger has not; negative: what they lack of those it has.

    Quarantine moves facts to the parked table, where they keep their batch: both together stay what the
    ledger says. A row that claims a recorded batch and is not its own is for validation to find.
    """
    said = Counter(
        {row["batch"]: row["facts"] + row["parked"] for row in batches if row["batch"] > validated}
    )
    lost = max(0, (said - held).total() - moving)
    return -lost or sum(rows for batch, rows in held.items() if batch not in said)


def _ledger(batches: Sequence[Mapping[str, Any]], unrecorded: int) -> Ledger:
    rows_in, facts_out, parked_out = (
        sum(row[name] for row in batches) for name in ("rows_in", "facts", "parked")
    )
    before = batches[0]["waiting_before"] if batches else 0
    after = batches[-1]["waiting_after"] if batches else 0
    sums_balance = rows_in + before == facts_out + parked_out + after
    return Ledger(
        rows_in=rows_in,
        facts=facts_out,
        parked=parked_out,
        waiting=after,
        balanced=sums_balance and all(row["balanced"] for row in batches),
        unrecorded=unrecorded,
    )


def _running(lease: Path) -> Driver | None:
    from freshet.streaming.lease import read_lease

    holder = read_lease(lease)
    if holder is None or holder["expires_at"] <= time.time():
        return None
    return Driver(holder["host"], holder["pid"])
