"""The tasks that need no Spark: filling master tables, counting keys, publishing snapshots.

Each imports what it needs when it runs: a DAG file is parsed every few seconds.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.sdk import Asset, task
from airflow.sdk.exceptions import AirflowSkipException

from freshet.config import Definition, find_definition
from freshet.orchestration.assets import snapshot_asset
from freshet.orchestration.connections import connections_of

log = logging.getLogger("freshet")


def snapshots(definition: Definition) -> list[Asset]:
    """What `sort` produces."""
    return [snapshot_asset(definition.load, lookup.name) for lookup in definition.lookups]


@task
def provision(load: str) -> None:
    """Make the demo's master table and stream; look whether other tables have what the load needs."""
    from freshet.master.provision import provision as fill

    definition = find_definition(load)
    with connections_of(definition):
        fill(definition, progress=log_progress)


@task
def count(load: str) -> None:
    """Count how often each key of each lookup is asked for, in the facts or in a sample of the stream."""
    from freshet.frequency.count import count_keys

    definition = find_definition(load)
    for lookup in definition.lookups:
        counted = count_keys(definition, lookup)
        log.info("Counts of the lookup %s: %s", lookup.name, counted or "none, nothing has been read yet")


@task
def sort(load: str, params: dict[str, Any] | None = None) -> dict[str, int]:
    """Rank the master rows by the last counts and publish what is worth it; the new versions by lookup."""
    from freshet.home import LoadHome
    from freshet.sorting import ALWAYS, sort_lookup

    definition = find_definition(load)
    min_gain = (params or {}).get("min_gain", ALWAYS)
    published = {}
    with connections_of(definition):
        for lookup in definition.lookups:
            counts = LoadHome(load).counts(lookup.name)
            done = sort_lookup(
                definition, lookup, counts if counts.exists() else None, min_gain, log_progress
            )
            log.info("%s", done)
            if done.published:
                published[lookup.name] = done.version
    if not published:
        # Skipped, so that nobody is told of snapshots that are not new.
        raise AirflowSkipException("The snapshots are as good as new ones would be; none was published.")
    return published


def log_progress(step: str, done: int, total: int | None) -> None:
    """Progress as lines of the task's log."""
    log.info("%s: %s%s", step, f"{done:,}", f" of {total:,}" if total else "")
