"""Processes by session: every process that a component of the local Airflow started, and their end.

Ids of processes are used again, so a leader is known by its start as well: in ticks since this boot, which a
change of the system's clock leaves alone.

A component leads its own session. Airflow's tasks and Spark's Python workers move into process groups of
their own, but stay in the session, so the session finds them all and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil


def boot() -> str:
    """The id of the system's present run."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since the boot; None when there is none of that id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Its second field, the name, stands in brackets and may hold anything; the start is the 22nd.
    return int(stat.rpartition(")")[2].split()[19])


def members(sessions: Iterable[int]) -> list[psutil.Process]:
    """The living processes of the sessions (zombies are dead, whoever forgot to bury them)."""
    wanted = set(sessions)
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in wanted and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def wait_until_empty(sessions: Iterable[int], seconds: float) -> bool:
    """Whether the sessions have no process left within the time."""
    deadline = time.monotonic() + seconds
    sessions = list(sessions)
    while members(sessions):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def end_session(session: int, polite_seconds: float) -> None:
    """End a session completely: asked in the right order, then every process told, then killed.

    Only the leaders of process groups are asked: the component itself, which then starts nothing new and
    waits, and the tasks, which end what they started and report how they ended.
    """
    signal_all((process for process in members([session]) if _leads_a_group(process)), signal.SIGTERM)
    if not wait_until_empty([session], polite_seconds):
        signal_all(members([session]), signal.SIGTERM)
        if not wait_until_empty([session], 5.0):
            signal_all(members([session]), signal.SIGKILL)
            wait_until_empty([session], 5.0)
    _bury(session)


def _leads_a_group(process: psutil.Process) -> bool:
    try:
        return os.getpgid(process.pid) == process.pid
    except ProcessLookupError:
        return False


def _bury(pid: int) -> None:
    """Take a dead child out of the process table, if it was a child of this process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
