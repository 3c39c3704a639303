"""The fixture of the fault tests: a small load to be hurt."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import oracle
from tests.faults.bench import DEFINITION, Bench


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A load with a stream of three files, or of as many as the test's indirect parameter says."""
    files = getattr(request, "param", 3)
    loads = tmp_path / "definitions"
    loads.mkdir()
    (loads / "kills.yaml").write_text(textwrap.dedent(DEFINITION))
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))
    monkeypatch.setenv("FRESHET_LOADS", str(loads))
    oracle.write_stream(tmp_path / "stream", files)
    _one_second_apart(tmp_path / "stream")
    bench = Bench(tmp_path, files)
    yield bench
    for process in bench.started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def _one_second_apart(folder: Path) -> None:
    """Spark reads files in the order of their times."""
    for number, file in enumerate(sorted(folder.iterdir())):
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
