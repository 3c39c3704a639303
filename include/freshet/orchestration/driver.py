"""The Spark driver as a child of an Airflow task: started with its settings, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from freshet.errors import FreshetError
from freshet.home import PROJECT

PR_SET_PDEATHSIG = 1
# Airflow sends SIGKILL to the whole task five seconds after SIGTERM.
SECONDS_TO_END = 3.0


class DriverHook(SparkSubmitHook):
    """A spark-submit whose driver gets its environment privately and ends with the task.

    Secrets travel in the environment of the process: the provider's `env_vars` would put them into the
    command line, and so into the log, on YARN and Kubernetes.
    """

    def __init__(self, environment: dict[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._environment = environment

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        environment = {**os.environ, **self._environment}
        driver_id: str | None = super().submit(
            application, env=environment, preexec_fn=die_with_parent, **kwargs
        )
        return driver_id

    def on_kill(self) -> None:
        """End the JVM, the Python driver and its workers; the provider's own kill reaches the JVM only."""
        if self._submit_sp is not None:
            end_process_tree(self._submit_sp.pid)
        super().on_kill()


def driver_environment() -> dict[str, str]:
    """The variables a driver needs to run this interpreter and to find the package."""
    include = str(PROJECT / "include")
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([include, *inherited])),
        "PYTHONUNBUFFERED": "1",
    }


def spark_submit() -> str:
    """The absolute path of spark-submit: FRESHET_SPARK_SUBMIT, else the environment's own, else PATH's."""
    chosen = os.environ.get("FRESHET_SPARK_SUBMIT")
    beside_python = Path(sys.executable).parent / "spark-submit"
    found = chosen or (str(beside_python) if beside_python.exists() else shutil.which("spark-submit"))
    if not found or not Path(found).is_file():
        raise FreshetError(
            f"spark-submit was not found ({found or 'not on PATH'}). Run `make setup`, "
            "or set FRESHET_SPARK_SUBMIT to its absolute path."
        )
    return str(Path(found).absolute())


def die_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent dies (Linux only).

    Without it a killed Airflow worker leaves the driver running, and the retry starts a second one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_process_tree(pid: int, seconds: float = SECONDS_TO_END) -> None:
    """End a process and all it started: asked first, killed after `seconds`."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(tree, timeout=seconds)
    for process in alive:
        _signal(process, signal.SIGKILL)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
