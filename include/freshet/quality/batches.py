"""What validation must know of each batch among the new rows: its plan, and whether its rows are its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from freshet.config import Definition
from freshet.home import LoadHome
from freshet.master.snapshot import snapshot_path
from freshet.quality.files import read_json
from freshet.quality.newrows import Piece, Survey
from freshet.streaming.plan import Plan, read_plan

_LOOKUP_FIELDS = ("name", "key", "stream_key", "add", "unmatched", "defaults")


@dataclass(frozen=True)
class Group:
    """Batches that were loaded under the same definition and time zone, and so are checked alike."""

    definition: Definition
    time_zone: str
    snapshots: Mapping[int, Mapping[str, int]]
    """By batch: the snapshot version of each lookup."""

    def versions(self, lookup: str) -> list[int]:
        return sorted({snapshots[lookup] for snapshots in self.snapshots.values()})


@dataclass(frozen=True)
class Fault:
    """Rows of a file that are not what they claim to be."""

    file: str
    batch: int | None
    problem: str
    foreign: bool
    """Whether no batch of the load has written the rows."""


@dataclass(frozen=True)
class Batches:
    """The batches that the new rows claim to be of."""

    load: str
    survey: Survey
    recorded: frozenset[int]
    """The batches that the ledger has."""
    validated: int | None
    """The last batch that a successful validation has covered."""

    @cached_property
    def plans(self) -> dict[int, Plan | None]:
        return {batch: read_plan(self.load, batch) for batch in self.survey.by_batch}

    @cached_property
    def faults(self) -> list[Fault]:
        return list(self._faults())

    def _faults(self) -> Iterator[Fault]:
        for piece in self.survey.pieces:
            origin = piece.origin
            if piece.batch is None:
                yield Fault(piece.file, None, "has no batch", foreign=True)
            elif origin and origin.foreign:
                yield self._fault(piece, f"version {origin.version}, which wrote it, is no batch of the load")
            elif origin and origin.batch is not None and origin.batch != piece.batch:
                yield self._fault(piece, f"says batch {piece.batch} but was written by batch {origin.batch}")
            elif self.plans[piece.batch] is None and not self._excused(piece.batch):
                unknown = piece.batch not in self.recorded and (origin is None or origin.batch is None)
                yield Fault(piece.file, piece.batch, f"batch {piece.batch} has no plan", foreign=unknown)

    def _fault(self, piece: Piece, problem: str) -> Fault:
        return Fault(piece.file, piece.batch, problem, foreign=True)

    def _excused(self, batch: int) -> bool:
        """Whether a batch's rows were validated once: then its plan and snapshots may be gone."""
        return self.validated is not None and 0 <= batch <= self.validated

    def groups(self) -> list[Group]:
        """The batches that can be checked against their plans."""
        alike: dict[str, list[Plan]] = {}
        for batch, plan in self.plans.items():
            if plan is not None and not (self._excused(batch) and self._misses_snapshots(plan)):
                alike.setdefault(_circumstances(plan), []).append(plan)
        return [
            Group(
                plans[0].load_definition(), plans[0].time_zone, {plan.batch: plan.snapshots for plan in plans}
            )
            for plans in alike.values()
        ]

    def _misses_snapshots(self, plan: Plan) -> bool:
        return any(not snapshot_path(self.load, name, v).is_dir() for name, v in plan.snapshots.items())


def _circumstances(plan: Plan) -> str:
    """What decides how the rows of a batch are checked, as text."""
    definition = plan.definition
    lookups = [{name: lookup[name] for name in _LOOKUP_FIELDS} for lookup in definition["lookups"]]
    return json.dumps(
        [lookups, definition["derive"], definition["stream"], definition["facts"], plan.time_zone],
        sort_keys=True,
    )


def stream_ids(load: str, in_ledger: Iterable[str]) -> frozenset[str]:
    """The ids under which the load's batches are recorded in its tables."""
    own = read_json(LoadHome(load).stream_id)
    return frozenset(in_ledger) | ({own["stream_id"]} if own else set())
