"""The Spark driver below an Airflow task: what it is given, and that it is never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from freshet.config import find_definition
from freshet.errors import FreshetError
from freshet.home import PROJECT
from freshet.orchestration.connections import connection_variables, connections_of
from freshet.orchestration.driver import (
    DriverHook,
    driver_environment,
    end_process_tree,
    spark_submit,
)

SECRET = "mysql://clerk:s3same@db.example/shop"

# A process that starts another and waits; both ignore a polite request to end.
STUBBORN_PAIR = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by the other
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def wait_for_child(parent: psutil.Process) -> psutil.Process:
    deadline = time.monotonic() + 20
    while not parent.children():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return parent.children()[0]


def test_ending_a_driver_ends_all_that_it_started() -> None:
    root = subprocess.Popen([sys.executable, "-c", STUBBORN_PAIR])
    child = wait_for_child(psutil.Process(root.pid))
    end_process_tree(root.pid, seconds=0.5)
    assert root.wait(10) == -signal.SIGKILL
    assert psutil.wait_procs([child], timeout=10)[1] == [] or gone(child)


def test_ending_what_has_ended_is_no_error() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    end_process_tree(done.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_neither_a_task_nor_its_driver_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    supervisor = """
import os, time
if not os.fork():
    from freshet.orchestration.operators import SparkJobOperator
    SparkJobOperator(task_id="enrich", job="enrich", load="orders").execute({"params": {}})
time.sleep(60)
"""
    note = tmp_path / "driver"
    submit = tmp_path / "spark-submit"
    submit.write_text(f"#!/bin/sh\necho $$ > '{note}.draft'; mv '{note}.draft' '{note}'; exec sleep 60\n")
    submit.chmod(0o755)
    variables = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local"}',
        "FRESHET_SPARK_SUBMIT": str(submit),
    }
    started = subprocess.Popen([sys.executable, "-c", supervisor], env={**os.environ, **variables})
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    driver = psutil.Process(int(note.read_text()))
    task = driver.parent()
    assert task and task.ppid() == started.pid
    started.kill()
    started.wait()
    deadline = time.monotonic() + 10
    while not (gone(task) and gone(driver)):
        assert time.monotonic() < deadline, "they live on"
        time.sleep(0.05)


def test_a_driver_runs_this_python_and_finds_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"/opt/own{os.pathsep}{PROJECT / 'include'}")
    environment = driver_environment()
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(PROJECT / "include"), "/opt/own"]


def test_spark_submit_is_an_absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESHET_SPARK_SUBMIT", raising=False)
    assert Path(spark_submit()).is_absolute()
    assert Path(spark_submit()).name == "spark-submit"


def test_a_missing_spark_submit_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_SPARK_SUBMIT", "/nowhere/spark-submit")
    with pytest.raises(FreshetError, match=r"/nowhere/spark-submit.*make setup"):
        spark_submit()


def test_connections_travel_as_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", SECRET)
    assert connection_variables(["crm", "unknown"]) == {"FRESHET_CONN_CRM": SECRET}


def test_connections_of_a_load_are_there_for_as_long_as_a_task_needs_them(
    loads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CRM", SECRET)
    monkeypatch.delenv("FRESHET_CONN_CRM", raising=False)
    with connections_of(find_definition("orders")):
        assert os.environ["FRESHET_CONN_CRM"] == SECRET
    assert "FRESHET_CONN_CRM" not in os.environ


def test_secrets_are_neither_in_the_command_nor_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stand-in for spark-submit writes down what it is given."""
    seen = tmp_path / "seen"
    script = tmp_path / "spark-submit"
    script.write_text(f'#!/bin/sh\necho "$@" > {seen}.arguments\necho "$FRESHET_CONN_CRM" > {seen}.secret\n')
    script.chmod(0o755)
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT",
        '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "client"}}',
    )
    hook = DriverHook(
        environment={"FRESHET_CONN_CRM": SECRET}, conn_id="spark_default", spark_binary=str(script)
    )
    hook.submit("jobs/enrich.py")
    assert Path(f"{seen}.secret").read_text().strip() == SECRET
    assert "s3same" not in Path(f"{seen}.arguments").read_text()
    assert "s3same" not in caplog.text
