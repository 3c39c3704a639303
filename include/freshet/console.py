"""What the command line shows: progress on stderr, results on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table

from freshet.progress import Progress as Report
from freshet.progress import silent

if TYPE_CHECKING:
    from freshet.status import LoadStatus


def messages() -> Console:
    """Where people are told how it goes."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Report]:
    """A progress callback that draws a bar for each step."""
    if quiet:
        yield silent
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
    )
    with Progress(*columns, console=messages()) as bars:
        steps: dict[str, TaskID] = {}

        def finish_earlier() -> None:
            for task in bars.tasks:
                bars.update(task.id, total=task.completed)

        def report(step: str, done: int, total: int | None) -> None:
            if step not in steps:
                finish_earlier()
                steps[step] = bars.add_task(step, total=total)
            bars.update(steps[step], completed=done, total=total)

        yield report
        finish_earlier()


@contextmanager
def progress_lines(quiet: bool, doing: str) -> Iterator[Callable[[str], None]]:
    """A callback that prints a line for each thing done, above a sign that work goes on."""
    if quiet:
        yield lambda line: None
        return
    console = messages()
    with console.status(doing):
        yield console.print


def print_result(table: Table) -> None:
    """A table as the result of a command."""
    Console(highlight=False, markup=False).print(table)


def status_table(status: LoadStatus) -> Table:
    """Where a load stands, for people."""
    table = Table(title=f"load {status.load}", title_justify="left", show_header=False)
    for name, value in _status_lines(status):
        table.add_row(name, value)
    return table


def _status_lines(status: LoadStatus) -> Iterator[tuple[str, str]]:
    ledger = status.ledger
    version = "no table yet" if status.facts_version is None else f"version {status.facts_version}"
    yield "facts", f"{status.facts:,} ({version})"
    yield "parked", f"{status.parked.total:,}"
    for reason, count in status.parked.by_reason.items():
        yield f"  {reason}", f"{count:,}"
    yield "batches", f"{status.batches:,}"
    balance = "balances" if ledger.balanced else "DOES NOT BALANCE"
    out = f"{ledger.facts:,} facts + {ledger.parked:,} parked + {ledger.waiting:,} waiting"
    yield "ledger", f"{balance}: {ledger.rows_in:,} in, {out}"
    if ledger.unrecorded > 0:
        yield "  not recorded", f"{ledger.unrecorded:,} rows of a batch that is not finished"
    elif ledger.unrecorded < 0:
        yield "  LOST", f"{-ledger.unrecorded:,} rows that the ledger has and the tables have not"
    for lookup, snapshot in status.snapshots.items():
        yield f"snapshot of {lookup}", "none" if snapshot is None else str(snapshot)
    yield "last good version", "none" if status.last_good is None else str(status.last_good)
    yield "last validation", _validation_line(status)
    if status.running:
        yield "running", f"process {status.running.pid} on {status.running.host}"


def _validation_line(status: LoadStatus) -> str:
    last = status.last_validation
    if last is None:
        return "none"
    state = "passed" if last["success"] else "FAILED"
    return f"{state} at {last['validated_at']}: {last['rows']:,} facts up to version {last['to_version']}"
