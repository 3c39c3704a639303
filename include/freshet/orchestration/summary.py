"""What the demo has loaded, in the numbers a person would ask for, and whether it is what was planted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from freshet.config import Definition, format_bytes
from freshet.delta import read_rows
from freshet.errors import FreshetError
from freshet.home import LoadHome
from freshet.master.provision import demo_planted, demo_stream
from freshet.status import LoadStatus, load_status


@dataclass(frozen=True)
class Summary:
    """A load that has been run from its stream to validated facts."""

    definition: Definition
    status: LoadStatus
    batches: list[dict[str, Any]]
    """The rows of the `batches` table."""
    planted: dict[str, int]
    """How many bad records the stream has, by reason."""

    @classmethod
    def read(cls, definition: Definition) -> Summary:
        rows = sorted(read_rows(LoadHome(definition.load).batches), key=lambda row: row["batch"])
        return cls(definition, load_status(definition), rows, _planted())

    def problems(self) -> Iterator[str]:
        """What is not as it must be; nothing when the demo has worked."""
        status = self.status
        if status.parked.by_reason != self.planted:
            yield f"parked are {_counts(status.parked.by_reason)}, but planted were {_counts(self.planted)}"
        if not status.ledger.balanced or status.ledger.unrecorded:
            yield "the ledger does not balance"
        there = status.facts + status.parked.total
        if status.ledger.rows_in != there:
            yield f"{status.ledger.rows_in:,} tuples came in, {there:,} are in the tables"
        if not (status.last_validation or {}).get("success"):
            yield "the facts did not pass validation"
        elif status.last_good != status.facts_version:
            yield f"version {status.facts_version} of the facts is not the last good one ({status.last_good})"

    def table(self) -> Table:
        """The numbers, for people."""
        table = Table(title=f"Load {self.definition.load}", title_justify="left", show_header=False)
        for name, value in self.lines():
            table.add_row(name, value)
        return table

    def lines(self) -> Iterator[tuple[str, str]]:
        status = self.status
        yield "tuples in", f"{status.ledger.rows_in:,}"
        yield "facts", f"{status.facts:,}"
        yield "parked", f"{status.parked.total:,}"
        for reason, count in status.parked.by_reason.items():
            yield f"  {reason}", f"{count:,} (planted: {self.planted.get(reason, 0):,})"
        yield "micro-batches", f"{len(self.batches):,}"
        seconds = sum(row["seconds"] for row in self.batches)
        yield "service rate", f"{status.ledger.rows_in / seconds:,.0f} tuples/s"
        for lookup in self.definition.lookups:
            yield from self._lookup_lines(lookup.name)
        yield "validation", self._validation()
        yield "last good version", str(status.last_good)

    def _lookup_lines(self, name: str) -> Iterator[tuple[str, str]]:
        rows = [lookup for batch in self.batches for lookup in batch["lookups"] if lookup["name"] == name]
        if not rows:
            return
        joined = sum(row["joined"] for row in rows)
        budget, peak = rows[-1]["memory"], max(row["peak_bytes"] for row in rows)
        snapshots = sorted({row["snapshot"] for row in rows})
        yield f"lookup {name}", rows[-1]["algorithm"]
        yield "  snapshot version", ", ".join(map(str, snapshots))
        yield "  served from the hot part", f"{sum(row['hot'] for row in rows) / max(joined, 1):.1%}"
        yield "  pages read", f"{sum(row['page_reads'] for row in rows):,}"
        yield "  peak memory", f"{format_bytes(peak)} of {format_bytes(budget)} ({peak / budget:.0%})"

    def _validation(self) -> str:
        last = self.status.last_validation
        if last is None:
            return "none"
        held = sum(expectation["success"] for expectation in last["expectations"])
        state = "passed" if last["success"] else "FAILED"
        return f"{state}: {held} of {len(last['expectations'])} expectations hold for {last['rows']:,} facts"


def _planted() -> dict[str, int]:
    """What the demo's generator has written down of the stream it has made."""
    try:
        planted: dict[str, int] = json.loads(demo_planted().read_text())
    except FileNotFoundError:
        raise FreshetError(
            f"{demo_planted()} is gone, so nobody knows what is bad in {demo_stream()}: remove that folder, "
            "and the demo makes both anew."
        ) from None
    return planted


def _counts(by_reason: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(by_reason.items())) or "none"
