"""The validation job: spark-submit jobs/validate.py --load LOAD."""

from __future__ import annotations

import argparse
import sys

from freshet.config import find_definition
from freshet.home import for_people
from freshet.quality.validate import validate
from freshet.streaming.session import build_session

# Not 1: that is how Python and spark-submit end when something else went wrong, and trying again may help.
FACTS_FAILED = 3
COULD_NOT_VALIDATE = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", required=True)
    return parser.parse_args()


def show(step: str, done: int, total: int | None) -> None:
    print(f"{step} ({done}/{total})" if total else step, flush=True)


def main() -> int:
    """0: the new facts are good; 3: some failed; 2: they could not be validated."""
    load = arguments().load
    try:
        definition = find_definition(load)
        result = validate(definition, build_session(f"freshet validate {load}"), show)
    except Exception as error:
        told = for_people(error)
        if told is None:
            raise
        print(f"error: {told}", file=sys.stderr, flush=True)
        return COULD_NOT_VALIDATE
    for line in result.lines():
        print(line, flush=True)
    return 0 if result.success else FACTS_FAILED


if __name__ == "__main__":
    sys.exit(main())
