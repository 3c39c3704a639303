"""Sorting the master data of a load by access frequency, and publishing what is worth it.

A new snapshot is worth it when the master rows have changed, or when the hot part would serve enough more of
the stream under the new order than it does under the present one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from freshet.config import Definition, Lookup
from freshet.errors import SnapshotError
from freshet.frequency.count import count_keys
from freshet.joins.registry import join_type
from freshet.master.contents import CONTENTS
from freshet.master.retention import retain
from freshet.master.snapshot import SnapshotStore, latest, open_snapshot, snapshot_path
from freshet.master.sort import RankedMaster, ranked_master
from freshet.progress import Progress, silent

ALWAYS = 0.0
"""The least gain with which every new order is published."""


@dataclass(frozen=True)
class Sorted:
    """What sorting did for one lookup, and why."""

    lookup: str
    version: int
    """The newest snapshot, new or not."""
    published: bool
    reason: str

    def __str__(self) -> str:
        done = f"Published snapshot {self.version}" if self.published else f"Kept snapshot {self.version}"
        return f"{done} of lookup {self.lookup}: {self.reason}."


def sort(definition: Definition, min_gain: float = ALWAYS, progress: Progress = silent) -> list[Sorted]:
    """Count the keys of every lookup, rank its master rows, and publish the snapshots that are worth it."""
    done = []
    for lookup in definition.lookups:
        progress(f"counting {lookup.name} keys", 0, None)
        counts = count_keys(definition, lookup)
        done.append(sort_lookup(definition, lookup, counts, min_gain, progress))
    return done


def sort_lookup(
    definition: Definition,
    lookup: Lookup,
    counts: Path | None,
    min_gain: float = ALWAYS,
    progress: Progress = silent,
) -> Sorted:
    """Rank the master rows of a lookup by these counts; publish them if they changed or gain enough."""
    with ranked_master(definition, lookup, counts, progress=progress) as ranked:
        version = latest(definition.load, lookup.name)
        if version is None:
            return Sorted(lookup.name, ranked.publish(), True, "it is the first")
        changed = _what_changed(ranked, snapshot_path(definition.load, lookup.name, version))
        if changed:
            return Sorted(lookup.name, ranked.publish(), True, changed)
        now, possible = hot_shares(ranked, _open(definition, lookup, version))
        shares = f"the hot part serves {now:.1%} of the stream and could serve {possible:.1%}"
        if possible - now >= min_gain:
            return Sorted(lookup.name, ranked.publish(), True, shares)
        retain(definition.load, lookup.name)  # publishing would have done so
        return Sorted(lookup.name, version, False, f"{shares}; that gains less than {min_gain:.1%}")


def _what_changed(ranked: RankedMaster, newest: Path) -> str | None:
    """What of the newest snapshot is no longer true, its order aside."""
    try:
        manifest = open_snapshot(newest, []).manifest
    except SnapshotError as error:
        return str(error)
    if manifest.key != ranked.lookup.key:
        return "the lookup has another key than before"
    if [name for name, _ in manifest.schema] != ranked.rows.schema.names:
        return "the lookup has other columns than before"
    # The digest of rows does not tell types apart that store a value alike: 1250 and 12.50, say.
    for field, (_, before) in zip(ranked.rows.schema, manifest.schema, strict=True):
        if str(field.type) != before:
            return f"column {field.name} is now {field.type} and was {before}"
    for name in ("connection", "table"):  # enrich takes no snapshot of another one, however equal its rows
        if manifest.watermark.get(name) != ranked.watermark[name]:
            return f"the lookup has another {name} than before"
    if manifest.watermark.get(CONTENTS) != ranked.watermark[CONTENTS]:
        return "the master rows have changed"
    return None


def _open(definition: Definition, lookup: Lookup, version: int) -> SnapshotStore:
    return open_snapshot(
        snapshot_path(definition.load, lookup.name, version), list(dict.fromkeys(lookup.add.values()))
    )


def hot_shares(ranked: RankedMaster, store: SnapshotStore) -> tuple[float, float]:
    """The share of the counted tuples that the hot part serves under the present order, and under the new."""
    lookup = ranked.lookup
    hot_rows = join_type(lookup.algorithm).hot_rows(lookup.memory, store, lookup.settings)
    counts = ranked.ranks.counts
    total = max(int(counts.sum()), 1)
    served = start = 0
    for batch in ranked.rows:
        new_ranks = ranked.ranks.of_row[start : start + len(batch)]
        is_hot = store.locate(batch.column(lookup.key)) < hot_rows
        served += int(counts[new_ranks[is_hot]].sum())
        start += len(batch)
    return served / total, int(counts[:hot_rows].sum()) / total
