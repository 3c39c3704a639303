"""The enrich job with a fault at a chosen step: spark-submit runs it in the place of jobs/enrich.py.

    driver.py --load LOAD --at STEP:BATCH --do kill-group|kill-jvm|kill-python --reached FILE
    driver.py --load LOAD --at STEP:BATCH --do hold --reached FILE --release FILE

FILE is written when the step is reached, so that a driver that failed before does not pass for one that was
hurt. The steps are those the job announces to its listener, each just before it is taken: plan (before the
plan), join (after it), facts, parked (between the two), ledger, commit (Spark's own).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from freshet.config import find_definition
from freshet.errors import FreshetError
from freshet.streaming.enrich import EnrichOptions, enrich


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", required=True)
    parser.add_argument("--at", default=":-1")
    parser.add_argument("--do", default="nothing")
    parser.add_argument("--reached", type=Path)
    parser.add_argument("--release", type=Path)
    parser.add_argument("--without-lease", action="store_true")
    return parser.parse_args()


def fault(given: argparse.Namespace) -> None:
    given.reached.write_text(str(os.getpid()))
    if given.do == "kill-group":
        os.killpg(0, signal.SIGKILL)
    elif given.do == "kill-python":
        os.kill(os.getpid(), signal.SIGKILL)
    elif given.do == "kill-jvm":
        os.kill(os.getppid(), signal.SIGKILL)  # spark-submit's JVM starts the Python driver
        time.sleep(5)  # its end must reach this process as an error, not as a return
    elif given.do == "hold":
        while not given.release.exists():
            time.sleep(0.05)


def main() -> int:
    given = arguments()
    step_at, batch_at = given.at.split(":")

    def listener(step: str, batch: int) -> None:
        if (step, batch) == (step_at, int(batch_at)):
            fault(given)

    try:
        enrich(
            find_definition(given.load),
            EnrichOptions(until_idle=True, max_files=1),
            listener=listener,
            with_lease=not given.without_lease,
        )
    except FreshetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
