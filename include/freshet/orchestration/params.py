"""The form fields of a load's DAGs: what a run may choose, with the definition's values as defaults."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Param

from freshet.config import Definition
from freshet.config.algorithms import ALGORITHMS, AUTO

SIZE_PATTERN = r"^\d+(\.\d+)?\s*([KkMmGgTt][Ii]?)?[Bb]?$"
TIME_PATTERN = r"^(\d+(\.\d+)?\s*(ms|s|min|m|h|d)\s*)+$"
MOST_FILES = 100_000


def enrich_params(definition: Definition) -> dict[str, Param]:
    """What a run of `enrich` may choose; the names are those of `ENRICH_OPTIONS`."""
    return {**_lookup_params(definition), **_run_params(definition)}


def _lookup_params(definition: Definition) -> dict[str, Param]:
    """What holds for every lookup of a run; nothing for a load without lookups."""
    lookups = definition.lookups
    if not lookups:
        return {}
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
            description="What a lookup may use in each task, such as 64MB. Empty: as the definition says ("
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
            pattern=TIME_PATTERN,
            title="Run for",
            description="How long the job reads the stream, such as 30m; it ends between two micro-batches.",
        ),
        "until_idle": Param(
            definition.enrich.until_idle,
            type="boolean",
            title="Until idle",
            description="End earlier, as soon as the stream has nothing more to read.",
        ),
        "max_files_per_batch": Param(
            definition.stream.max_files_per_batch,
            type="integer",
            minimum=1,
            maximum=MOST_FILES,
            title="Files in a micro-batch",
            description="The most files of the stream that one micro-batch reads.",
        ),
    }


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
    return f"{seconds:g}s"


def _shared(values: Iterable[str]) -> str | None:
    """The value all lookups have in common, else none."""
    different = set(values)
    return different.pop() if len(different) == 1 else None
