"""A load written by hand: tables, plans and snapshots in the documented shape, with or without errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from freshet.config import Definition
from freshet.home import LoadHome
from freshet.master.publish import SnapshotWriter
from freshet.quality.pointer import LastGood, move_last_good
from freshet.streaming.tables import BATCHES_COLUMNS, PARKED_COLUMNS

STREAM_ID = "stream-under-test"
LOADED_AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SOLD_AT = datetime(2026, 3, 1, 11, 59, tzinfo=UTC)

SALES: dict[str, Any] = {
    "load": "sales",
    "stream": {
        "path": "in",
        "format": "json",
        "columns": {"sale_id": "string", "product_id": "bigint", "quantity": "int", "sold_at": "timestamp"},
        "event_id": "sale_id",
        "event_time": "sold_at",
    },
    "lookups": [
        {
            "name": "product",
            "table": "products",
            "key": "product_id",
            "add": ["surrogate_key", "supplier_id", "sale_price"],
        }
    ],
    "derive": {"total": "quantity * sale_price"},
    "facts": {
        "table": "sales_facts",
        "columns": ["sale_id", "surrogate_key", "supplier_id", "quantity", "total", "sold_at"],
    },
    "expectations": [
        {"type": "expect_column_values_to_be_between", "column": "quantity", "min_value": 1, "max_value": 100}
    ],
}
FACTS_SCHEMA = """
    sale_id string, surrogate_key bigint, supplier_id bigint, quantity int, total double, sold_at timestamp,
    _batch bigint, _loaded_at timestamp
"""

Rows = Iterable[Mapping[str, Any]]


def product(key: int, version: int = 1) -> dict[str, Any]:
    """A master row; surrogate keys differ from version to version."""
    return {
        "product_id": key,
        "surrogate_key": version * 1000 + key,
        "supplier_id": key % 3,
        "sale_price": 0.5 + key,
    }


def sale(sale_id: str, key: int = 1, quantity: int = 2, version: int = 1, **other: Any) -> dict[str, Any]:
    """A fact as the load gives it; `other` plants what is wrong."""
    master = product(key, version)
    return {
        "sale_id": sale_id,
        "surrogate_key": master["surrogate_key"],
        "supplier_id": master["supplier_id"],
        "quantity": quantity,
        "total": quantity * master["sale_price"],
        "sold_at": SOLD_AT,
        "_loaded_at": LOADED_AT,
        **other,
    }


def sales(first: int, count: int, version: int = 1) -> list[dict[str, Any]]:
    """Good facts with ids from `first` on."""
    return [sale(f"S{first + n:06d}", 1 + n % 9, 1 + n % 5, version) for n in range(count)]


@dataclass
class Load:
    """A load whose batches a test writes itself."""

    changed: Mapping[str, Any] = field(default_factory=dict)
    facts_schema: str = FACTS_SCHEMA
    next_batch: int = 0

    def __post_init__(self) -> None:
        self.definition = Definition.from_dict({**SALES, **self.changed})
        self.home = LoadHome(self.definition.load)
        self.facts_path = self.home.facts(self.definition.facts.table)
        self.home.state.mkdir(parents=True, exist_ok=True)
        self.home.stream_id.write_text(json.dumps({"stream_id": STREAM_ID}))

    def publish(
        self, rows: Sequence[Mapping[str, Any]], lookup: str, key: str, schema: pa.Schema | None = None
    ) -> int:
        """Publish a snapshot of these master rows."""
        batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)
        with SnapshotWriter(
            self.home.snapshots(lookup),
            key=key,
            schema=batch.schema,
            rows=len(rows),
            page_rows=4,
            watermark={},
            ranked_by="nothing",
        ) as writer:
            writer.add(batch, pa.array([0] * len(rows)))
            return writer.publish()

    def publish_products(self, version: int = 1) -> None:
        rows = [product(key, version) for key in range(1, 10)]
        assert self.publish(rows, "product", "product_id") == version

    def batch(self, rows: Rows, **options: Any) -> int:
        """Load a batch as the enrich job does: plan, facts, parked, ledger. Its number."""
        number = self.next_batch
        self.next_batch += 1
        self.plan(number, options.pop("snapshots", {"product": 1}))
        facts = list(rows)
        self.append_facts(facts, number, transaction=number)
        parked = options.pop("parked", 0)
        self.park(parked, number)
        if options.pop("finished", True):
            self.record(number, **{"facts": len(facts), "parked": parked, **options})
        return number

    def plan(self, number: int, snapshots: Mapping[str, int]) -> None:
        plan = {
            "batch": number,
            "stream_id": STREAM_ID,
            "definition": self.definition.as_dict(),
            "snapshots": snapshots,
            "algorithms": {},
            "memory": {},
            "code_version": "0",
            "loaded_at": LOADED_AT.isoformat(),
            "time_zone": "UTC",
            "offsets_digest": "",
            "splits": {},
        }
        self.home.plans.mkdir(parents=True, exist_ok=True)
        (self.home.plans / f"{number}.json").write_text(json.dumps(plan))

    def append_facts(self, rows: Rows, batch: int | None, transaction: int | None) -> None:
        """Append to the facts, as a batch or (without a transaction) as somebody else."""
        stamped = [{"_batch": batch, "_loaded_at": LOADED_AT, **row} for row in rows]
        append(self.facts_path, self.facts_schema, stamped, transaction, self.definition.facts.partition_by)

    def park(self, count: int, batch: int) -> None:
        rows = [{"id": f"file#{batch}:{n}", "reason": "unmatched", "_batch": batch} for n in range(count)]
        append(self.home.parked, as_ddl(PARKED_COLUMNS), rows, batch)

    def record(self, batch: int, facts: int, parked: int = 0, **other: Any) -> None:
        """Write the ledger's row of a batch; `other` plants what is wrong."""
        row = {
            "batch": batch,
            "stream_id": STREAM_ID,
            "loaded_at": LOADED_AT,
            "rows_in": facts + parked,
            "facts": facts,
            "parked": parked,
            "waiting_before": 0,
            "waiting_after": 0,
            "balanced": True,
            **other,
        }
        append(self.home.batches, as_ddl(BATCHES_COLUMNS), [row], batch)

    def trust(self) -> None:
        """Take everything loaded so far for validated."""
        pointer = LastGood(self.version(), self.next_batch - 1, LOADED_AT.isoformat())
        move_last_good(self.definition.load, pointer)

    def facts(self) -> list[dict[str, Any]]:
        return self._rows(self.facts_path)

    def parked(self) -> list[dict[str, Any]]:
        return self._rows(self.home.parked)

    def version(self) -> int:
        return DeltaTable(str(self.facts_path)).version()

    def _rows(self, table: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        return rows


def as_ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {ddl}" for name, ddl in columns.items())


def append(
    table: Path, ddl: str, rows: Rows, transaction: int | None, partition_by: Sequence[str] = ()
) -> None:
    """Append rows to a Delta table, without Spark; with a transaction as a batch of the load."""
    fields = StructType.fromDDL(ddl)
    assert isinstance(fields, StructType)
    schema = to_arrow_schema(fields)
    transactions = [] if transaction is None else [Transaction(STREAM_ID, transaction)]
    write_deltalake(
        str(table),
        pa.Table.from_pylist([dict(row) for row in rows], schema=schema),
        mode="append",
        partition_by=list(partition_by) or None,
        commit_properties=CommitProperties(app_transactions=transactions),
    )
