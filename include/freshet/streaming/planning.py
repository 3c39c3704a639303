"""Planning: how a micro-batch gets its plan, and when a driver must not go on with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from freshet import __version__
from freshet.config import Definition, Lookup
from freshet.errors import LoadStateError, SnapshotError
from freshet.joins.registry import join_type
from freshet.master.snapshot import latest
from freshet.streaming.checkpoint import BatchInput
from freshet.streaming.files import check_files, marks, refused_files
from freshet.streaming.plan import Plan, batch_sections, create_plan, now, read_plan
from freshet.streaming.task import partition_task


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
    check: Callable[[Plan], None] = lambda plan: None
    """Refuses a plan that the tables cannot take."""

    def plan(self, batch: int, batch_input: BatchInput) -> Plan:
        """The batch's plan: the one it has, or a new one from what is in force now."""
        load = self.definition.load
        plan = read_plan(load, batch) or create_plan(load, self._feasible(batch, batch_input))
        if plan.stream_id != self.stream_id:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} was planned for stream {plan.stream_id}; the load is now "
                f"{self.stream_id}: its file stream.json was replaced. Restore it, or start over with "
                f"`freshet reset {load}`."
            )
        if plan.offsets_digest != batch_input.digest:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} was planned for other input than the checkpoint gives it: "
                "the checkpoint was replaced. Restore the one that belongs to the tables, or start over with "
                f"`freshet reset {load}`."
            )
        return plan

    def require_as_planned(self, plan: Plan) -> None:
        """Refuse a batch that would not come out as its plan says: by another driver, or of other files."""
        if not self.fits(plan):
            raise LoadStateError(
                f"Batch {plan.batch} of load {self.definition.load!r} was planned by a driver with another "
                "definition or other settings. Run enrich again: it finishes the batch as it was planned."
            )
        check_files(self.definition, plan)

    def fits(self, plan: Plan) -> bool:
        """Whether a batch loaded by this driver comes out as its plan says."""
        return (
            # Read anew, an earlier version's plan has the fields that have come since, with their defaults.
            batch_sections(plan.load_definition().as_dict()) == batch_sections(self.definition.as_dict())
            and dict(plan.splits) == dict(self.splits)
            and plan.time_zone == self.time_zone
        )

    def _feasible(self, batch: int, batch_input: BatchInput) -> Plan:
        """A new plan that can be carried out; what cannot is refused while it can still be put right."""
        proposed = self.propose(batch, batch_input)
        partition_task(self.definition, proposed)
        self.check(proposed)
        return proposed

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
            code_version=__version__,
            loaded_at=now(),
            time_zone=self.time_zone,
            offsets_digest=batch_input.digest,
            splits=dict(self.splits),
            files=marks(batch_input.files),
            refused=refused_files(self.definition, batch_input.files),
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
