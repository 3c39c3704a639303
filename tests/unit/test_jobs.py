"""The jobs' ends that need no Spark: an error for people is one message, and an exit code that says so."""

from __future__ import annotations

import errno
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from freshet.home import PROJECT

Run = Callable[..., int]
DEFINITION = """
load: sales
stream:
  path: in
  format: json
  columns: {sale_id: string, product_id: bigint, quantity: int}
  event_id: sale_id
lookups:
  - {name: product, table: products, key: product_id, add: [price]}
facts: {table: sales_facts, columns: [sale_id, quantity, price]}
"""


def job(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_job", PROJECT / "jobs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "loads" / "sales.yaml"
    file.parent.mkdir()
    file.write_text(DEFINITION)
    monkeypatch.setenv("FRESHET_LOADS", str(file.parent))
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path / "home"))
    return file


@pytest.fixture
def run(definition: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A job's exit code. Spark is not started; `error` is how the work ends that would begin with it."""

    def ended(name: str, *options: str, error: Exception | None = None) -> int:
        def work(*_: Any, **__: Any) -> None:
            assert error, "the job began to work"
            raise error

        module = job(name)
        monkeypatch.setattr(module, name, work)
        monkeypatch.setattr(module, "build_session", work, raising=False)
        monkeypatch.setattr("sys.argv", [f"{name}.py", "--load", "sales", *options])
        return int(module.main())

    return ended


@pytest.mark.parametrize(("name", "code"), [("enrich", 1), ("validate", 2)])
def test_a_wrong_definition_is_named_with_file_field_value_and_remedy(
    run: Run, definition: Path, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    definition.write_text(DEFINITION.replace("format: json", "format: xml"))
    assert run(name) == code
    said = capsys.readouterr().err
    for told in ("error: ", str(definition), "line 5", "stream.format", "'xml'", "json"):
        assert told in said


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--memory", "plenty", "such as 64MB"),
        ("--for", "tomorrow", "such as 30s"),
        ("--trigger-interval", "often", "such as 30s"),
        ("--algorithm", "nested-loop", "x-hybridjoin"),
    ],
)
def test_enrich_refuses_a_wrong_option(
    run: Run, capsys: pytest.CaptureFixture[str], option: str, value: str, remedy: str
) -> None:
    assert run("enrich", option, value) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert value in said
    assert remedy in said
    assert option in said or option == "--algorithm"


@pytest.mark.parametrize(("name", "code"), [("enrich", 1), ("validate", 2)])
@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "The disk is full. Free some space"),
        (errno.EACCES, "FRESHET_HOME, {home}, cannot be used"),
    ],
    ids=["full disk", "no right to write"],
)
def test_what_people_can_put_right_is_one_sentence(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    code: int,
    number: int,
    told: str,
) -> None:
    home = tmp_path / "home"
    assert run(name, error=OSError(number, "refused", str(home))) == code
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {told.format(home=home)}")


@pytest.mark.parametrize("name", ["enrich", "validate"])
def test_a_defect_keeps_its_traceback(run: Run, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        run(name, error=ZeroDivisionError())
