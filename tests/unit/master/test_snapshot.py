"""A snapshot is whole and unchanging, or it is not there."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.errors import SnapshotError
from freshet.home import LoadHome
from freshet.master import publish as publishing
from freshet.master.manifest import read_manifest, verify
from freshet.master.publish import (
    LARGEST_PAGE,
    MEAN_PAGE,
    MOST_PAGES,
    SnapshotWriter,
    choose_page_rows,
    fewest_page_rows,
    limit_page_rows,
)
from freshet.master.snapshot import latest, open_snapshot, read_pages, snapshot_path, versions
from tests.masterdata import LOAD

FORK = multiprocessing.get_context("fork")


def folder() -> Path:
    return LoadHome(LOAD).snapshots("item")


def writer(rows: int, page_rows: int = 256, schema: pa.Schema | None = None) -> SnapshotWriter:
    return SnapshotWriter(
        folder(),
        key="id",
        schema=schema or pa.schema([("id", pa.int64()), ("price", pa.float64()), ("name", pa.string())]),
        rows=rows,
        page_rows=page_rows,
        watermark={"table": "items", "read_at": "2026-01-01T00:00:00+00:00"},
        ranked_by="facts",
    )


def table(rows: int) -> pa.Table:
    ids = np.random.default_rng(rows).permutation(rows * 3)[:rows]
    names = [None if i % 7 == 0 else f"item {i}" for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "price": ids / 4, "name": pa.array(names, pa.string())})


def publish(rows: pa.Table, page_rows: int = 256, batch_rows: int = 100) -> int:
    with writer(len(rows), page_rows, rows.schema) as snapshot:
        for batch in rows.to_batches(max_chunksize=batch_rows):
            snapshot.add(batch, range(len(batch)))
        return snapshot.publish()


@pytest.mark.parametrize(("rows", "batch_rows"), [(1, 100), (256, 100), (257, 1000), (1000, 1), (3000, 7000)])
def test_it_gives_back_what_was_put_in(rows: int, batch_rows: int) -> None:
    given = table(rows)
    path = snapshot_path(LOAD, "item", publish(given, batch_rows=batch_rows))
    store = open_snapshot(path, ["id", "price", "name"], full=True)
    assert pa.Table.from_batches([store.page(n) for n in range(store.pages)]).equals(given)
    assert store.locate(given["id"].combine_chunks()).tolist() == list(range(rows))
    assert (store.rows, store.pages) == (rows, -(-rows // 256))


def test_pages_have_the_columns_asked_for_under_the_names_asked_for() -> None:
    path = snapshot_path(LOAD, "item", publish(table(300)))
    store = open_snapshot(path, {"label": "name", "again": "name", "number": "id"})
    page = store.page(1)
    assert page.schema == store.schema
    assert page.schema.names == ["label", "again", "number"]
    assert page.column("label").equals(page.column("again"))
    assert page.num_rows == 300 - 256
    assert [p.num_rows for p in read_pages(path, ["price"], [1, 0])] == [44, 256]


def test_a_page_without_columns_still_has_its_rows() -> None:
    store = open_snapshot(snapshot_path(LOAD, "item", publish(table(300))), [])
    assert [store.page(n).num_rows for n in range(store.pages)] == [256, 44]


def test_sizes_are_those_of_the_pages_read() -> None:
    store = open_snapshot(snapshot_path(LOAD, "item", publish(table(1000))), ["price", "name"])
    pages = [store.page(n) for n in range(store.pages)]
    assert [store.page_bytes(n) for n in range(store.pages)] == [page.nbytes for page in pages]
    assert store.row_bytes == sum(page.nbytes for page in pages) / 1000
    assert set(store.outside_bytes) == {"index", "pages"}
    assert all(size > 0 for size in store.outside_bytes.values())


def test_reading_a_page_copies_nothing() -> None:
    store = open_snapshot(snapshot_path(LOAD, "item", publish(table(3000))), ["id", "price", "name"])
    before = pa.total_allocated_bytes()
    pages = [store.page(n) for n in range(store.pages)]
    assert pa.total_allocated_bytes() == before
    assert len(pages) == store.pages


def test_an_empty_master_table_makes_an_empty_snapshot() -> None:
    store = open_snapshot(snapshot_path(LOAD, "item", publish(table(0))), ["price"], full=True)
    assert (store.rows, store.pages, store.row_bytes) == (0, 0, 0.0)
    assert store.locate(pa.array([1, None])).tolist() == [-1, -1]
    assert len(store.counts()) == 0


def test_string_keys_are_found() -> None:
    names = ["ä", "", "a" * 300, "z"]
    rows = pa.table({"id": names, "price": [1.0, 2.0, None, 4.0]})
    store = open_snapshot(snapshot_path(LOAD, "item", publish(rows)), ["price"])
    assert store.locate(pa.array(["z", "no", None, "", "ä"])).tolist() == [3, -1, -1, 1, 0]


def test_a_page_that_is_not_there_is_an_error() -> None:
    store = open_snapshot(snapshot_path(LOAD, "item", publish(table(10))), ["price"])
    for number in (-1, 1):
        with pytest.raises(IndexError):
            store.page(number)


@settings(max_examples=200, deadline=None)
@given(st.floats(0.1, 1e7))
def test_a_page_is_between_an_eighth_and_a_quarter_of_a_megabyte(row_bytes: float) -> None:
    rows = choose_page_rows(row_bytes)
    if 1 <= row_bytes <= MEAN_PAGE:
        assert MEAN_PAGE / 2 < rows * row_bytes <= MEAN_PAGE
    assert rows >= 1


@given(st.integers(0, 1 << 40))
def test_the_fewest_rows_of_a_page_are_the_least_power_of_two_that_bounds_the_pages(rows: int) -> None:
    least = fewest_page_rows(rows)
    assert least.bit_count() == 1
    assert rows / least <= MOST_PAGES
    assert least == 1 or rows / (least // 2) > MOST_PAGES


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(0, 12), st.integers(0, 3))
def test_pages_are_halved_until_none_is_too_large(sizes: list[float], rows: int, least: int) -> None:
    def largest(page_rows: int) -> float:
        pages = page_rows >> least
        return max(sum(sizes[start : start + pages]) for start in range(0, len(sizes), pages))

    before, fewest = 1 << max(rows, least), 1 << least
    after = limit_page_rows(before, fewest, np.array(sizes))
    assert fewest <= after <= before
    assert after == fewest or largest(after) <= LARGEST_PAGE * 1.000001
    assert after == before or largest(after * 2) > LARGEST_PAGE * 0.999999


def test_versions_count_up() -> None:
    assert latest(LOAD, "item") is None
    assert [publish(table(5)), publish(table(6)), publish(table(7))] == [1, 2, 3]
    assert latest(LOAD, "item") == 3
    assert [read_manifest(snapshot_path(LOAD, "item", v)).rows for v in (1, 2, 3)] == [5, 6, 7]


def test_version_numbers_go_on_beyond_six_digits() -> None:
    publish(table(5))
    snapshot_path(LOAD, "item", 1).rename(snapshot_path(LOAD, "item", 999_999))
    assert publish(table(5)) == 1_000_000
    assert publish(table(5)) == 1_000_001


def test_an_abandoned_writer_leaves_no_trace() -> None:
    with writer(10) as snapshot:
        snapshot.add(table(10).to_batches()[0].slice(0, 5), [0] * 5)
    assert list(folder().iterdir()) == []


def test_too_few_rows_are_not_published() -> None:
    with writer(10) as snapshot:
        snapshot.add(table(5).to_batches()[0], [0] * 5)
        with pytest.raises(SnapshotError, match="5 rows were added to a snapshot of 10"):
            snapshot.publish()
    assert versions(folder()) == []


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _publish_and_die(step: str) -> None:
    """Publish in a process of its own that is killed at one step."""
    take_place = SnapshotWriter._take_place
    if step == "while writing":
        SnapshotWriter._finish_files = _die  # type: ignore[method-assign, assignment]
    elif step == "before the manifest":
        publishing.sync_tree = _die  # type: ignore
    elif step == "before the rename":
        SnapshotWriter._take_place = _die  # type: ignore[method-assign, assignment]
    else:
        SnapshotWriter._take_place = lambda self, version: take_place(self, version) and _die()  # type: ignore
    publish(table(600))


@pytest.mark.parametrize(
    ("step", "published"),
    [("while writing", 1), ("before the manifest", 1), ("before the rename", 1), ("after the rename", 2)],
)
def test_a_publisher_that_is_killed_publishes_all_or_nothing(step: str, published: int) -> None:
    publish(table(5))
    process = FORK.Process(target=_publish_and_die, args=(step,))
    process.start()
    process.join(timeout=60)
    assert process.exitcode == -signal.SIGKILL
    assert latest(LOAD, "item") == published
    assert verify(snapshot_path(LOAD, "item", published)).rows == (5 if published == 1 else 600)
    assert publish(table(7)) == published + 1


def _publish_in_a_process(rows: int, start, versions_) -> None:
    start.wait()
    versions_.put([(publish(table(rows + i)), rows + i) for i in range(5)])


def test_concurrent_publishers_never_overwrite_each_other() -> None:
    start, queue = FORK.Event(), FORK.Queue()
    started = [FORK.Process(target=_publish_in_a_process, args=(10 * n, start, queue)) for n in (1, 2, 3)]
    for process in started:
        process.start()
    start.set()
    published = dict(pair for _ in started for pair in queue.get(timeout=60))
    for process in started:
        process.join(timeout=60)
    assert sorted(published) == versions(folder()) == list(range(1, 16))
    assert {v: verify(snapshot_path(LOAD, "item", v)).rows for v in published} == published


def test_a_number_taken_in_between_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    publish(table(5))
    with writer(6, schema=table(6).schema) as slow:
        slow.add(table(6).to_batches()[0], [0] * 6)
        seen = iter([[], [1]])
        monkeypatch.setattr("freshet.master.publish.versions", lambda path: next(seen))
        assert slow.publish() == 2
    assert verify(snapshot_path(LOAD, "item", 1)).rows == 5
    assert verify(snapshot_path(LOAD, "item", 2)).version == 2


@pytest.fixture
def published(home: Path) -> Path:
    return snapshot_path(LOAD, "item", publish(table(600)))


def test_a_missing_snapshot_says_what_to_do(home: Path) -> None:
    with pytest.raises(SnapshotError, match=r"v000007 cannot be used: it is not there.*freshet sort orders"):
        open_snapshot(snapshot_path(LOAD, "item", 7), ["price"])


@pytest.mark.parametrize(
    "name", ["pages.arrow", "counts.npy", "page_bytes.npy", "index/hashes.bin", "manifest.json"]
)
def test_a_missing_file_is_noticed_on_open(published: Path, name: str) -> None:
    (published / name).unlink()
    with pytest.raises(SnapshotError, match=rf"{name} is missing.*freshet sort orders"):
        open_snapshot(published, ["price"])


@pytest.mark.parametrize("name", ["pages.arrow", "counts.npy", "index/ranks.bin"])
def test_a_truncated_file_is_noticed_on_open(published: Path, name: str) -> None:
    os.truncate(published / name, (published / name).stat().st_size - 1)
    with pytest.raises(SnapshotError, match=rf"{name} has [\d,]+ bytes instead of [\d,]+"):
        open_snapshot(published, ["price"])


def test_every_changed_byte_is_noticed_by_verify(published: Path) -> None:
    for file in sorted(path for path in published.rglob("*") if path.is_file()):
        original = file.read_bytes()
        changed = bytearray(original)
        changed[len(changed) // 2] ^= 0x10
        file.write_bytes(changed)
        with pytest.raises(SnapshotError, match="cannot be used"):
            verify(published)
        file.write_bytes(original)
    verify(published)


def test_a_changed_page_is_noticed_by_a_full_open(published: Path) -> None:
    contents = bytearray((published / "pages.arrow").read_bytes())
    contents[2000] ^= 1
    (published / "pages.arrow").write_bytes(contents)
    with pytest.raises(SnapshotError, match=r"the contents of pages\.arrow changed"):
        open_snapshot(published, ["price"], full=True)


def test_a_changed_manifest_is_noticed(published: Path) -> None:
    content = json.loads((published / "manifest.json").read_text())
    (published / "manifest.json").write_text(json.dumps({**content, "page_rows": 128}))
    with pytest.raises(SnapshotError, match=r"manifest\.json was changed"):
        open_snapshot(published, ["price"])


def test_a_newer_format_is_refused(published: Path) -> None:
    content = json.loads((published / "manifest.json").read_text())
    (published / "manifest.json").write_text(json.dumps({**content, "format": 2}))
    with pytest.raises(SnapshotError, match="its format is 2 and this version reads format 1"):
        open_snapshot(published, ["price"])


def test_a_column_of_another_definition_is_refused_naming_what_there_is(published: Path) -> None:
    with pytest.raises(
        SnapshotError, match=r"has no column colour, only id, price, name.*freshet sort orders"
    ):
        open_snapshot(published, ["price", "colour"])


def test_a_snapshot_deleted_while_open_can_still_be_read(published: Path) -> None:
    store = open_snapshot(published, ["price"])
    shutil.rmtree(published)
    assert sum(store.page(n).num_rows for n in range(store.pages)) == 600
