"""The enrich job: spark-submit jobs/enrich.py --load LOAD [--for 10m | --until-idle] [overrides]."""

from __future__ import annotations

import argparse
import sys

from freshet.config import find_definition, parse_bytes, parse_seconds
from freshet.errors import FreshetError
from freshet.streaming.enrich import EnrichOptions, enrich


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", required=True)
    parser.add_argument("--algorithm", help="join algorithm instead of the definition's")
    parser.add_argument("--memory", help="bytes of each lookup in each task, e.g. 64MB")
    parser.add_argument("--for", dest="run_for", help="begin no batch after this time, e.g. 10m")
    parser.add_argument("--until-idle", action="store_true", help="end when the stream has nothing new")
    parser.add_argument("--max-files", type=int, help="files in the largest micro-batch")
    parser.add_argument("--trigger-interval", help="time between the starts of two micro-batches, e.g. 1s")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    try:
        options = EnrichOptions(
            algorithm=given.algorithm or None,
            memory=parse_bytes(given.memory) if given.memory else None,
            run_for=parse_seconds(given.run_for) if given.run_for else None,
            until_idle=given.until_idle,
            max_files=given.max_files,
            trigger_interval=parse_seconds(given.trigger_interval) if given.trigger_interval else None,
        )
        result = enrich(find_definition(given.load), options, report=lambda line: print(line, flush=True))
    except FreshetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    print(
        f"{result.batches} batches, {result.rows_in:,} records in, {result.facts:,} facts, "
        f"{result.parked:,} parked, {result.seconds:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
