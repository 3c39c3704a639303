"""What the end-to-end tests share: a real Airflow on a free port, with a home and a demo of its own."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from freshet.home import PROJECT
from freshet.orchestration.api import AirflowClient
from freshet.orchestration.demo import run_demo
from freshet.orchestration.local import LocalAirflow

SALES = 20_000
PRODUCTS = 5_000


@dataclass
class Stage:
    """An Airflow that runs after a demo, and the folders it works in."""

    airflow: LocalAirflow
    home: Path
    loads: Path
    shown: str
    """What the demo has shown."""
    left: list[psutil.Process]
    """What was alive when the demo had ended."""

    @property
    def client(self) -> AirflowClient:
        return self.airflow.client()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """What `make demo` and then `make up` give a new user, with fewer sales than the real demo has."""
    root = tmp_path_factory.mktemp("stage")
    home, loads = root / "home", root / "loads"
    loads.mkdir()
    shutil.copy(PROJECT / "include" / "loads" / "sales.yaml", loads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRESHET_HOME", str(home))
        patch.setenv("FRESHET_LOADS", str(loads))
        patch.setenv("FRESHET_DEMO_SALES", str(SALES))
        patch.setenv("FRESHET_DEMO_PRODUCTS", str(PRODUCTS))
        patch.setenv("FRESHET_LEASE_SECONDS", "5")  # a killed driver's is waited for
        patch.delenv("FRESHET_AIRFLOW_PORT", raising=False)
        airflow = LocalAirflow()
        try:
            with redirect_stdout(io.StringIO()) as shown:
                run_demo(airflow)
            left = processes_of(home)
            airflow.start(print)
            yield Stage(airflow, home, loads, shown.getvalue(), left)
        finally:
            airflow.stop(print)


def processes_of(home: Path) -> list[psutil.Process]:
    """Every living process that was started for a FRESHET_HOME, whatever became of its parents."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("FRESHET_HOME") == str(home)
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
