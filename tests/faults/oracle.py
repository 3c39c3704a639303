"""What a load must hold, worked out without Freshet, and what it does hold, read without Spark.

Every micro-batch is one file. Which version of the master a batch was loaded with follows from the
faults alone: the version that was the newest when a run first passed the batch's plan step.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from deltalake import DeltaTable

LINES = 40
KEYS = 24


def master(version: int) -> dict[int, tuple[int, Decimal]]:
    """The master table of a version: it gains some keys, loses others, and every price changes."""
    return {
        key: (1000 + key, Decimal(100 * key + version) / 100)
        for key in range(KEYS)
        if (key + version) % 4 != 0
    }


def lines(file: int) -> list[str]:
    """The raw records of a file: sound ones, a null key, a broken line, a division by zero."""
    records: list[str] = []
    for number in range(LINES):
        record = {
            "sale_id": f"{file}-{number}",
            "product_id": (7 * file + number) % KEYS,
            "quantity": 1 + number % 5,
            "share": number % 9,
        }
        if number == 11:
            record["product_id"] = None
        records.append(json.dumps(record))
    records[17] = '{"sale_id": "broken'
    return records


def file_name(file: int) -> str:
    return f"part-{file}.json"


def write_stream(folder: Path, files: int) -> None:
    folder.mkdir(parents=True)
    for file in range(files):
        (folder / file_name(file)).write_text("\n".join(lines(file)) + "\n")


@dataclass(frozen=True)
class Expected:
    facts: Counter[tuple[object, ...]]
    parked: Counter[tuple[object, ...]]


def expected(folder: Path, versions: dict[int, int]) -> Expected:
    """The complete rows of both tables, given the master version of each batch."""
    facts: Counter[tuple[object, ...]] = Counter()
    parked: Counter[tuple[object, ...]] = Counter()
    for batch, version in versions.items():
        known = master(version)
        uri = f"file://{folder / file_name(batch)}"
        for row, raw in enumerate(lines(batch)):
            position = f"0:{row}"
            where = (f"{uri}#{position}", uri, position, raw, batch)
            try:
                record = json.loads(raw)
            except ValueError as error:
                parked[*where, "malformed", None, None, f"not JSON: {error}"] += 1
                continue
            key = record["product_id"]
            if key is None:
                parked[*where, "null_key", "product", None, "product_id is null"] += 1
            elif key not in known:
                parked[*where, "unmatched", "product", str(key), None] += 1
            elif record["share"] == 0:
                parked[*where, "derive_failed", None, None, "part: quantity / share"] += 1
            else:
                surrogate, price = known[key]
                total = record["quantity"] * price
                part = record["quantity"] / record["share"]
                facts[record["sale_id"], surrogate, price, record["quantity"], total, part, batch] += 1
    return Expected(facts, parked)


def loaded(warehouse: Path) -> Expected:
    """The complete rows that the tables hold."""
    facts = DeltaTable(str(warehouse / "facts")).to_pyarrow_table().to_pylist()
    parked = DeltaTable(str(warehouse / "parked")).to_pyarrow_table().to_pylist()
    return Expected(
        Counter(
            (r["sale_id"], r["surrogate_key"], r["price"], r["quantity"], r["total"], r["part"], r["_batch"])
            for r in facts
        ),
        Counter(
            (
                _three_slashes(r["id"]),
                _three_slashes(r["source_file"]),
                *(
                    r[name]
                    for name in ("source_position", "raw", "_batch", "reason", "lookup", "key", "detail")
                ),
            )
            for r in parked
        ),
    )


def load_times(warehouse: Path) -> dict[int, set[object]]:
    """The load times in the rows of each batch, over both tables."""
    times: dict[int, set[object]] = {}
    for table in ("facts", "parked"):
        for row in (
            DeltaTable(str(warehouse / table)).to_pyarrow_table(columns=["_batch", "_loaded_at"]).to_pylist()
        ):
            times.setdefault(row["_batch"], set()).add(row["_loaded_at"])
    return times


def _three_slashes(uri: str) -> str:
    """Spark writes file:/path or file:///path."""
    return "file://" + uri.removeprefix("file:").replace("///", "/", 1)


def ledger(warehouse: Path) -> list[dict[str, object]]:
    rows = DeltaTable(str(warehouse / "batches")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["batch"])
