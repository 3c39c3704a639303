"""The manifest of a snapshot: what it holds, where it came from, and how to tell that it is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from freshet.errors import SnapshotError

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checksum:
    """What a file of a snapshot must be."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a snapshot says of itself."""

    version: int
    rows: int
    page_rows: int
    key: str
    key_type: str
    """The Arrow type of the key column."""
    schema: tuple[tuple[str, str], ...]
    """The columns of the pages, the key first, with their Arrow types."""
    column_bytes: Mapping[str, int]
    """The bytes of each column in memory, over all pages."""
    watermark: Mapping[str, Any]
    """Where the rows came from and when they were read."""
    ranked_by: str
    """Where the counts came from: facts, stream or nothing."""
    created_at: str
    checksums: Mapping[str, Checksum] = field(default_factory=dict)
    """Every file of the snapshot but this manifest, by its path in the snapshot's folder."""

    @property
    def pages(self) -> int:
        return -(-self.rows // self.page_rows)

    def to_json(self) -> str:
        """The manifest as text, closed with a digest of itself."""
        body = {"format": FORMAT, **asdict(self)}
        return json.dumps({**body, "digest": _digest(body)}, indent=2) + "\n"


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def damaged(path: Path, what: str) -> SnapshotError:
    """The error for a snapshot that cannot be trusted."""
    load = path.parent.parent.parent.name
    return SnapshotError(
        f"snapshot {path} cannot be used: {what}. Publish a new version with `freshet sort {load}`, "
        "or restore the folder from a backup if a batch that is not finished needs this version"
    )


def read_manifest(path: Path) -> Manifest:
    """The manifest of the snapshot in a folder."""
    try:
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise damaged(path, "it is not there" if not path.exists() else f"{MANIFEST} is missing") from None
    except (ValueError, OSError) as error:
        raise damaged(path, f"{MANIFEST} cannot be read ({type(error).__name__})") from None
    if not isinstance(content, dict):
        raise damaged(path, f"{MANIFEST} is not a JSON object")
    if content.get("format") != FORMAT:
        raise damaged(path, f"its format is {content.get('format')!r} and this version reads format {FORMAT}")
    if content.pop("digest", None) != _digest(content):
        raise damaged(path, f"{MANIFEST} was changed after it was published")
    del content["format"]
    content["schema"] = tuple((name, kind) for name, kind in content["schema"])
    content["checksums"] = {name: Checksum(**entry) for name, entry in content["checksums"].items()}
    return Manifest(**content)


def checksums(folder: Path) -> dict[str, Checksum]:
    """The checksums of all files in a snapshot's folder but the manifest."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    return {str(p.relative_to(folder)): Checksum(p.stat().st_size, _sha256(p)) for p in files}


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Refuse a snapshot that misses a file or has one of another size: cheap enough for every open."""
    for name, expected in manifest.checksums.items():
        try:
            size = (path / name).stat().st_size
        except OSError:
            raise damaged(path, f"{name} is missing") from None
        if size != expected.bytes:
            raise damaged(path, f"{name} has {size:,} bytes instead of {expected.bytes:,}")


def verify(path: Path) -> Manifest:
    """Refuse a snapshot of which any byte differs from what was published. Reads all of it."""
    manifest = read_manifest(path)
    check_sizes(path, manifest)
    for name, expected in manifest.checksums.items():
        if _sha256(path / name) != expected.sha256:
            raise damaged(path, f"the contents of {name} changed after it was published")
    return manifest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
