"""What the lookups add to a micro-batch: the same load with and without them, in turns, in one session.

    python benchmarks/microbatch.py [--tuples 100000] [--rows 1000000] [--batches 30]

Both loads run as streaming queries side by side; one file at a time is given to either, so that they
never work at the same moment and see the same machine. The first batches of each warm it up and are not
counted. Memory of the lookup is a tenth of the master's bytes in memory.

What is compared is `seconds` of a batch's ledger row. It ends when facts and parked rows are written: the
append of that row itself, and Spark's own commit of the batch, come after it and cost either load the same.

It exits with 1 when the lookups cost more than the project allows: batches MOST_TIMES as long as without
them, or MOST_SECONDS of a batch spent in lookups (medians).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.json  # noqa: F401

WARM_UP = 5
EXPONENT = 1.0
MOST_TIMES = 1.25
MOST_SECONDS = 0.15


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuples", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--algorithm", default="auto")
    return parser.parse_args()


DEFINITION = """
load: {load}
description: Benchmark of a micro-batch
stream:
  source: files
  path: {load}
  format: json
  columns: {{sale_id: string, product_id: bigint, quantity: int, sold_at: timestamp}}
  event_id: sale_id
  event_time: sold_at
  trigger_interval: 10ms
lookups:
  - name: product
    table: products
    key: product_id
    add: [surrogate_key, supplier_id, sale_price]
    memory: {memory}
    algorithm: {algorithm}
