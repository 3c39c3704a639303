"""Ending a session ends every process in it, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from freshet.orchestration import sessions

# Like a component of Airflow: a task in a process group of its own, which will not end when asked.
COMPONENT = """
import os, signal, subprocess, sys, time
stubborn = "import os, signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", stubborn], process_group=0)
time.sleep(60)
"""


def test_ending_a_session_leaves_no_process_of_it_and_no_other_is_touched() -> None:
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    component = subprocess.Popen([sys.executable, "-c", COMPONENT], start_new_session=True)
    deadline = time.monotonic() + 20
    while len(sessions.members([component.pid])) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    task = psutil.Process(component.pid).children()[0]
    sessions.end_session(component.pid, polite_seconds=0.5)
    assert sessions.members([component.pid]) == []
    assert not task.is_running() or task.status() == psutil.STATUS_ZOMBIE
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    component.wait()


def test_the_start_of_a_process_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    script = tmp_path / "a) b (c"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with subprocess.Popen([script], stdin=subprocess.PIPE) as process:
        started = sessions.start_ticks(process.pid)
    assert started is not None
    seconds = started / os.sysconf("SC_CLK_TCK")
    assert before - 0.1 <= seconds <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_process_that_is_gone_has_no_start() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert sessions.start_ticks(process.pid) is None
