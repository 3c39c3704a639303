"""Definitions that cannot be used: an import error, and no harm to the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml
from airflow.dag_processing.dagbag import DagBag

from tests.dags.conftest import ORDERS


def the_import_error(bag: DagBag) -> str:
    ((path, message),) = bag.import_errors.items()
    assert path.endswith("freshet_refused.py")
    return message


def test_a_bad_definition_is_an_import_error_and_the_others_load(
    loads: Path, fill_bag: Callable[[], DagBag]
) -> None:
    (loads / "broken.yaml").write_text(
        yaml.safe_dump({**ORDERS, "load": "broken", "stream": {**ORDERS["stream"], "format": "xml"}})
    )
    bag = fill_bag()
    message = the_import_error(bag)
    for told in ("broken.yaml", "stream.format", "xml", "json"):
        assert told in message
    assert "orders.enrich" in bag.dags
    assert "broken.enrich" not in bag.dags


def test_every_bad_definition_is_named(loads: Path, fill_bag: Callable[[], DagBag]) -> None:
    (loads / "empty.yaml").write_text("")
    (loads / "garbled.yaml").write_text("load: [")
    message = the_import_error(fill_bag())
    assert "empty.yaml" in message
    assert "garbled.yaml" in message


def test_a_repaired_definition_clears_the_error(loads: Path, fill_bag: Callable[[], DagBag]) -> None:
    (loads / "second.yaml").write_text("load: 7")
    assert fill_bag().import_errors
    (loads / "second.yaml").write_text(yaml.safe_dump({**ORDERS, "load": "second"}, sort_keys=False))
    bag = fill_bag()
    assert bag.import_errors == {}
    assert {"orders.enrich", "second.enrich"} <= set(bag.dag_ids)
