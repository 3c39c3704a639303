"""Provisioning: the demo's product master and stream are made; a user's own tables are only looked at."""

from __future__ import annotations

import logging
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text
from sqlalchemy.engine import Engine

from freshet.environment import whole_number
from freshet.home import freshet_home, resolve
from freshet.master.bulk import bulk_load
from freshet.master.connections import database_errors, describe, engine_for
from freshet.master.database import lookup_schema
from freshet.master.files import remove_abandoned, sync, write_json
from freshet.progress import Progress, silent
from freshet.queries import query
from freshet.workload.sales import FEWEST_SALES, SalesSize, products, sales_files

if TYPE_CHECKING:
    from freshet.config import Definition

DEMO_TABLE = "products"
_LOADING = "products_being_loaded"
_UNFINISHED = ".sales-"

log = logging.getLogger(__name__)


def provision(
    definition: Definition,
    progress: Progress = silent,
    *,
    size: SalesSize | None = None,
    now: datetime | None = None,
) -> list[str]:
    """Make what the demo needs and check what the load's lookups need; what was found and done.

    What is already there stays as it is, so provisioning again changes nothing.
    """
    done = _provision_demo(definition, progress, size or demo_size(), now) if is_demo(definition) else []
    for lookup in definition.lookups:
        lookup_schema(lookup)
        where = describe(engine_for(lookup.connection).url)
        done.append(f"Table {lookup.table} in {where} has the columns that lookup {lookup.name} needs")
    for sentence in done:
        log.info(sentence)
    return done


def is_demo(definition: Definition) -> bool:
    """Whether a load reads the demo's stream; all other loads have tables of their own."""
    return definition.stream.source == "files" and resolve(definition.stream.path) == demo_stream()


def demo_stream() -> Path:
    """The folder of the demo's stream."""
    return freshet_home() / "demo" / "sales"


def demo_planted() -> Path:
    """The file that says how many bad records the demo's stream has, by reason."""
    return freshet_home() / "demo" / "sales.planted.json"


def demo_size() -> SalesSize:
    """How large the demo is: FRESHET_DEMO_SALES and FRESHET_DEMO_PRODUCTS, by default its full size."""
    full = SalesSize()
    sales = whole_number("FRESHET_DEMO_SALES", full.sales, at_least=FEWEST_SALES)
    return full.scaled(sales, whole_number("FRESHET_DEMO_PRODUCTS", full.products, at_least=1))


def _provision_demo(
    definition: Definition, progress: Progress, size: SalesSize, now: datetime | None
) -> list[str]:
    connections = {lookup.connection for lookup in definition.lookups if lookup.table == DEMO_TABLE}
    done = [_provision_table(connection, progress, size) for connection in connections]
    return [*done, _provision_stream(progress, size, now or datetime.now(UTC))]


def _provision_table(connection: str | None, progress: Progress, size: SalesSize) -> str:
    engine = engine_for(connection, local_infile=True)
    where = f"{DEMO_TABLE} in {describe(engine.url)}"
    with database_errors(engine, "looking for the demo's table"):
        if inspect(engine).has_table(DEMO_TABLE):
            return f"Table {where} is there already and was left as it is"
    rows = products(size)
    _run(engine, query("demo/drop", table=_LOADING))
    _run(engine, query("demo/create_products", table=_LOADING))
    bulk_load(engine, _LOADING, rows, progress)
    # Whoever finds the table finds it full.
    _run(engine, query("demo/rename", table=_LOADING, new=DEMO_TABLE))
    return f"Table {where} was made with {len(rows):,} products"


def _run(engine: Engine, statement: str) -> None:
    with database_errors(engine, "making the demo's table"), engine.begin() as connection:
        connection.execute(text(statement))


def _provision_stream(progress: Progress, size: SalesSize, now: datetime) -> str:
    folder = demo_stream()
    if folder.is_dir() and any(folder.iterdir()):
        return f"The sales in {folder} are there already and were left as they are"
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder.parent, _UNFINISHED)
    draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    try:
        for number, (name, contents) in enumerate(sales_files(size, now), start=1):
            (draft / name).write_bytes(contents)
            sync(draft / name)
            progress("writing sales", size.sales * number // size.files, size.sales)
        draft.chmod(0o755)
        write_json(demo_planted(), size.planted.as_dict())
        # The whole stream appears at once: a job that already watches the folder sees no half of it.
        draft.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return f"{size.sales:,} sales were written to {size.files} files in {folder}"
