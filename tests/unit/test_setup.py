"""Set-up (tools/setup), run with a doctored PATH: what it does, and what it says when it cannot."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.home import PROJECT

NEEDED = [
    "awk",
    "bash",
    "cat",
    "cp",
    "df",
    "dirname",
    "env",
    "flock",
    "grep",
    "id",
    "mkdir",
    "realpath",
    "rm",
    "sed",
    "sha256sum",
    "tail",
]
JAVA_17 = "echo '    java.home = /opt/java'; echo '    java.specification.version = 17'"
JAVA_11 = "echo '    java.home = /opt/java'; echo '    java.specification.version = 11'"
# A Python that makes an environment of itself, and notes what it is asked to do.
NOTING_PYTHON = """
echo "$*" >> "$CALLS"
[ "$1 $2" = "-m venv" ] || exit 0
mkdir -p "$3/bin"
echo "$3" > "$3/bin/activate"
for name in python uv; do cp "$0" "$3/bin/$name"; done
"""


class Machine:
    """A copy of the set-up in a folder with a space, and a PATH that holds what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "a project"
        self.bin = folder / "bin"
        self.calls = folder / "calls"
        self.bin.mkdir()
        self.project.mkdir()
        shutil.copytree(PROJECT / "tools", self.project / "tools")
        for name in ("requirements.txt", "pyproject.toml"):
            shutil.copy(PROJECT / name, self.project)
        for name in NEEDED:
            self.bin.joinpath(name).symlink_to(str(shutil.which(name)))
        self.environment = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "FRESHET_JVMS": str(folder / "no jvms"),
        }
        self.environment |= {"CALLS": str(self.calls)}

    def command(self, name: str, body: str) -> None:
        """Put a shell script on the PATH."""
        file = self.bin / name
        file.unlink(missing_ok=True)
        file.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def python(self, before: str = "") -> None:
        self.command("python3", f'{before}\nexec "{sys.executable}" "$@"')

    def nobody(self) -> None:
        """Take away the right to install."""
        self.command("id", "echo 1000")
        self.command("apt-get", "exit 1")

    def set_up(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.project / "tools" / "setup"],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def refusal(self, **environment: str) -> str:
        """The one sentence with which set-up fails."""
        done = self.set_up(**environment)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_fitting_python_it_says_which_to_install(machine: Machine) -> None:
    machine.command("python3.12", "echo 'shim: command not found' >&2; exit 127")
    machine.command("python3", "exit 1")
    assert "No Python 3.11 or 3.12 on PATH: install one" in machine.refusal()


def test_a_named_python_of_another_version_is_refused(machine: Machine) -> None:
    machine.command("python3.9", "exit 1")
    assert "PYTHON=python3.9 is not Python 3.11 or 3.12" in machine.refusal(PYTHON="python3.9")


@pytest.mark.parametrize("java", [None, JAVA_11], ids=["none", "java 11"])
def test_without_java_and_the_right_to_install_it_it_says_what_to_run_as_root(
    machine: Machine, java: str | None
) -> None:
    machine.python()
    machine.nobody()
    if java:
        machine.command("java", java)
    message = machine.refusal()
    assert "No Java 17 to 21 found" in message
    assert "apt-get install openjdk-17-jre-headless" in message


def test_without_the_venv_module_it_says_which_package_to_install(machine: Machine) -> None:
    machine.python(before="[[ $* = *ensurepip* ]] && exit 1")
    machine.nobody()
    machine.command("java", JAVA_17)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert f"run 'apt-get install {version}-venv' as root" in machine.refusal()


def test_without_a_network_it_says_so_and_names_the_log(machine: Machine) -> None:
    machine.python()
    machine.command("java", JAVA_17)
    message = machine.refusal(PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0")
    assert "The network cannot be reached" in message
    assert str(machine.project / ".freshet" / "log" / "pip.log") in message


def test_a_nearly_full_disk_is_refused_before_anything_is_fetched(machine: Machine) -> None:
    machine.python()
    machine.command("df", "echo Filesystem; echo disk 5000000 4897600 102400 98% /")
    message = machine.refusal()
    assert "has 100 MiB free and set-up needs 4 GiB: free some space" in message
    assert not (machine.project / ".freshet" / "venv").exists()


def test_a_disk_that_fills_on_the_way_is_named(machine: Machine) -> None:
    machine.python(before="[[ $* = *'-m venv'* ]] && echo 'OSError: No space left on device' && exit 1")
    machine.command("java", JAVA_17)
    assert "The disk is full: free some space" in machine.refusal()


def test_a_folder_that_cannot_be_written_is_named(machine: Machine) -> None:
    assert "Cannot write to /proc/freshet" in machine.refusal(FRESHET_TOOLS="/proc/freshet")


def test_any_other_failure_shows_its_last_line_and_the_log(machine: Machine) -> None:
    machine.python(before="[[ $* = *'-m venv'* ]] && echo 'it broke' && exit 1")
    machine.command("java", JAVA_17)
    assert "failed: it broke (log: " in machine.refusal()


def test_set_up_runs_again_only_when_what_it_installs_changed(machine: Machine, tmp_path: Path) -> None:
    machine.command("python3", NOTING_PYTHON)
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch(mode=0o755)
    machine.command("java", JAVA_17.replace("/opt/java", str(java)))

    assert machine.set_up().returncode == 0
    asked = machine.calls.read_text()
    assert "-m freshet.streaming.session" in asked
    assert f"JAVA_HOME={java}" in (machine.project / ".freshet" / "env").read_text()

    again = machine.set_up()
    assert (again.returncode, again.stdout) == (0, "")
    assert machine.calls.read_text() == asked

    with (machine.project / "requirements.txt").open("a") as requirements:
        requirements.write("another==1.0\n")
    assert machine.set_up().returncode == 0
    assert "-r requirements.txt" in machine.calls.read_text().removeprefix(asked)
    assert "-m venv" not in machine.calls.read_text().removeprefix(asked)


@pytest.mark.parametrize("named", ["../big tools", None], ids=["another folder", "the project's own"])
def test_a_shell_that_took_the_environment_knows_where_the_tools_are(
    machine: Machine, tmp_path: Path, named: str | None
) -> None:
    machine.command("python3", NOTING_PYTHON)
    machine.command("java", JAVA_17)
    assert machine.set_up(**({"FRESHET_TOOLS": named} if named else {})).returncode == 0
    folder = tmp_path / "big tools" if named else machine.project / ".freshet"
    seen = subprocess.run(
        ["bash", "-c", '. "$1"; env', "bash", folder / "env"],
        env={"PATH": machine.environment["PATH"], "FRESHET_TOOLS": "stale"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    tools = [line for line in seen.splitlines() if line.startswith("FRESHET_TOOLS=")]
    assert tools == ([f"FRESHET_TOOLS={folder}"] if named else [])


def test_an_environment_that_was_moved_is_made_anew(machine: Machine) -> None:
    machine.command("python3", NOTING_PYTHON)
    machine.command("java", JAVA_17)
    assert machine.set_up().returncode == 0
    machine.project = machine.project.rename(machine.project.with_name("elsewhere"))
    asked = machine.calls.read_text()
    assert machine.set_up().returncode == 0
    assert "-m venv" in machine.calls.read_text().removeprefix(asked)
