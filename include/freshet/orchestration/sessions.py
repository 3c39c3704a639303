"""Processes by session: every process that a component of the local Airflow started, and an end to all of them.

A component leads its own session. Airflow's tasks and Spark's Python workers move into process groups of
their own, but stay in the session, so the session finds them all and nothing else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

import psutil


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
    """End a session completely: its leader's group is asked, then every process told, then killed."""
    try:
        os.killpg(session, signal.SIGINT)
    except ProcessLookupError:
        pass
    for number, seconds in ((None, polite_seconds), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        if number is not None:
            signal_all(members([session]), number)
        if wait_until_empty([session], seconds):
            return
