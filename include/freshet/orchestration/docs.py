"""The documentation that Airflow shows beside each DAG."""

from __future__ import annotations

from freshet.config import Definition

SENTENCES = {
    "provision": "fill the master tables, sample the stream, publish the first snapshots",
    "enrich": "join the stream with the master data and load the facts",
    "validate": "check the new facts and move the last good version",
    "resort": "count the keys again and publish new snapshots where it pays",
}

_DETAILS = {
    "provision": """
Run it once, by hand, before the first `enrich`; running it again does no harm.

1. **provision** makes the master table and the stream of the demo. Tables of your own are only looked at.
2. **sample** counts the keys in the facts or, as long as there are none, in a sample of the stream.
3. **sort** ranks the master rows by these counts and publishes an immutable snapshot of each lookup.
""",
    "enrich": """
Switch it on to load the stream as it comes. One run at a time reads the stream for the time *Run for*, ends
between two micro-batches, and the next run goes on where it stopped: so parameters and code change
without loss. Stopping, clearing or killing a run loses nothing and doubles nothing.

Facts carry the master attributes of the snapshot that their batch used. Records that cannot be loaded are in
the table `parked`, with the reason; every micro-batch has a row in `batches`.
""",
    "validate": """
Runs by itself after each run of `enrich`. It checks the facts that are new since the last good version,
writes Data Docs, and moves the *last good version* when all expectations hold. When some do not, the version
stays where it was and the log names the failing rows; `freshet quarantine {load}` moves them to `parked`.
""",
    "resort": """
Publishes snapshots only; the enrich job takes them up with its next micro-batch.

1. **recount** counts the keys in the facts.
2. **sort** ranks the master rows by these counts. It publishes the snapshot of a lookup when the master
   rows have changed, or when the share of tuples served from memory would rise by the *Least gain*; when none
   is worth it, the task is skipped. Its log tells both shares.
""",
}


def dag_docs(definition: Definition, step: str) -> str:
    """The page of one DAG of a load."""
    lookups = "\n".join(
        f"| {lookup.name} | `{lookup.table}` in {lookup.connection or 'the embedded database'} "
        f"| `{lookup.stream_key}` = `{lookup.key}` | {lookup.unmatched} | {lookup.algorithm} |"
        for lookup in definition.lookups
    )
    return f"""### {definition.load}.{step}: {SENTENCES[step]}

{definition.description}
{_DETAILS[step].format(load=definition.load)}
| lookup | master table | by | unmatched | algorithm |
|---|---|---|---|---|
{lookups}
"""
