"""What the environment says of Spark's session, without one that works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.errors import FreshetError
from freshet.streaming.session import build_session, driver_memory, log_level


@pytest.mark.parametrize("written", ["lots", "2", "2gb", "0g", "511m", "1.5g", "-2g", " 2g", "2 g"])
def test_a_driver_memory_that_is_none_is_refused(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_DRIVER_MEMORY", written)
    with pytest.raises(FreshetError, match=rf"^FRESHET_DRIVER_MEMORY is '{written}': .*such as 4g"):
        driver_memory()


@pytest.mark.parametrize(("written", "memory"), [("", "2g"), ("512m", "512m"), ("4G", "4g"), ("1t", "1t")])
def test_a_driver_memory_is_one_that_java_takes(
    written: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_DRIVER_MEMORY", written)
    assert driver_memory() == memory


def test_a_log_level_that_is_none_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.streaming.session.spark_conf", dict)
    monkeypatch.setattr(
        "pyspark.sql.SparkSession.Builder.getOrCreate", lambda builder: pytest.fail("Spark was started")
    )
    monkeypatch.setenv("FRESHET_SPARK_LOG", "LOUD")
    with pytest.raises(FreshetError, match=r"^FRESHET_SPARK_LOG is 'LOUD': write one of ALL, TRACE"):
        build_session("test")
    monkeypatch.setenv("FRESHET_SPARK_LOG", "debug")
    assert log_level() == "DEBUG"


@pytest.mark.parametrize(
    ("variable", "value"), [("JAVA_HOME", "/nonsense"), ("FRESHET_SPARK_MASTER", "nonsense")]
)
def test_a_spark_that_cannot_start_is_one_sentence(variable: str, value: str, tmp_path: Path) -> None:
    """In a process of its own: Java starts once in a process."""
    call = (
        "from freshet.errors import FreshetError\n"
        "from freshet.streaming.session import build_session\n"
        "try:\n    build_session('test')\nexcept FreshetError as error:\n    print(error)"
    )
    environment = {**os.environ, "FRESHET_HOME": str(tmp_path), "FRESHET_SPARK_LOG": "OFF", variable: value}
    done = subprocess.run([sys.executable, "-c", call], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (told,) = done.stdout.splitlines()
    assert told.startswith("Spark cannot start: ") and variable in told
    # What Java's launcher itself says cannot be kept back; nothing of Spark's log is there.
    assert "WARN" not in done.stderr.replace("WARNING: Using incubator modules", "")
