"""Schedules as Airflow takes them: a preset or a cron expression."""

from __future__ import annotations

PRESETS = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")

REMEDY = f'Write null (by hand only), one of {", ".join(PRESETS)}, or a cron expression such as "15 3 * * *"'


def is_schedule(text: str) -> bool:
    """Whether Airflow can run something by this schedule."""
    if text in PRESETS:
        return True
    if text.startswith("@"):
        return False
    # Not at the top: most definitions use presets, and a DAG file must be read quickly.
    from croniter import croniter  # type: ignore[import-untyped]

    return len(text.split()) == 5 and croniter.is_valid(text)
