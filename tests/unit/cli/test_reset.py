"""`freshet reset` empties a load after asking, and only when nobody works on it."""

from __future__ import annotations

import fcntl
import shutil
import time
from pathlib import Path

import pytest

from freshet.errors import LoadStateError
from freshet.home import LoadHome, freshet_home
from freshet.reset import reset
from tests.unit.cli.conftest import Run, hold_lease


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_it_deletes_what_it_says_and_keeps_the_rest(run: Run, validated: LoadHome) -> None:
    kept = [validated.snapshots("product") / "v000002" / "pages", validated.counts("product")]
    kept += [freshet_home() / "master.db", freshet_home() / "in" / "1.json"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    result = run("reset", "sales", "--yes")
    assert result.exit_code == 0, result.output
    gone = [
        validated.warehouse,
        validated.checkpoint,
        validated.plans,
        validated.validation,
        validated.stream_id,
    ]
    for path in gone:
        assert f"  {path}\n" in result.stdout
        assert not path.exists()
    for path in kept:
        assert path.read_text() == "kept"
    assert "These stay: snapshots, key counts, master tables and the stream's files." in result.stdout
    assert not validated.lease.exists()
    assert not [name for name in contents(freshet_home()) if name.endswith(".deleted")]


def test_it_asks_and_takes_no_for_an_answer(run: Run, loaded: LoadHome) -> None:
    before = contents(freshet_home())
    for answer in ("n\n", "\n", ""):
        result = run("reset", "sales", answer=answer)
        assert result.exit_code == 1
        assert "Empty load sales?" in result.output
        assert str(loaded.warehouse) in result.output
        assert contents(freshet_home()) == before
    assert run("reset", "sales", answer="y\n").exit_code == 0
    assert not loaded.warehouse.exists()


def test_it_refuses_while_a_driver_holds_the_lease(run: Run, loaded: LoadHome) -> None:
    hold_lease(loaded, time.time() + 60)
    before = contents(freshet_home())
    result = run("reset", "sales", "--yes")
    assert result.exit_code == 1
    assert "process 7 on elsewhere" in result.stderr
    assert contents(freshet_home()) - {"loads/sales/lease.lock"} == before


def test_it_refuses_while_a_validation_is_at_work(run: Run, validated: LoadHome) -> None:
    from freshet.quality.files import locked

    with locked(validated.validation_lock):
        result = run("reset", "sales", "--yes")
    assert result.exit_code == 1
    assert "A validation or quarantine of load 'sales' is at work" in result.stderr
    assert validated.warehouse.exists()
    assert run("reset", "sales", "--yes").exit_code == 0


def test_a_validation_that_starts_meanwhile_waits(
    validated: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    delete = shutil.rmtree

    def look_and_delete(path: Path) -> None:
        validated.validation_lock.parent.mkdir(parents=True, exist_ok=True)  # as a validation does
        with validated.validation_lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(False)
            except BlockingIOError:
                held.append(True)
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", look_and_delete)
    targets = reset("sales")
    assert held == [True] * (len(targets) - 1), "for each folder; the stream's id is a file"


def test_a_lease_that_has_run_out_does_not_hinder_it(run: Run, loaded: LoadHome) -> None:
    hold_lease(loaded, time.time() - 1)
    assert run("reset", "sales", "--yes").exit_code == 0
    assert not loaded.lease.exists()


def test_an_empty_load_is_left_as_it_is(run: Run, home: LoadHome) -> None:
    result = run("reset", "sales", "--yes")
    assert (result.exit_code, result.stdout) == (0, "Load sales is empty already.\n")


def test_quiet_says_nothing(run: Run, loaded: LoadHome) -> None:
    assert run("reset", "sales", "--yes", "--quiet").output == ""
    assert not loaded.warehouse.exists()


@pytest.mark.parametrize("load", ["nothing", "../home", "..", "."])
def test_a_name_that_is_no_load_deletes_nothing(run: Run, loaded: LoadHome, load: str) -> None:
    before = contents(freshet_home())
    result = run("reset", load, "--yes")
    assert result.exit_code == 1
    assert "There is no load" in result.stderr
    assert contents(freshet_home()) == before


def test_a_load_whose_definition_is_gone_can_still_be_emptied(
    run: Run, loaded: LoadHome, tmp_path: Path
) -> None:
    (tmp_path / "loads" / "sales.yaml").unlink()
    assert run("reset", "sales", "--yes").exit_code == 0
    assert not loaded.warehouse.exists()


def test_a_reset_that_was_interrupted_is_finished_by_the_next(
    loaded: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = shutil.rmtree

    def fail_halfway(path: Path) -> None:
        if "checkpoint" in path.name:
            raise PermissionError(13, "Permission denied")
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", fail_halfway)
    with pytest.raises(LoadStateError, match=r"checkpoint cannot be deleted \(Permission denied\)"):
        reset("sales")
    assert not loaded.warehouse.exists()
    assert not loaded.checkpoint.exists(), "half a checkpoint would be mistaken for another one"
    assert loaded.stream_id.exists(), "it goes last"
    monkeypatch.undo()


def test_what_an_interrupted_reset_left_behind_is_deleted_too(run: Run, loaded: LoadHome) -> None:
    loaded.checkpoint.rename(loaded.checkpoint.with_name(".checkpoint.deleted"))
    assert run("reset", "sales", "--yes").exit_code == 0
    assert not loaded.checkpoint.with_name(".checkpoint.deleted").exists()


def test_the_last_good_version_goes_before_the_tables(
    validated: LoadHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left behind, it would name a version of the table that the next run fills."""
    delete = shutil.rmtree

    def fail_at_the_tables(path: Path) -> None:
        if "warehouse" in str(path):
            raise PermissionError(13, "Permission denied")
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", fail_at_the_tables)
    with pytest.raises(LoadStateError):
        reset("sales")
    assert not validated.last_good.exists()
