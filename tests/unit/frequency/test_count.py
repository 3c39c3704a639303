"""Keys are counted in the facts, else in the stream, else not at all."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from freshet.config import Definition
from freshet.frequency import count as counting
from freshet.frequency import sample as sampling
from freshet.frequency.count import COUNTED_FROM, count_keys
from freshet.home import LoadHome
from freshet.master.manifest import read_manifest
from freshet.master.snapshot import snapshot_path
from freshet.sorting import sort
from tests.masterdata import LOAD, load_with, lookup_of, snapshot_rows, sqlite_table

KEYS = [5, 5, 5, 2, 2, 9, 5, 1]
EXPECTED = Counter(KEYS)


def counted(definition: Definition) -> tuple[str, dict[Any, int]] | None:
    """Where the counts came from, and the counts."""
    path = count_keys(definition, lookup_of(definition))
    if path is None:
        return None
    table = pq.read_table(path)
    assert path == LoadHome(LOAD).counts("item")
    return table.schema.metadata[COUNTED_FROM].decode(), dict(
        zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True)
    )


def write_facts(columns: dict[str, Any], **options: Any) -> None:
    write_deltalake(str(LoadHome(LOAD).facts("order_facts")), pa.table(columns), mode="append", **options)


def without_hive_folders() -> None:
    """Move the facts' files into folders that tell nothing, as delta.randomizeFilePrefixes has it."""
    table = LoadHome(LOAD).facts("order_facts")
    for log in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for number, added in enumerate(action["add"] for action in actions if "add" in action):
            file = table / unquote(added["path"])
            added["path"] = f"x{number}/{file.name}"
            (table / added["path"]).parent.mkdir(exist_ok=True)
            file.rename(table / added["path"])
        log.write_text("\n".join(json.dumps(action) for action in actions))


def stream_file(home: Path, name: str, content: str | bytes) -> Path:
    file = home / "stream" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def as_text(counts: dict[int, int]) -> dict[str, int]:
    return {str(key): count for key, count in counts.items()}


def test_nothing_is_known_before_anything_was_read() -> None:
    assert counted(load_with()) is None


def test_facts_that_carry_the_key_are_counted() -> None:
    write_facts({"order_id": ["a", "b", "c"], "id": [5, 5, 2]})
    write_facts({"order_id": [*"defghi"], "id": [5, 2, 9, 5, 1, None]})
    assert counted(load_with(facts=["order_id", "id"])) == ("facts", EXPECTED)


def test_deleted_facts_are_not_counted() -> None:
    write_facts({"order_id": ["a"], "id": [7]})
    write_deltalake(
        str(LoadHome(LOAD).facts("order_facts")), pa.table({"order_id": ["b"], "id": [8]}), mode="overwrite"
    )
    assert counted(load_with(facts=["order_id", "id"])) == ("facts", {8: 1})


def test_partitioned_facts_are_counted() -> None:
    columns = {"order_id": [*"abcd"], "id": [5, 5, 2, 9], "day": ["1 a", "1 a", "2:b", None]}
    write_facts(columns, partition_by=["day"])
    without_hive_folders()
    assert counted(load_with(facts=["order_id", "id", "day"])) == ("facts", {5: 2, 2: 1, 9: 1})


@pytest.mark.parametrize("keys", [[5, 5, 2, None], ["007", "007", "a b", None]])
def test_facts_partitioned_by_the_key_are_counted(keys: list[Any]) -> None:
    write_facts({"order_id": [*"abcd"], "id": keys}, partition_by=["id"])
    without_hive_folders()
    assert counted(load_with(facts=["order_id", "id"])) == ("facts", {keys[0]: 2, keys[2]: 1})


def test_only_the_newest_facts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_FACTS", 4)
    for keys in ([1, 1, 1], [2, 2, 2], [3, 3, 3]):
        write_facts({"order_id": [*"abc"], "id": keys})
    assert counted(load_with(facts=["order_id", "id"])) == ("facts", {2: 3, 3: 3})


ITEMS = "CREATE TABLE items (id BIGINT PRIMARY KEY, surrogate BIGINT, colour TEXT)"


def test_a_unique_added_column_stands_for_the_key() -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5, 9)])
    load = load_with(add={"colour": "colour", "sk": "surrogate"}, facts=["order_id", "colour", "sk"])
    sort(load)
    write_facts({"order_id": [*"abcdefgh"], "colour": ["red"] * 8, "sk": [key * 100 for key in KEYS]})
    assert counted(load) == ("facts", EXPECTED)


