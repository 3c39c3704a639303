"""The plan of a micro-batch: everything its result depends on, fixed before anything is written.

A plan is created if absent, so that every retry and every driver loads a batch from the same
snapshots under the same definition; whoever loses the race uses the winner's plan.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from freshet.config import Definition
from freshet.errors import LoadStateError
from freshet.home import LoadHome
from freshet.streaming.checkpoint import Checkpoint
from freshet.streaming.lease import held_lease

BATCH_SECTIONS = ("load", "stream", "lookups", "derive", "facts")
"""The sections of a definition that decide what a batch gives; the others decide when it runs."""

KEPT_PLANS = 1_000
"""How many plans of validated batches are kept."""
_BATCH_OF_FILE = re.compile(r"(?:damaged-)?(\d+)\.json")


@dataclass(frozen=True)
class Plan:
    """The fixed circumstances of one micro-batch."""

    batch: int
    stream_id: str
    definition: Mapping[str, Any]
    snapshots: Mapping[str, int]
    algorithms: Mapping[str, str]
    memory: Mapping[str, int]
    code_version: str
    loaded_at: str
    time_zone: str
    offsets_digest: str
    splits: Mapping[str, str]
    """Settings that decide how Spark cuts files into splits, and so the position of each record."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Files that cannot be read record by record and are parked as a whole, each with the reason."""
    files: Mapping[str, list[int]] = field(default_factory=dict)
    """Size and time of the files; earlier versions did not write them down."""

    @property
    def load_time(self) -> datetime:
        return datetime.fromisoformat(self.loaded_at)

    def load_definition(self) -> Definition:
        return Definition.from_dict(dict(self.definition))


def now() -> str:
    """The time a plan is made, as it records it."""
    return datetime.now(UTC).isoformat()


def batch_sections(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a definition (as a dictionary) that decides what a batch gives."""
    return {name: definition.get(name) for name in BATCH_SECTIONS}


def plan_file(load: str, batch: int) -> Path:
    return LoadHome(load).plans / f"{batch}.json"


def read_plan(load: str, batch: int) -> Plan | None:
    """The plan of a batch, if it has one."""
    file = plan_file(load, batch)
    try:
        return Plan(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise LoadStateError(
            f"The plan {file} cannot be read ({error}). Restore it from a backup."
        ) from error


def create_plan(load: str, proposed: Plan) -> Plan:
    """Make the proposed plan the batch's plan, unless it has one; the plan in force comes back."""
    create_once(plan_file(load, proposed.batch), json.dumps(asdict(proposed), indent=1))
    in_force = read_plan(load, proposed.batch)
    assert in_force is not None
    return in_force


def forget_plans(load: str, validated: int) -> None:
    """Delete the plans of batches that were validated long ago; nobody asks for them any more.

    Those validated lately stay: rows that somebody rewrites are checked again, where their plans are there.
    """
    for file in LoadHome(load).plans.glob("*.json*"):
        batch = _BATCH_OF_FILE.match(file.name)
        if batch and int(batch[1]) <= validated - KEPT_PLANS:
            file.unlink(missing_ok=True)


def stream_id(load: str) -> str:
    """The id under which this load's batches are recorded in its tables, made on first use."""
    file = LoadHome(load).stream_id
    create_once(file, json.dumps({"stream_id": f"freshet-{load}-{uuid.uuid4()}"}))
    return str(json.loads(file.read_text())["stream_id"])


def is_current(load: str, stream: str) -> bool:
    """Whether a stream id is still the load's; a load that was reset meanwhile has another or none."""
    try:
        return bool(json.loads(LoadHome(load).stream_id.read_text())["stream_id"] == stream)
    except FileNotFoundError:
        return False


def create_once(file: Path, text: str) -> bool:
    """Write a whole file unless it is there already; false when it was."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    with draft.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(draft, file)  # unlike a rename, a link never replaces what is there
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def replan(definition: Definition) -> int:
    """Take the plan of the unfinished batch away, so that its next run makes a new one.

    Refused once any table carries the batch: what is written was written under the old plan.
    """
    from freshet.streaming.tables import carrying

    load = definition.load
    with held_lease(load):
        batch = Checkpoint(LoadHome(load).checkpoint).pending()
        if batch is None or not plan_file(load, batch).exists():
            raise LoadStateError(f"Load {load!r} has no unfinished batch with a plan to replace.")
        written = carrying(load, stream_id(load), batch)
        if written:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} is already written to {', '.join(written)}; its plan "
                "must stay. Put right what its plan names (see the plan file) and run enrich again."
            )
        # The plan goes last: whoever makes a new one must not find what was left out under the old one.
        for file in (damaged_file(load, batch), plan_file(load, batch)):
            if file.exists():
                file.rename(file.with_name(f"{file.name}.replaced-{int(time.time())}"))
        return batch


def damaged_file(load: str, batch: int) -> Path:
    return LoadHome(load).plans / f"damaged-{batch}.json"


def read_damaged(load: str, batch: int) -> dict[str, str]:
    """The files that a batch leaves out because they broke while they were read, each with what broke."""
    try:
        damaged: dict[str, str] = json.loads(damaged_file(load, batch).read_text())
    except FileNotFoundError:
        return {}
    return damaged


def settle_damaged(load: str, batch: int, damaged: Mapping[str, str]) -> dict[str, str]:
    """Settle which broken files a batch leaves out, before it is written; what was settled first holds.

    It shows only when the files are read, which is after the plan was made.
    """
    create_once(damaged_file(load, batch), json.dumps(dict(damaged), indent=1))
    return read_damaged(load, batch)
