"""Planning: how a micro-batch gets its plan, and when a driver must not go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from freshet.config import Definition, Lookup
from freshet.errors import LoadStateError, SnapshotError
from freshet.joins.registry import join_type
from freshet.master.snapshot import latest
from freshet.streaming.checkpoint import BatchInput
from freshet.streaming.plan import Plan, create_plan, now, read_plan


@dataclass(frozen=True)
class Planner:
    """What a driver puts into the plans it makes."""

    definition: Definition
    stream_id: str
    splits: Mapping[str, str]
    time_zone: str
    algorithm: str | None = None
    """Instead of each lookup's own."""
    memory: int | None = None
    """Instead of each lookup's own."""

    def plan(self, batch: int, batch_input: BatchInput) -> Plan:
        """The batch's plan: the one it has, or a new one from what is in force now."""
        load = self.definition.load
        plan = read_plan(load, batch) or create_plan(load, self.propose(batch, batch_input))
        if plan.offsets_digest != batch_input.digest:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} was planned for other input than the checkpoint gives it: "
                "the checkpoint was replaced. Restore the one that belongs to the tables, or start over with "
                f"`freshet reset {load}`."
            )
        if dict(plan.splits) != dict(self.splits) or plan.time_zone != self.time_zone:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} was planned by a driver with other settings "
                f"({dict(plan.splits)}, {plan.time_zone}). Run enrich again: it takes them over."
            )
        return plan

    def propose(self, batch: int, batch_input: BatchInput) -> Plan:
        """The plan a batch would get now."""
        lookups = self.definition.lookups
        return Plan(
            batch=batch,
            stream_id=self.stream_id,
            definition=self.definition.as_dict(),
            snapshots={lookup.name: published_version(self.definition, lookup) for lookup in lookups},
            algorithms={
                lookup.name: join_type(self.algorithm or lookup.algorithm).name for lookup in lookups
            },
            memory={lookup.name: self.memory or lookup.memory for lookup in lookups},
            code_version=version("freshet"),
            loaded_at=now(),
            time_zone=self.time_zone,
            offsets_digest=batch_input.digest,
            splits=dict(self.splits),
        )


def published_version(definition: Definition, lookup: Lookup) -> int:
    """The newest snapshot of a lookup; refused when there is none."""
    found = latest(definition.load, lookup.name)
    if found is None:
        raise SnapshotError(
            f"Lookup {lookup.name!r} of load {definition.load!r} has no snapshot. "
            f"Run `freshet sort {definition.load}`."
        )
    return found
