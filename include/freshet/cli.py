"""The command line: every step of a load without Airflow, and a look at where it stands.

An error the user can put right is one message on stderr and exit code 1. Commands import what they need
when they run, so that `freshet --help` and `freshet check` answer at once.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from freshet.config import (
    all_definitions,
    find_definition,
    parse_bytes,
    parse_option,
    parse_seconds,
    read_definition,
)
from freshet.config.algorithms import ALGORITHMS, AUTO
from freshet.config.names import suggestion
from freshet.console import messages, print_result, progress_bars, progress_lines, status_table
from freshet.errors import FreshetError
from freshet.home import for_people, loads_folder


class Commands(TyperGroup):
    """The commands of freshet, with errors for people."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            told = for_people(error)
            if told is None:
                raise
            typer.echo(f"error: {told}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    help="Loads a fast stream of updates into a Delta lakehouse, enriched with master data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Load = Annotated[str, typer.Argument(help="The name of a load.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")]


def _session(name: str) -> Any:
    """Spark for a command: quiet unless asked, as what people must know comes from Freshet itself."""
    from freshet.streaming.session import build_session

    os.environ.setdefault("FRESHET_SPARK_LOG", "FATAL")
    return build_session(name)


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(help="A definition; without it, all of them.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Validate one load definition, or all."""
    definitions, refused = all_definitions() if file is None else ([read_definition(file)], [])
    if not quiet:
        for definition in definitions:
            typer.echo(f"{definition.load}: the definition is right")
        if not definitions and not refused:
            typer.echo(f"There is no definition in {loads_folder()}.")
    for error in refused:
        typer.echo(f"error: {error}", err=True)
    raise typer.Exit(1 if refused else 0)


@app.command()
def provision(load: Load, quiet: Quiet = False) -> None:
    """Make the demo's master table and stream; look whether your own tables have what the load needs."""
    from freshet.master.provision import provision as make

    with progress_bars(quiet) as progress:
        done = make(find_definition(load), progress)
    if not quiet:
        for sentence in done:
            typer.echo(f"{sentence}.")


@app.command()
def sort(
    load: Load,
    min_gain: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Publish only where rows changed, or where the share of tuples served from memory rises by "
            "this much (0 to 1).",
        ),
    ] = 0.0,
    quiet: Quiet = False,
) -> None:
    """Rank the master rows by how often they are asked for, and publish new snapshots."""
    from freshet.sorting import sort as publish

    with progress_bars(quiet) as progress:
        done = publish(find_definition(load), min_gain, progress)
    if not quiet:
        for each in done:
            typer.echo(each)


@app.command()
def enrich(
    load: Load,
    algorithm: Annotated[
        str | None, typer.Option(help=f"{AUTO}, {', '.join(ALGORITHMS)}; by default the definition's.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Bytes of each lookup in each task, such as 64MB; by default the definition's."),
    ] = None,
    run_for: Annotated[
        str | None, typer.Option("--for", help="Begin no batch after this time, such as 10m.")
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when the stream has nothing new.")
    ] = False,
    max_files: Annotated[int | None, typer.Option(min=1, help="Files in the largest micro-batch.")] = None,
    trigger_interval: Annotated[
        str | None, typer.Option(help="Time between the starts of two micro-batches, such as 1s.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Load the stream: until it is idle, for a time, or until Ctrl-C."""
    definition = find_definition(load)
    if algorithm and algorithm not in (AUTO, *ALGORITHMS):
        raise FreshetError(
            f"--algorithm {algorithm}: no such join. {suggestion(algorithm, (AUTO, *ALGORITHMS))}."
        )
    bytes_ = parse_option("--memory", memory, parse_bytes)
    seconds = parse_option("--for", run_for, parse_seconds)
    interval = parse_option("--trigger-interval", trigger_interval, parse_seconds)

    from freshet.streaming.enrich import EnrichOptions
    from freshet.streaming.enrich import enrich as run

    options = EnrichOptions(algorithm, bytes_, seconds, until_idle, max_files, interval)
    with progress_lines(quiet, f"loading {load}") as report:
        spark = _session(f"freshet enrich {load}")
        _end_gently_on_ctrl_c()
        result = run(definition, options, spark, report=report)
    if not quiet:
        typer.echo(result)


def _end_gently_on_ctrl_c() -> None:
    """Let the first Ctrl-C end a run as SIGTERM does, between two micro-batches; the second ends it now."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        messages().print(
            "ending after this micro-batch; Ctrl-C again ends it now (nothing is lost either way)"
        )
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGINT, end)


@app.command()
def validate(load: Load, quiet: Quiet = False) -> None:
    """Validate the facts that are new and move the last good version; exit code 1 when they fail."""
    definition = find_definition(load)

    from freshet.quality.validate import validate as run

    with progress_bars(quiet) as progress:
        result = run(definition, _session(f"freshet validate {load}"), progress)
    if not quiet:
        for line in result.lines():
            typer.echo(line)
    raise typer.Exit(0 if result.success else 1)


@app.command()
def quarantine(load: Load, quiet: Quiet = False) -> None:
    """Move the facts that failed the last validation to the parked table."""
    definition = find_definition(load)

    from freshet.quality.quarantine import quarantine as run
    from freshet.quality.quarantine import why_nothing_moved

    with progress_bars(quiet) as progress:
        moved = run(definition, _session(f"freshet quarantine {load}"), progress)
    if not quiet:
        again = f"{moved:,} facts moved to the parked table. Validate again: freshet validate {load}"
        typer.echo(again if moved else why_nothing_moved(definition))


@app.command("last-good")
def last_good(load: Load) -> None:
    """Print the version of the fact table to read: the newest that passed validation."""
    from freshet.quality.pointer import last_good as pointer

    version = pointer(find_definition(load))
    if version is None:
        raise FreshetError(
            f"Load {load!r} has no good version yet. Validate it first: freshet validate {load}"
        )
    typer.echo(version)


@app.command()
def status(
    load: Load, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False
) -> None:
    """Show where a load stands: facts, parked rows, batches, ledger, snapshots, validation."""
    from freshet.status import load_status

    found = load_status(find_definition(load))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2, default=str))
    else:
        print_result(status_table(found))


@app.command()
def replan(load: Load, quiet: Quiet = False) -> None:
    """Give an unfinished batch a new plan, when it cannot succeed under the one it has."""
    from freshet.streaming.plan import replan as take_away

    batch = take_away(find_definition(load))
    if not quiet:
        typer.echo(f"Batch {batch} gets a new plan when it runs next.")


@app.command()
def reset(
    load: Load,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    quiet: Quiet = False,
) -> None:
    """Empty a load: delete its tables, checkpoint, plans and validation results, after asking."""
    from freshet.reset import KEPT, reset_targets
    from freshet.reset import reset as empty

    targets = reset_targets(load)
    if not targets:
        if not quiet:
            typer.echo(f"Load {load} is empty already.")
        return
    if not (yes and quiet):
        typer.echo("These are deleted:")
        for path in targets:
            typer.echo(f"  {path}")
        typer.echo(f"These stay: {KEPT}.")
    if not yes:
        typer.confirm(f"Empty load {load}?", abort=True)
    empty(load)
    if not quiet:
        typer.echo(f"Load {load} is empty. The next run of enrich reads the stream from the start.")