derive: {{total: quantity * sale_price}}
facts: {{table: facts, columns: [sale_id, surrogate_key, supplier_id, quantity, total, sold_at]}}
"""


@dataclass
class Contender:
    """One of the two loads."""

    name: str
    folder: Path
    seconds: list[float]
    lookup_seconds: list[float]
    thread: threading.Thread | None = None


def main() -> int:
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as home:
        os.environ["FRESHET_HOME"] = home
        os.environ["FRESHET_LOADS"] = str(Path(home) / "definitions")
        os.environ.setdefault("FRESHET_SPARK_LOG", "ERROR")  # Spark warns of every trigger that comes late
        return run(given, Path(home))


def run(given: argparse.Namespace, home: Path) -> int:
    """Measure and report; the exit code."""
    from freshet.config import find_definition
    from freshet.master.snapshot import latest, open_snapshot, snapshot_path
    from freshet.sorting import sort
    from freshet.streaming.session import build_session

    make_master(home, given.rows)
    write_definition(home, "with", "64MB", given.algorithm)
    write_stream(home / "with" / "sample.json", given, seed=0)
    sort(find_definition("with"))
    (home / "with" / "sample.json").unlink()
    version = latest("with", "product")
    assert version is not None
    store = open_snapshot(
        snapshot_path("with", "product", version), ["surrogate_key", "supplier_id", "sale_price"]
    )
    memory = int(store.row_bytes * store.rows / 10)
    write_definition(home, "with", str(memory), given.algorithm)
    print(
        f"R = {store.rows:,} rows of {store.row_bytes:.0f} B, M = {memory:,} B (a tenth), outside M: "
        f"{dict(store.outside_bytes)}, {given.tuples:,} tuples a batch, Zipf exponent {EXPONENT}"
    )
    spark = build_session("freshet microbatch benchmark")
    whole = find_definition("with")
    bare = whole.model_copy(
        update={
            "load": "without",
            "lookups": (),
            "derive": {},
            "stream": whole.stream.model_copy(update={"path": "without"}),
            "facts": whole.facts.model_copy(
                update={"columns": ("sale_id", "product_id", "quantity", "sold_at")}
            ),
        }
    )
    (home / "without").mkdir()
    with_, without = (Contender(name, home / name, [], []) for name in ("with", "without"))
    with running(spark, whole, with_), running(spark, bare, without):
        for number in range(WARM_UP + given.batches):
            for contender in (with_, without):
                feed(contender, home, given, number)
    return report(with_, without)


def make_master(home: Path, rows: int) -> None:
    """Products with random keys, in SQLite."""
    import sqlite3

    keys = product_ids(rows)
    with sqlite3.connect(home / "master.db") as database:
        database.execute(
            "create table products (product_id bigint primary key, surrogate_key bigint, supplier_id int, "
            "sale_price decimal(10,2))"
        )
        database.executemany(
            "insert into products values (?, ?, ?, ?)",
            (
                (int(key), rank, rank % 5000, f"{rank % 9999}.{rank % 100:02d}")
                for rank, key in enumerate(keys)
            ),
        )


def product_ids(rows: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(rows * 3)[:rows]


def write_definition(home: Path, load: str, memory: str, algorithm: str) -> None:
    folder = home / "definitions"
    folder.mkdir(exist_ok=True)
    (folder / f"{load}.yaml").write_text(DEFINITION.format(load=load, memory=memory, algorithm=algorithm))


def write_stream(file: Path, given: argparse.Namespace, seed: int) -> None:
    """A file of JSON lines with Zipf-distributed keys, all of which the master has."""
    from freshet.workload.zipf import Zipf

    file.parent.mkdir(exist_ok=True)
    keys = product_ids(given.rows)[
        Zipf(given.rows, EXPONENT).ranks(given.tuples, np.random.default_rng(seed))
    ]
    lines = (
        f'{{"sale_id":"{seed}-{i}","product_id":{key},"quantity":{1 + i % 9},'
        f'"sold_at":"2026-01-01T00:00:{i % 60:02d}Z"}}\n'
        for i, key in enumerate(keys)
    )
    draft = file.with_name(f".{file.name}")
    draft.write_text("".join(lines))
    draft.rename(file)


@contextmanager
def running(spark, definition, contender: Contender) -> Iterator[None]:  # type: ignore[no-untyped-def]
    from freshet.streaming.enrich import EnrichOptions, Run, Stop

    stop = Stop()
    run_ = Run(spark, definition, EnrichOptions(), stop, lambda line: None, lambda step, batch: None)
    count = run_.result.count

    def counted(row) -> None:  # type: ignore[no-untyped-def]
        count(row)
        contender.seconds.append(row["seconds"])
        contender.lookup_seconds.append(sum(lookup["seconds"] for lookup in row["lookups"]))

    run_.result.count = counted  # type: ignore[method-assign]
    contender.thread = threading.Thread(target=run_.go)
    contender.thread.start()
    try:
        yield
    finally:
        stop.asked.set()
        contender.thread.join()


def feed(contender: Contender, home: Path, given: argparse.Namespace, number: int) -> None:
    """Give the contender its next file and wait until it is loaded."""
    done = len(contender.seconds)
    write_stream(contender.folder / f"{number}.json", given, seed=1 + number)
    while len(contender.seconds) == done:
        if contender.thread is None or not contender.thread.is_alive():
            sys.exit(f"the load {contender.name} lookups has failed, see above")
        time.sleep(0.02)
    time.sleep(0.2)


def report(with_: Contender, without: Contender) -> int:
    """Print the medians; 1 if a limit is broken, else 0."""
    medians = {}
    for contender in (with_, without):
        measured = contender.seconds[WARM_UP:]
        medians[contender.name] = statistics.median(measured)
        print(
            f"{contender.name:>8} lookups: median {medians[contender.name]:.3f} s a batch "
            f"(fastest {min(measured):.3f}, slowest {max(measured):.3f}, {len(measured)} batches)"
        )
    lookups = with_.lookup_seconds[WARM_UP:]
    ratio, median = medians["with"] / medians["without"], statistics.median(lookups)
    print(f"   ratio: {ratio:.3f}")
    print(f" lookups: median {median:.3f} s, slowest {max(lookups):.3f} s (longest task of each batch)")
    broken = ratio > MOST_TIMES or median > MOST_SECONDS
    if broken:
        print(f"limit broken: at most {MOST_TIMES}x and {MOST_SECONDS} s are allowed", file=sys.stderr)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