def test_facts_partitioned_by_a_unique_added_column_are_counted() -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5, 9)])
    load = load_with(add=["surrogate"], facts=["order_id", "surrogate"])
    sort(load)
    write_facts(
        {"order_id": [*"abcdefgh"], "surrogate": [key * 100 for key in KEYS]}, partition_by=["surrogate"]
    )
    without_hive_folders()
    assert counted(load) == ("facts", EXPECTED)


@pytest.mark.parametrize("last", ["red", None])
def test_an_added_column_that_does_not_tell_the_key_is_not_used(last: str | None, home: Path) -> None:
    sqlite_table(ITEMS, [(1, 1, "red"), (2, 2, "blue"), (5, 5, last)])
    load = load_with(add=["colour"], facts=["order_id", "colour"])
    sort(load)
    write_facts({"order_id": ["a"], "colour": ["red"]})
    stream_file(home, "a.json", '{"id": 2}\n')
    assert counted(load) == ("stream", {"2": 1})


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "the manifest is gone": lambda snapshot: (snapshot / "manifest.json").unlink(),
    "the pages are cut off": lambda snapshot: os.truncate(snapshot / "pages.arrow", 9),
    "the pages are overwritten": lambda snapshot: zeroed(snapshot / "pages.arrow"),
    "the sizes are overwritten": lambda snapshot: zeroed(snapshot / "page_bytes.npy"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_snapshot_does_not_keep_its_load_from_being_sorted(
    damage: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5)])
    load = load_with(add=["surrogate"], facts=["order_id", "surrogate"])
    sort(load)
    write_facts({"order_id": ["a"], "surrogate": [500]})
    stream_file(home, "a.json", '{"id": 2}\n')
    DAMAGE[damage](snapshot_path(LOAD, "item", 1))
    assert [done.version for done in sort(load)] == [2]
    assert [row[0] for row in snapshot_rows(2, ["id"])] == [2, 1, 5], "ranked by the stream"
    assert "Lookup item is not ranked by the facts" in caplog.text


def test_an_added_column_that_snapshot_and_facts_do_not_have_yet_is_not_used(home: Path) -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5)])
    sort(load_with(add=["colour"], facts=["order_id", "colour"]))
    write_facts({"order_id": ["a"], "colour": ["red"]})
    stream_file(home, "a.json", '{"id": 2}\n')
    longer = load_with(add=["colour", "surrogate"], facts=["order_id", "colour", "surrogate"])
    assert counted(longer) == ("stream", {"2": 1})
    assert [done.version for done in sort(longer)] == [2]


def test_an_added_column_that_the_snapshot_alone_does_not_have_yet_is_not_used(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5)])
    sort(load_with(add=["colour"]))
    write_facts({"order_id": ["a"], "surrogate": [500]})
    stream_file(home, "a.json", '{"id": 2}\n')
    assert counted(load_with(add=["surrogate"], facts=["order_id", "surrogate"])) == ("stream", {"2": 1})
    assert "has no column surrogate" in caplog.text


@pytest.mark.parametrize("new", ["id", "surrogate"])
def test_a_column_that_is_new_in_the_facts_is_not_looked_for_in_old_ones(new: str, home: Path) -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5)])
    sort(load_with(add=["surrogate"]))
    write_facts({"order_id": ["a"]})
    stream_file(home, "a.json", '{"id": 2}\n')
    assert counted(load_with(add=["surrogate"], facts=["order_id", new])) == ("stream", {"2": 1})


def test_a_key_that_is_new_in_the_facts_leaves_the_added_column_to_count_by() -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5)])
    sort(load_with(add=["surrogate"]))
    write_facts({"order_id": ["a", "b"], "surrogate": [500, 500]})
    assert counted(load_with(add=["surrogate"], facts=["order_id", "surrogate", "id"])) == ("facts", {5: 2})


