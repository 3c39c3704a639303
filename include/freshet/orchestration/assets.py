"""The assets that link a load's DAGs."""

from __future__ import annotations

from airflow.sdk import Asset


def facts_asset(load: str) -> Asset:
    """The fact table: `enrich` produces it, `validate` follows it."""
    return Asset(name=f"{load}.facts", uri=f"freshet://{load}/facts", group="freshet")


def snapshot_asset(load: str, lookup: str) -> Asset:
    """The published snapshots of one lookup's master data: `sort` produces them."""
    return Asset(
        name=f"{load}.{lookup}.snapshot", uri=f"freshet://{load}/snapshots/{lookup}", group="freshet"
    )
