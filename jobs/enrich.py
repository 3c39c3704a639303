"""The enrich job: spark-submit jobs/enrich.py --load LOAD [--for 10m | --until-idle] [overrides]."""

from __future__ import annotations

import argparse
import sys

from freshet.config import find_definition, parse_bytes, parse_option, parse_seconds
from freshet.home import for_people
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
            memory=parse_option("--memory", given.memory, parse_bytes),
            run_for=parse_option("--for", given.run_for, parse_seconds),
            until_idle=given.until_idle,
            max_files=given.max_files,
            trigger_interval=parse_option("--trigger-interval", given.trigger_interval, parse_seconds),
        )
        result = enrich(find_definition(given.load), options, report=lambda line: print(line, flush=True))
    except Exception as error:
        told = for_people(error)
        if told is None:
            raise
        print(f"error: {told}", file=sys.stderr, flush=True)
        return 1
    print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
