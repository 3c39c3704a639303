"""The commands hand over to the parts that do the work, and talk to people."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.home import LoadHome
from tests.unit.cli.conftest import DEFINITION, Run

COMMANDS = "check provision sort enrich validate status last-good quarantine reset replan".split()


def test_every_command_explains_itself(run: Run) -> None:
    listed = run("--help").output
    for command in COMMANDS:
        assert command in listed
        assert run(command, "--help").exit_code == 0


def test_the_command_line_starts_without_anything_slow() -> None:
    program = (
        "import sys; import freshet.cli;"
        "slow = {'pyarrow', 'pandas', 'pyspark', 'duckdb', 'sqlglot', 'numpy', 'deltalake', 'sqlalchemy'};"
        "sys.exit(', '.join(slow & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_check_says_which_definitions_are_right_and_what_is_wrong_with_the_others(
    run: Run, tmp_path: Path
) -> None:
    assert run("check").stdout == "sales: the definition is right\n"
    (tmp_path / "loads" / "other.yaml").write_text(
        DEFINITION.replace("load: sales", "load: other").replace("in", "?")
    )
    result = run("check")
    assert result.exit_code == 1
    assert result.stdout == "sales: the definition is right\n"
    assert f"error: {tmp_path}/loads/other.yaml is not a usable load definition:" in result.stderr


def test_check_reads_the_file_it_is_given_and_no_other(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loads" / "broken.yaml").write_text("load: [")
    assert run("check", str(tmp_path / "loads" / "sales.yaml")).exit_code == 0
    result = run("check", str(tmp_path / "loads" / "broken.yaml"))
    assert result.exit_code == 1
    assert "broken.yaml" in result.stderr
    assert "line 1" in result.stderr
    assert "Traceback" not in result.output


def test_check_is_quiet_when_asked(run: Run) -> None:
    result = run("check", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_last_good_prints_the_version_and_nothing_else(run: Run, validated: LoadHome) -> None:
    result = run("last-good", "sales")
    assert (result.exit_code, result.stdout) == (0, "0\n")


def test_without_a_good_version_last_good_says_what_to_do(run: Run, loaded: LoadHome) -> None:
    result = run("last-good", "sales")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "freshet validate sales" in result.stderr


def test_a_quarantine_that_moves_nothing_says_why(
    run: Run, validated: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.cli._session", lambda name: None)
    last = json.loads(validated.last_validation.read_text())
    validated.last_validation.write_text(json.dumps({**last, "quarantined": 2}))
    moved = "All 2 facts that failed have been moved already. Validate again: freshet validate sales\n"
    assert run("quarantine", "sales").stdout == moved
    validated.last_validation.write_text(json.dumps({**last, "success": True}))
    none_failed = "No facts failed the last validation; nothing was moved.\n"
    assert run("quarantine", "sales").stdout == none_failed
    validated.last_validation.unlink()
    assert "Load 'sales' has not been validated yet" in run("quarantine", "sales").stdout


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--algorithm", "x-hybrid", "Did you mean 'x-hybridjoin'?"),
        ("--memory", "lots", "such as 64MB"),
        ("--for", "a while", "such as 30s"),
        ("--trigger-interval", "often", "such as 30s"),
    ],
)
def test_enrich_refuses_bad_options_before_it_starts_spark(
    run: Run, option: str, value: str, said: str
) -> None:
    result = run("enrich", "sales", option, value)
    assert result.exit_code == 1
    for told in (option, value, said):
        assert told in result.stderr


def test_enrich_refuses_less_than_one_file(run: Run) -> None:
    assert run("enrich", "sales", "--max-files", "0").exit_code == 2


def test_replan_without_an_unfinished_batch_says_so(run: Run, home: LoadHome) -> None:
    result = run("replan", "sales")
    assert result.exit_code == 1
    assert "no unfinished batch" in result.stderr


def test_replan_takes_the_plan_of_the_unfinished_batch_away(run: Run, home: LoadHome) -> None:
    (home.checkpoint / "offsets").mkdir(parents=True)
    (home.checkpoint / "offsets" / "0").write_text("v1")
    home.plans.mkdir(parents=True)
    (home.plans / "0.json").write_text(json.dumps({"batch": 0}))
    result = run("replan", "sales")
    assert result.exit_code == 0, result.output
    assert result.stdout == "Batch 0 gets a new plan when it runs next.\n"
    assert not (home.plans / "0.json").exists()


def test_a_replan_that_is_killed_leaves_no_damaged_files_to_a_new_plan(
    run: Run, home: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.checkpoint / "offsets").mkdir(parents=True)
    (home.checkpoint / "offsets" / "0").write_text("v1")
    home.plans.mkdir(parents=True)
    for name in ("0.json", "damaged-0.json"):
        (home.plans / name).write_text("{}")
    rename = Path.rename

    def once(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", killed)
        return rename(path, target)

    def killed(*given: object) -> Path:
        raise RuntimeError("killed")

    monkeypatch.setattr(Path, "rename", once)
    assert run("replan", "sales").exit_code == 1
    assert (home.plans / "0.json").exists()
    assert not (home.plans / "damaged-0.json").exists()
    monkeypatch.setattr(Path, "rename", rename)
    assert run("replan", "sales").exit_code == 0
    assert not (home.plans / "0.json").exists()


def test_a_full_disk_is_one_sentence(run: Run, home: LoadHome, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("freshet.sorting.sort", full)
    result = run("sort", "sales")
    assert result.exit_code == 1
    assert "error: The disk is full. Free some space" in result.stderr
    assert "Traceback" not in result.output


def test_a_folder_without_definitions_is_said_to_have_none(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("FRESHET_LOADS", str(tmp_path / "nothing"))
    result = run("check")
    assert result.exit_code == 0
    assert f"There is no definition in {tmp_path / 'nothing'}." in result.output


@pytest.mark.parametrize("command", ["provision", "sort", "status", "last-good", "replan"])
@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_home_that_is_no_folder_is_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, below: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path / "file" / below))
    result = run(command, "sales")
    assert result.exit_code == 1
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"error: FRESHET_HOME, {tmp_path / 'file' / below}, cannot be used (")
    assert line.endswith("or set FRESHET_HOME to a folder of your own.")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_home_that_cannot_be_written_is_one_sentence(
    run: Run, home: LoadHome, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(number, os.strerror(number), str(home.state))

    monkeypatch.setattr("freshet.sorting.sort", refused)
    result = run("sort", "sales")
    assert result.exit_code == 1
    assert f"cannot be used ({home.state}: {os.strerror(number)}). Give yourself" in result.stderr


def test_what_cannot_be_read_elsewhere_keeps_its_traceback(
    run: Run, home: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere")

    monkeypatch.setattr("freshet.sorting.sort", refused)
    assert isinstance(run("sort", "sales").exception, PermissionError)
