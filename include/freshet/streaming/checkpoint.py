"""Spark's checkpoint, read without Spark: which batches it has planned and committed, and from which files.

A batch is *planned* once Spark has written its offsets, and *committed* once Spark has written its
commit. The files of a batch stand in the file source's own log, of which every tenth entry is
compacted into one that holds all before it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshet.errors import LoadStateError

NONE = -1
"""The number of the last batch where there is none."""


@dataclass(frozen=True)
class BatchInput:
    """What Spark's offsets say a batch reads."""

    files: tuple[str, ...]
    """URIs, sorted."""
    digest: str


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint folder of one stream."""

    folder: Path

    def planned(self) -> int:
        """The last batch that Spark has planned."""
        return self._last("offsets")

    def committed(self) -> int:
        """The last batch that Spark has committed."""
        return self._last("commits")

    def pending(self) -> int | None:
        """The batch that was planned and not committed, if there is one."""
        planned = self.planned()
        return planned if planned > self.committed() else None

    def sweep(self) -> None:
        """Remove what a driver left that was killed while it wrote the first entry of a log.

        Spark begins a checkpoint only where its logs are empty, drafts included.
        """
        if self.planned() == self.committed() == NONE:
            for log in ("offsets", "commits"):
                for draft in (self.folder / log).glob(".*"):
                    draft.unlink(missing_ok=True)

    def batch_input(self, batch: int) -> BatchInput:
        """The files of a planned batch, with a digest that tells two inputs apart."""
        first = self._log_offset(batch - 1) + 1
        last = self._log_offset(batch)
        files = sorted(path for entry in range(first, last + 1) for path in self._files(entry))
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        return BatchInput(tuple(files), digest)

    def _last(self, log: str) -> int:
        folder = self.folder / log
        numbers = [int(file.name) for file in folder.glob("*") if file.name.isdigit()]
        return max(numbers, default=NONE)

    def _log_offset(self, batch: int) -> int:
        if batch < 0:
            return NONE
        file = self.folder / "offsets" / str(batch)
        lines = _read(file).splitlines()
        source = lines[-1]
        return int(json.loads(source)["logOffset"])

    def _files(self, entry: int) -> list[str]:
        folder = self.folder / "sources" / "0"
        single = folder / str(entry)
        if single.exists():
            return [record["path"] for record in _records(single)]
        compacted = sorted(
            (file for file in folder.glob("*.compact") if int(file.stem) >= entry), key=lambda f: int(f.stem)
        )
        if not compacted:
            raise LoadStateError(f"The checkpoint {self.folder} has lost entry {entry} of its file log.")
        return [record["path"] for record in _records(compacted[0]) if record["batchId"] == entry]


def _records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _read(file).splitlines()[1:]]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        raise LoadStateError(f"The checkpoint is incomplete: {file} is missing.") from None
