"""Promises about the repository itself: pinned versions, import contracts, commands and links that exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from freshet.cli import app
from freshet.config import read_definition
from freshet.home import PROJECT

PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ;*]+)( ; .+)?$")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work)/\w")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.org|proxy\.golang\.org|maven\.org|docker\.io|ghcr\.io|quay\.io"
)


def requirements() -> dict[str, set[str]]:
    """The pinned versions of each package; a package may have one for each version of Python."""
    pins: dict[str, set[str]] = {}
    for line in (PROJECT / "requirements.txt").read_text().splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            pin = PIN.match(line)
            assert pin, f"not an exact pin: {line}"
            pins.setdefault(pin["name"], set()).add(pin["version"])
    return pins


def tracked_text_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    files = [PROJECT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()[:1024]]


def documents() -> list[Path]:
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def test_every_requirement_is_pinned_exactly() -> None:
    assert len(requirements()) > 100


def test_every_declared_dependency_is_pinned() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    declared = list(project["project"]["dependencies"])
    for group in project["dependency-groups"].values():
        declared += group
    names = {re.split(r"[\[<>=! ]", name, maxsplit=1)[0].lower() for name in declared}
    assert names - set(requirements()) == set()


def test_pyspark_and_its_client_are_of_one_version() -> None:
    pins = requirements()
    assert pins["pyspark"] == pins["pyspark-client"]


def test_the_import_contracts_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint_imports, "--no-logo", "--no-cache"], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("document", documents(), ids=lambda file: file.name)
def test_every_make_command_in_a_document_exists(document: Path) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", document.read_text(), re.MULTILINE))
    assert named - make_targets() == set()


@pytest.mark.parametrize("document", documents(), ids=lambda file: file.name)
def test_every_freshet_command_in_a_document_exists(document: Path) -> None:
    known = set(getattr(get_command(app), "commands", {}))
    named = set(re.findall(r"(?:`|^\$? *)freshet ([a-z][a-z-]*)", document.read_text(), re.MULTILINE))
    assert named - known == set()


def test_the_definition_in_the_readme_is_right(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.+?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert example
    file = tmp_path / "orders.yaml"
    file.write_text(example[1])
    assert read_definition(file).load == "orders"


def test_every_variable_that_freshet_reads_is_in_the_readme() -> None:
    readers = [
        *(PROJECT / "include").rglob("*.py"),
        PROJECT / "tools" / "setup",
        PROJECT / "tools" / "lib.sh",
    ]
    read = {name for file in readers for name in re.findall(r"FRESHET_[A-Z_]*[A-Z]\b(?!_)", file.read_text())}
    table = set(re.findall(r"`([A-Z_]+)`", (PROJECT / "README.md").read_text()))
    assert {"FRESHET_HOME", "FRESHET_LEASE_SECONDS"} <= read
    assert read - table == set()


@pytest.mark.parametrize("document", documents(), ids=lambda file: file.name)
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_every_make_target_is_explained_by_make_help() -> None:
    helped = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+)", helped, re.MULTILINE)) == make_targets()


def test_no_tracked_file_names_a_path_of_one_machine_or_a_package_registry() -> None:
    here = Path(__file__)
    found = [
        f"{file.relative_to(PROJECT)}:{number}: {line.strip()}"
        for file in tracked_text_files()
        if file != here
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line) or REGISTRY.search(line)
    ]
    assert found == []
