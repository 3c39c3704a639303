"""A Delta table's transactions of one stream, read from its log without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from freshet.delta import open_table
from freshet.streaming.checkpoint import NONE


@dataclass(frozen=True)
class Commit:
    """A committed append: the table version it made and the rows it added."""

    version: int
    rows: int


def last_transaction(table: Path, stream_id: str) -> int:
    """The last batch of the stream that the table carries, or NONE."""
    found = open_table(table)
    return last_batch(found, stream_id) if found else NONE


def last_batch(table: DeltaTable, stream_id: str) -> int:
    """The last batch of the stream that an opened table carries, or NONE."""
    last = table.transaction_version(stream_id)
    return NONE if last is None else int(last)


def find_commit(table: Path, stream_id: str, batch: int) -> Commit | None:
    """The commit that carries this batch, looked for from the newest backwards."""
    for file in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        transactions = [a["txn"] for a in actions if "txn" in a and a["txn"]["appId"] == stream_id]
        if any(t["version"] == batch for t in transactions):
            return Commit(int(file.stem), _rows_added(actions))
        if any(t["version"] < batch for t in transactions):
            return None
    return None


def _rows_added(actions: list[dict[str, dict[str, str]]]) -> int:
    """The rows of the files an append added, by the statistics in the committed actions themselves."""
    return sum(json.loads(a["add"]["stats"])["numRecords"] for a in actions if "add" in a)
