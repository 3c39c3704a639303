"""A load in a folder of its own, whose master can be published anew and whose job can be hurt."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from freshet.config import find_definition
from freshet.errors import LoadStateError
from freshet.home import embedded_database
from freshet.sorting import sort
from freshet.streaming.checkpoint import Checkpoint
from freshet.streaming.plan import stream_id
from freshet.streaming.session import spark_conf
from freshet.streaming.tables import LoadTables, check_fit
from tests.faults import oracle

DRIVER = Path(__file__).with_name("driver.py")
LOAD = "kills"
LEASE_SECONDS = "3"
RUN_TIMEOUT = 240
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For forty records Spark takes longer to compile its code than to run without."""

DEFINITION = """
    load: kills
    description: A small load to be killed
    stream:
      source: files
      path: stream
      format: json
      columns: {sale_id: string, product_id: bigint, quantity: int, share: int}
      event_id: sale_id
    lookups:
      - {name: product, table: products, key: product_id, add: [surrogate_key, price], memory: 1MB}
    derive: {total: quantity * price, part: quantity / share}
    facts: {table: facts, columns: [sale_id, surrogate_key, price, quantity, total, part]}
"""


@dataclass
class Bench:
    """One load to be hurt."""

    home: Path
    files: int
    """Files of the stream; each is a micro-batch."""
    version: int = 0
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def stream(self) -> Path:
        return self.home / "stream"

    @property
    def warehouse(self) -> Path:
        return self.home / "warehouse" / LOAD

    @property
    def checkpoint(self) -> Path:
        return self.home / "loads" / LOAD / "checkpoint"

    def publish(self) -> int:
        """Publish the next version of the master as a snapshot."""
        self.version += 1
        with sqlite3.connect(embedded_database()) as database:
            database.execute("drop table if exists products")
            database.execute(
                "create table products "
                "(product_id bigint primary key, surrogate_key bigint, price decimal(10,2))"
            )
            rows = [
                (key, surrogate, str(price))
                for key, (surrogate, price) in oracle.master(self.version).items()
            ]
            database.executemany("insert into products values (?, ?, ?)", rows)
        sort(find_definition(LOAD))
        return self.version

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the job as Airflow does, by spark-submit, in a process group of its own."""
        conf = [
            part
            for name, value in {**spark_conf(), **INTERPRETED}.items()
            for part in ("--conf", f"{name}={value}")
        ]
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[2]", *conf, str(DRIVER), "--load", LOAD, *arguments),
        ]
        log = (self.home / f"run-{len(self.started)}.log").open("w")
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=self._environment(),
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> int:
        return self.start(*arguments).wait(RUN_TIMEOUT)

    def run_into(self, step: str, batch: int, kill: str) -> None:
        """Run until the job is killed just before a step of a batch."""
        reached = self.home / f"reached-{len(self.started)}"
        code = self.run("--at", f"{step}:{batch}", "--do", kill, "--reached", str(reached))
        assert code != 0 and reached.exists(), self.log()

    def refused(self) -> str | None:
        """What a run would be refused with when it starts, if it would be."""
        try:
            check_fit(Checkpoint(self.checkpoint), LoadTables(find_definition(LOAD)), stream_id(LOAD))
        except LoadStateError as error:
            return str(error)
        return None

    def log(self, run: int = -1) -> str:
        return (self.home / f"run-{range(len(self.started))[run]}.log").read_text()

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FRESHET_LEASE_SECONDS": LEASE_SECONDS,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