def test_facts_whose_files_are_gone_leave_the_stream_to_count_by(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_facts({"order_id": ["a"], "id": [5]})
    for file in LoadHome(LOAD).facts("order_facts").glob("*.parquet"):
        file.unlink()
    stream_file(home, "a.json", '{"id": 2}\n')
    assert counted(load_with(facts=["order_id", "id"])) == ("stream", {"2": 1})
    assert "Lookup item is not ranked by the facts" in caplog.text


def test_json_lines_are_sampled_without_their_bad_records(home: Path) -> None:
    lines = [json.dumps({"order_id": str(i), "id": key}) for i, key in enumerate(KEYS)]
    lines += ['{"order_id": "x", "id"', "no json", '{"order_id": "y"}', '{"id": null}', '{"id": "unknown"}']
    stream_file(home, "a.json", "\n".join(lines))
    stream_file(home, "_hidden.json", '{"id": 77}\n')
    stream_file(home, ".hidden.json", '{"id": 77}\n')
    assert counted(load_with()) == ("stream", {**as_text(EXPECTED), "unknown": 1})


@pytest.mark.parametrize(("header", "delimiter"), [(True, ","), (False, ";")])
def test_csv_is_sampled(home: Path, header: bool, delimiter: str) -> None:
    lines = [f'"order{delimiter}{i}"{delimiter}{key}' for i, key in enumerate(KEYS)]
    lines = [f"order_id{delimiter}id"] * header + [
        *lines,
        "short",
        f"x{delimiter}",
        f"a{delimiter}1{delimiter}2",
    ]
    stream_file(home, "a.csv", "\n".join(lines) + "\n")
    load = load_with(stream={"format": "csv", "options": {"header": header, "delimiter": delimiter}})
    assert counted(load) == ("stream", as_text(EXPECTED))


def test_parquet_is_sampled_without_files_that_are_none(home: Path) -> None:
    file = stream_file(home, "a.parquet", "")
    pq.write_table(pa.table({"order_id": [*"abcdefgh"], "id": KEYS}), file)
    pq.write_table(pa.table({"order_id": ["a"]}), file.with_name("without.parquet"))
    stream_file(home, "broken.parquet", "this is not Parquet")
    assert counted(load_with(stream={"format": "parquet"})) == ("stream", as_text(EXPECTED))


def test_the_newest_files_are_sampled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_BYTES", 25)
    for age, key in enumerate([3, 2, 1]):
        file = stream_file(home, f"{key}.json", json.dumps({"id": key}) + "\n")
        os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    assert counted(load_with()) == ("stream", {"3": 1, "2": 1})


def test_what_is_no_file_or_moved_away_since_it_was_listed_is_left_out(home: Path) -> None:
    stream_file(home, "a.json", '{"id": 4}\n')
    (home / "stream" / "gone.json").symlink_to(home / "nowhere")
    (home / "stream" / "folder.json").mkdir()
    assert counted(load_with()) == ("stream", {"4": 1})


def test_a_file_that_is_moved_away_after_a_first_look_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_file(home, "a.json", '{"id": 4}\n')
    moved = stream_file(home, "b.json", '{"id": 5}\n')
    stat = Path.stat

    def look_and_move(path: Path, **options: Any) -> os.stat_result:
        status = stat(path, **options)
        if path == moved:
            moved.rename(home / "b.json")
        return status

    monkeypatch.setattr(Path, "stat", look_and_move)
    assert counted(load_with()) == ("stream", {"4": 1})


def test_a_sample_has_a_bounded_number_of_rows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS", 10)
    for name in ("a.json", "b.json"):
        stream_file(home, name, '{"id": 4}\n' * 8)
    assert counted(load_with()) == ("stream", {"4": 10})


def test_a_stream_that_cannot_be_sampled_does_not_stop_the_load(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = stream_file(home, "a.json.gz", "this is not gzip")
    assert counted(load_with()) is None
    assert str(broken) in caplog.text
    assert "cannot be sampled" in caplog.text


def test_a_key_that_an_earlier_lookup_adds_is_not_in_the_stream(home: Path) -> None:
    stream_file(home, "a.json", '{"id": 4}\n')
    load = load_with(stream={"columns": {"order_id": "string", "other": "int"}})
    assert counted(load) is None


def test_sorting_a_load_ranks_by_the_stream_at_first_and_by_the_facts_later(home: Path) -> None:
    sqlite_table(ITEMS, [(key, key * 100, "red") for key in (1, 2, 5, 9)])
    load = load_with(add=["surrogate"], facts=["order_id", "surrogate"])
    stream_file(home, "a.json", '{"id": 9}\n')
    sort(load)
    write_facts({"order_id": ["a", "b", "c"], "surrogate": [200, 200, 500]})
    sort(load)
    assert [[row[0] for row in snapshot_rows(v, ["id"])] for v in (1, 2)] == [[9, 1, 2, 5], [2, 5, 1, 9]]
    sources = [read_manifest(snapshot_path(LOAD, "item", v)).ranked_by for v in (1, 2)]
    assert sources == ["stream", "facts"]
