"""A load with small tables of its own, written with delta-rs as the enrich job would write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner, Result

from freshet.cli import app
from freshet.home import LoadHome

DEFINITION = """
load: sales
stream:
  path: in
  format: json
  columns: {sale_id: string, product_id: bigint, quantity: int}
  event_id: sale_id
lookups:
  - {name: product, table: products, key: product_id, add: [price]}
facts: {table: sales_facts, columns: [sale_id, quantity, price]}
"""

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadHome:
    """The empty home of load `sales`, which is defined."""
    (tmp_path / "loads").mkdir()
    (tmp_path / "loads" / "sales.yaml").write_text(DEFINITION)
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FRESHET_LOADS", str(tmp_path / "loads"))
    return LoadHome("sales")


@pytest.fixture
def run(home: LoadHome) -> Run:
    """Runs a freshet command."""

    def command(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=answer)

    return command


def ledger_row(batch: int, rows_in: int, facts: int, parked: int, **changed: Any) -> dict[str, Any]:
    row = {"batch": batch, "stream_id": "s", "rows_in": rows_in, "facts": facts, "parked": parked}
    row |= {"waiting_before": 0, "waiting_after": 0, "balanced": rows_in == facts + parked}
    return row | changed


def write_facts(home: LoadHome, ids: list[str], batch: int | None) -> None:
    count = len(ids)
    table = pa.table(
        {"sale_id": ids, "quantity": pa.array([1] * count, pa.int32()), "_batch": of_batch(batch, count)}
    )
    write_deltalake(str(home.facts("sales_facts")), table, mode="append")


def write_parked(home: LoadHome, reasons: list[str], batch: int | None) -> None:
    count = len(reasons)
    ids = [str(n) for n in range(count)]
    table = pa.table({"id": ids, "reason": reasons, "raw": ["x"] * count, "_batch": of_batch(batch, count)})
    write_deltalake(str(home.parked), table, mode="append")


def of_batch(batch: int | None, count: int) -> pa.Array:
    return pa.array([batch] * count, pa.int64())


def write_batches(home: LoadHome, rows: list[dict[str, Any]]) -> None:
    write_deltalake(str(home.batches), pa.Table.from_pylist(rows), mode="append")


@pytest.fixture
def loaded(home: LoadHome) -> LoadHome:
    """A load after two batches: 10 records in, 7 facts, 3 parked."""
    write_facts(home, ["a", "b", "c", "d"], 0)
    write_facts(home, ["e", "f", "g"], 1)
    write_parked(home, ["unmatched", "malformed"], 0)
    write_parked(home, ["unmatched"], 1)
    write_batches(home, [ledger_row(0, 6, 4, 2)])
    write_batches(home, [ledger_row(1, 4, 3, 1)])
    for version in (1, 2):
        (home.snapshots("product") / f"v{version:06d}").mkdir(parents=True)
    (home.checkpoint / "offsets").mkdir(parents=True)
    (home.checkpoint / "offsets" / "1").write_text("{}")
    home.plans.mkdir()
    (home.plans / "1.json").write_text("{}")
    home.stream_id.write_text('{"stream_id": "s"}')
    return home


@pytest.fixture
def validated(loaded: LoadHome) -> LoadHome:
    """The same load after a validation that passed, and one that failed."""
    from freshet.quality.pointer import LastGood, move_last_good
    from freshet.quality.result import ValidationResult, keep_result

    now = datetime(2026, 1, 2, tzinfo=UTC).isoformat()
    move_last_good("sales", LastGood(0, 0, now))
    keep_result(ValidationResult("sales", False, now, from_version=0, to_version=1, rows=3, last_good=0))
    return loaded


def hold_lease(home: LoadHome, expires_at: float) -> None:
    home.lease.parent.mkdir(parents=True, exist_ok=True)
    home.lease.write_text(json.dumps({"owner": "o", "host": "elsewhere", "pid": 7, "expires_at": expires_at}))
