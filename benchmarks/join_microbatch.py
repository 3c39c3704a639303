"""What a lookup costs in a warm Python worker: micro-batches joined with a snapshot, without Spark.

    python benchmarks/join_microbatch.py [--tuples 100000] [--rows 1000000] [--memory 0.1] [--batches 15]

Each micro-batch is pushed in Arrow batches and drained, as in the enrich job. Stream tuples have four
columns (two of them strings, about 80 bytes); the master adds two longs and a decimal. Memory is a share of
the master's added columns; the snapshot is read from the page cache.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.joins import registry
from freshet.joins.base import JoinOperator, JoinStats
from freshet.master.publish import SnapshotWriter, choose_page_rows
from freshet.master.snapshot import SnapshotStore, open_snapshot, version_path
from freshet.memory import Budget
from freshet.workload.zipf import ZipfKeys

WARM_UP = 3
ADDED = ("surrogate_key", "supplier_id", "sale_price")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuples", type=int, default=100_000, help="tuples in a micro-batch")
    parser.add_argument("--arrow-rows", type=int, default=10_000, help="rows of a pushed Arrow batch")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the master table")
    parser.add_argument("--exponent", type=float, default=1.0, help="Zipf exponent of the keys")
    parser.add_argument("--memory", type=float, default=0.1, help="share of the master's bytes")
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--string-keys", action="store_true")
    parser.add_argument("--algorithm", action="append", choices=registry.names())
    parser.add_argument("--setting", action="append", default=[], help="name=number, for every algorithm")
    return parser.parse_args()


def key_column(numbers: np.ndarray, as_string: bool) -> pa.Array:
    return pa.array([f"P-{number:09d}" for number in numbers]) if as_string else pa.array(numbers)


def write_snapshot(folder: Path, keys: pa.Array) -> SnapshotStore:
    rows = len(keys)
    numbers = pa.array(np.arange(rows))
    master = pa.table(
        {
            "product_id": keys,
            "surrogate_key": numbers,
            "supplier_id": numbers,
            "sale_price": numbers.cast(pa.decimal128(21, 2)),
        }
    )
    writer = SnapshotWriter(
        folder,
        key="product_id",
        schema=master.schema,
        rows=rows,
        page_rows=choose_page_rows(master.nbytes / rows),
        watermark={},
        ranked_by="nothing",
    )
    with writer:
        for batch in master.to_batches(100_000):
            writer.add(batch, pa.array(np.ones(batch.num_rows, np.int64)))
        version = writer.publish()
    return open_snapshot(version_path(folder, version), ADDED)


def micro_batch(keys: pa.Array, arrow_rows: int) -> list[pa.RecordBatch]:
    count = len(keys)
    batch = pa.record_batch(
        {
            "sale_id": pa.array([f"sale-{number:031d}" for number in range(count)]),
            "product_id": keys,
            "quantity": pa.array(np.arange(count) % 9, pa.int32()),
            "note": pa.array(["a remark of the cashier on this sale, 44 B ."] * count),
        }
    )
    return [batch.slice(start, arrow_rows) for start in range(0, count, arrow_rows)]


def join(operator: JoinOperator, batches: list[pa.RecordBatch]) -> tuple[float, int]:
    """Seconds and rows out of one micro-batch."""
    start, rows = time.perf_counter(), 0
    for batch in batches:
        rows += sum(output.stream.num_rows for output in operator.push(batch, batch["product_id"]))
    rows += sum(output.stream.num_rows for output in operator.drain())
    return time.perf_counter() - start, rows


def report(name: str, seconds: list[float], stats: list[JoinStats], tuples: int) -> None:
    median = statistics.median(seconds)
    phases = {
        phase: statistics.median(one.seconds.get(phase, 0.0) for one in stats) for phase in stats[-1].seconds
    }
    last = stats[-1]
    print(f"{name}: median {median * 1e3:.1f} ms, best {min(seconds) * 1e3:.1f} ms a micro-batch")
    print(f"  {tuples / median / 1e6:.2f} M tuples/s; hot {last.hot:,}, cold {last.cold:,}")
    read = f"{last.page_reads:,} page reads, {last.bytes_read / 1e6:.1f} MB"
    print(f"  {last.iterations:,} iterations, {read}")
    print("  by phase: " + ", ".join(f"{phase} {spent * 1e3:.1f} ms" for phase, spent in phases.items()))
    print(f"  peak {last.peak_bytes:,} bytes: {last.memory}; outside: {last.outside}")


def main() -> None:
    given = arguments()
    pairs = (setting.partition("=") for setting in given.setting)
    settings: dict[str, Any] = {name: int(value) for name, _, value in pairs}
    drawn = ZipfKeys(given.rows, given.exponent, seed=7)
    with tempfile.TemporaryDirectory() as folder:
        store = write_snapshot(Path(folder), key_column(drawn.by_rank, given.string_keys))
        memory = int(store.row_bytes * store.rows * given.memory)
        print(f"R: {store.rows:,} rows of {store.row_bytes:.0f} bytes, {store.pages:,} pages")
        print(f"M: {memory:,} bytes")
        batches = [
            micro_batch(key_column(drawn.draw(given.tuples), given.string_keys), given.arrow_rows)
            for _ in range(WARM_UP + given.batches)
        ]
        for name in given.algorithm or registry.names():
            known = registry.join_type(name).known_settings
            fitting = {key: value for key, value in settings.items() if key in known}
            operator = registry.create(name, store, Budget(memory), fitting)
            seconds, stats = [], []
            for batch in batches:
                spent, rows = join(operator, batch)
                assert rows == given.tuples
                seconds.append(spent)
                stats.append(operator.take_stats())
            report(name, seconds[WARM_UP:], stats[WARM_UP:], given.tuples)


if __name__ == "__main__":
    main()
