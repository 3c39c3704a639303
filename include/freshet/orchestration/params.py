"""The form fields of a load's DAGs: what a run may choose, with the definition's values as defaults."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Param

from freshet.config import Definition, Stream
from freshet.config.algorithms import ALGORITHMS, AUTO
from freshet.config.models import LONGEST_TIME, MOST_FILES

# The trigger can check a text by a pattern only. A definition's sizes begin at 1KB; these end at 999TB, as
# every size up to LARGEST_SIZE must be among them; the run refuses what is larger.
_FRACTION = r"(\.[0-9]{1,9})?"
_FROM_1024 = r"(102[4-9]|10[3-9][0-9]|1[1-9][0-9]{2}|[2-9][0-9]{3}|[1-9][0-9]{4,14})"
_SIZES = {
    "": _FROM_1024 + _FRACTION,
    "[Kk][Ii]?": rf"[1-9][0-9]{{0,11}}{_FRACTION}",
    "[Mm][Ii]?": rf"([1-9][0-9]{{0,8}}{_FRACTION}|0\.[0-9]{{0,2}}[1-9][0-9]{{0,6}})",
    "[Gg][Ii]?": rf"([1-9][0-9]{{0,5}}{_FRACTION}|0\.[0-9]{{0,2}}[1-9][0-9]{{0,6}})",
    "[Tt][Ii]?": rf"([1-9][0-9]{{0,2}}{_FRACTION}|0\.[0-9]{{0,2}}[1-9][0-9]{{0,6}})",
}
SIZE_PATTERN = "^(" + "|".join(f"{number} *{unit}[Bb]?" for unit, number in _SIZES.items()) + ")$"

# How many digits a unit may have: those of the longest time of a definition. Beyond a hundred years or so,
# clocks and timers overflow.
_UNITS = {"ms": 0.001, "s": 1, "m(in)?": 60, "h": 3600, "d": 86400}
_DIGITS = {unit: len(f"{LONGEST_TIME / seconds:.0f}") for unit, seconds in _UNITS.items()}
_TIME = "|".join(rf"[0-9]{{1,{most}}}{_FRACTION} *{unit}" for unit, most in _DIGITS.items())
TIME_PATTERN = f"^(({_TIME}) *){{1,5}}$"
SOME_TIME_PATTERN = f"^(?=.*[1-9])(({_TIME}) *){{1,5}}$"


def enrich_params(definition: Definition) -> dict[str, Param]:
    """What a run of `enrich` may choose; the names are those of `ENRICH_OPTIONS`."""
    return {**_lookup_params(definition), **_run_params(definition)}


def resort_params(definition: Definition) -> dict[str, Param]:
    """What a run of `resort` may choose."""
    return {
        "min_gain": Param(
            definition.resort.min_gain,
            type="number",
            minimum=0,
            maximum=1,
            title="Least gain",
            description="How much the share of tuples served from memory must rise for a new order to be "
            "published, 0 to 1. With 0 it always is; changed master rows always are.",
        )
    }


def _lookup_params(definition: Definition) -> dict[str, Param]:
    """What holds for every lookup of a run."""
    lookups = definition.lookups
    return {
        "algorithm": Param(
            _shared(lookup.algorithm for lookup in lookups),
            type=["null", "string"],
            enum=[None, AUTO, *ALGORITHMS],
            title="Join algorithm",
            description="The semi-stream join of every lookup. Empty: as the definition says ("
            + ", ".join(f"{lookup.name}: {lookup.algorithm}" for lookup in lookups)
            + ").",
        ),
        "memory": Param(
            _shared(written_bytes(lookup.memory) for lookup in lookups),
            type=["null", "string"],
            pattern=SIZE_PATTERN,
            title="Memory of each lookup",
            description="What a lookup may use in each task, such as 64MB, 1KB to 900TB. "
            "Empty: as the definition says ("
            + ", ".join(f"{lookup.name}: {written_bytes(lookup.memory)}" for lookup in lookups)
            + ").",
        ),
    }


def _run_params(definition: Definition) -> dict[str, Param]:
    """How long a run takes and how much it takes at once."""
    return {
        "run_for": Param(
            written_seconds(definition.enrich.run_for),
            type="string",
            pattern=SOME_TIME_PATTERN,
            title="Run for",
            description="How long the job reads the stream, such as 30m; it ends between two micro-batches.",
        ),
        "until_idle": Param(
            definition.enrich.until_idle,
            type="boolean",
            title="Until idle",
            description="End earlier, as soon as the stream has nothing more to read.",
        ),
        "max_files_per_batch": _files_param(definition.stream),
        "trigger_interval": Param(
            written_seconds(definition.stream.trigger_interval),
            type="string",
            pattern=TIME_PATTERN,
            title="Trigger interval",
            description="The shortest time between the starts of two micro-batches, such as 1s. "
            "With 0s one follows the other at once. Without meaning in a run until idle.",
        ),
    }


def _files_param(stream: Stream) -> Param:
    """The most files of a micro-batch; empty where the definition has a limit in bytes, which then holds."""
    limit = stream.max_bytes_per_batch
    return Param(
        stream.max_files_per_batch if limit is None else None,
        type="integer" if limit is None else ["null", "integer"],
        minimum=1,
        maximum=MOST_FILES,
        title="Files in a micro-batch",
        description="The most files of the stream that one micro-batch reads."
        + (f" Empty: as many as {written_bytes(limit)} hold, as the definition says." if limit else ""),
    )


def written_bytes(size: int) -> str:
    """A size in the largest unit that states it exactly, as a definition would write it."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def written_seconds(seconds: float) -> str:
    """A time in the largest unit that states it exactly, as a definition would write it."""
    for unit, factor in (("h", 3600), ("m", 60)):
        if seconds and seconds % factor == 0:
            return f"{seconds / factor:.0f}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _shared(values: Iterable[str]) -> str | None:
    """The value all lookups have in common, else none."""
    different = set(values)
    return different.pop() if len(different) == 1 else None
