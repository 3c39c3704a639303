"""The tests' own MariaDB: installed only by those who may, and gone when they are done."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests import mariadb as setup
from tests.mariadb import MariaDB

APT_GET = """
echo "apt-get $*" >> {folder}/calls
case $* in *install*) {folder}/policy-rc.d; [ $? = 101 ] && touch {folder}/mariadbd ;; esac
"""
SUDO = """
[ "$1" = -n ] && shift || exit 9
echo "sudo $*" >> {folder}/calls
exec "$@"
"""


class Machine:
    """A machine without the server, with the commands a test puts there."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("cat", "env", "install", "rm", "sh", "touch", "true"):
            self.bin.joinpath(name).symlink_to(str(shutil.which(name)))
        patch.setenv("PATH", str(self.bin))
        patch.setattr(setup, "_POLICY", folder / "policy-rc.d")
        patch.setattr(setup, "_which", lambda: str(self.server) if self.server.exists() else None)

    @property
    def server(self) -> Path:
        return self.folder / "mariadbd"

    def command(self, name: str, body: str) -> None:
        file = self.bin / name
        file.write_text("#!/bin/sh\n" + body.format(folder=self.folder))
        file.chmod(0o755)

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("sudo", [None, "exit 1"], ids=["no sudo", "sudo asks for a password"])
def test_without_the_right_to_install_it_the_tests_fail_and_say_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sudo: str | None
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    machine.command("apt-get", APT_GET)
    if sudo:
        machine.command("sudo", sudo)
    with pytest.raises(pytest.fail.Exception, match="sudo apt-get install mariadb-server"):
        setup.find_mariadbd()
    assert machine.calls() == []


def test_a_failed_installation_fails_the_tests_with_its_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    machine.command("apt-get", "echo 'E: no network'; exit 100")
    with pytest.raises(pytest.fail.Exception, match="could not be installed with apt-get: E: no network"):
        setup.find_mariadbd()
    assert not (machine.folder / "policy-rc.d").exists()


@pytest.mark.parametrize("user", [0, 1000], ids=["root", "sudo"])
def test_it_is_installed_by_root_and_by_who_may_use_sudo_and_no_service_starts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    machine.command("apt-get", APT_GET)
    machine.command("sudo", SUDO)
    assert setup.find_mariadbd() == str(machine.server)
    (apt,) = (call for call in machine.calls() if call.startswith("apt-get"))
    assert "-o DPkg::Lock::Timeout=300" in apt
    by_sudo = [call.split()[1] for call in machine.calls() if call.startswith("sudo")]
    assert by_sudo == ([] if user == 0 else ["true", "install", "env", "rm"])
    assert not (machine.folder / "policy-rc.d").exists()


def test_a_stopped_server_leaves_no_process_behind() -> None:
    with tempfile.TemporaryDirectory(prefix="freshet-mariadb-") as folder:
        server = MariaDB(Path(folder), setup.find_mariadbd())
        server.start()
        process = server.process
        assert process is not None
        assert server.run("SELECT 1") == [(1,)]
        server.stop()
        assert process.returncode == 0
        found = subprocess.run(["pgrep", "-f", folder], capture_output=True, check=False)
        assert found.stdout == b""
