"""The index finds every key's rank, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.errors import MasterError, SnapshotError
from freshet.master import index as index_module
from freshet.master import key_hash
from freshet.master.index import Index, IndexBuilder, open_index
from freshet.master.key_hash import ByteStrings, hash_integers, unhash_integers
from freshet.master.store import MISSING

INTEGERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
# Long and short strings, with bytes beyond ASCII and zero bytes.
STRINGS = st.text(max_size=12) | st.sampled_from(["", "\0", "\0\0", "a" * 63, "a" * 64, "a" * 65, "b" * 300])


def build(folder: Path, keys: pa.Array, batch: int = 1_000) -> Index:
    builder = IndexBuilder(folder, len(keys), keys.type)
    for start in range(0, len(keys), batch):
        builder.add(keys.slice(start, batch))
    builder.finish()
    return open_index(folder)


def as_a_dictionary_says(keys: list, queries: list) -> list[int]:
    rank_of = {key: rank for rank, key in enumerate(keys)}
    return [MISSING if query is None else rank_of.get(query, MISSING) for query in queries]


@settings(max_examples=60, deadline=None)
@given(keys=st.lists(INTEGERS, unique=True, max_size=200), others=st.lists(st.none() | INTEGERS, max_size=50))
def test_integer_keys_are_found_as_a_dictionary_finds_them(tmp_path_factory, keys, others):
    index = build(tmp_path_factory.mktemp("index"), pa.array(keys, pa.int64()), batch=37)
    queries = others + keys
    assert index.locate(pa.array(queries, pa.int64())).tolist() == as_a_dictionary_says(keys, queries)


@settings(max_examples=60, deadline=None)
@given(keys=st.lists(STRINGS, unique=True, max_size=100), others=st.lists(st.none() | STRINGS, max_size=50))
@pytest.mark.parametrize("string_type", [pa.string(), pa.large_string()])
def test_string_keys_are_found_as_a_dictionary_finds_them(tmp_path_factory, string_type, keys, others):
    index = build(tmp_path_factory.mktemp("index"), pa.array(keys, string_type), batch=7)
    queries = others + keys
    assert index.locate(pa.array(queries, string_type)).tolist() == as_a_dictionary_says(keys, queries)


def test_string_keys_with_equal_hashes_are_told_apart_by_their_bytes(tmp_path, monkeypatch):
    def clashing(self: ByteStrings) -> np.ndarray:
        return np.diff(self.offsets).astype(np.uint64) % np.uint64(3) << np.uint64(62)

    monkeypatch.setattr(key_hash.ByteStrings, "hash", clashing)
    keys = [f"key {number:0{number % 17}d}" for number in range(300)]
    index = build(tmp_path, pa.array(keys), batch=50)
    queries = [*keys, "key x", "key", None, "key 00000000000000000000000"]
    assert index.locate(pa.array(queries)).tolist() == as_a_dictionary_says(keys, queries)
    monkeypatch.setattr(index_module, "_NAMED_DUPLICATES", 1)
    with pytest.raises(MasterError, match=r"duplicate keys .*'key 0'"):
        build(tmp_path, pa.array([*keys, "key 0"]))


def test_an_index_built_from_many_partitions_equals_one_built_at_once(tmp_path, monkeypatch):
    keys = pa.array(np.random.default_rng(5).permutation(20_000) * 7)
    whole = build(tmp_path / "whole", keys)
    monkeypatch.setattr(index_module, "_PARTITION_KEYS", 900)
    parts = build(tmp_path / "parts", keys)
    assert parts.locate(keys).tolist() == whole.locate(keys).tolist() == list(range(20_000))
    for name in ("hashes.bin", "ranks.bin"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list((tmp_path / "parts").glob("*.spill"))


@pytest.mark.parametrize("stride", [1, 2**16, 2**32, 2**40, 0x5851F42D4C957F2D])
def test_regular_keys_stay_near_their_home_slot(stride):
    with np.errstate(over="ignore"):
        keys = np.arange(100_000, dtype=np.int64) * np.int64(stride)
    keys = np.unique(keys)
    homes = np.sort(index_module._position(hash_integers(keys), int(len(keys) / 0.6)))
    order = np.arange(len(keys))
    assert (order + np.maximum.accumulate(homes - order) - homes).max() < 64


def test_integer_hashes_can_be_undone():
    values = np.array([0, 1, -1, 2**63 - 1, -(2**63), 42], np.int64)
    assert unhash_integers(hash_integers(values)).tolist() == values.tolist()


def test_a_string_has_the_same_hash_wherever_it_lies_in_its_array():
    words = ["", "x", "eight by", "nine byte", "ä" * 40, "z" * 1_000]
    alone = [int(ByteStrings.from_arrow(pa.array([word])).hash()[0]) for word in words]
    shifted = pa.array(["pad", *words, "tail"]).slice(1, len(words))
    assert ByteStrings.from_arrow(shifted).hash().tolist() == alone
    assert len(set(alone)) == len(words)


def test_an_empty_index_misses_everything(tmp_path):
    for kind, queries in ((pa.int32(), pa.array([1, None])), (pa.string(), pa.array(["a", None, ""]))):
        index = build(tmp_path / str(kind), pa.array([], kind))
        assert index.locate(queries).tolist() == [MISSING] * len(queries)
        assert index.locate(queries.slice(0, 0)).tolist() == []


@pytest.mark.parametrize("built", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()])
@pytest.mark.parametrize("asked", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
def test_any_integer_type_finds_any_other(tmp_path, built, asked):
    index = build(tmp_path, pa.array([100, 5, 0], built))
    assert index.locate(pa.array([5, 0, 7, None, 100], asked)).tolist() == [1, 2, MISSING, MISSING, 0]


def test_a_key_beyond_the_range_of_the_index_is_missing(tmp_path):
    index = build(tmp_path, pa.array([-1, 3]))
    assert index.locate(pa.array([2**64 - 1, 3], pa.uint64())).tolist() == [MISSING, 1]


@pytest.mark.parametrize("decimal", [pa.decimal128(20, 0), pa.decimal128(38, 0)])
def test_decimals_without_a_fraction_are_looked_up_as_integers(tmp_path, decimal):
    known = [5, -1, 2**63 - 1, -(2**63), 0]
    index = build(tmp_path / "integers", pa.array(known))
    asked = pa.array(
        [2**63 - 1, None, 5, 2**64 - 1, 2**64 + 5, -1, -(2**63) - 1, -(2**63), 2**63, 7], decimal
    )
    expected = [2, MISSING, 0, MISSING, MISSING, 1, MISSING, 3, MISSING, MISSING]
    assert index.locate(asked).tolist() == expected
    assert index.locate(asked.slice(3, 5)).tolist() == expected[3:8]
    assert index.locate(asked.slice(0, 0)).tolist() == []
    assert index.locate(asked.dictionary_encode()).tolist() == expected
    as_decimals = build(tmp_path / "decimals", pa.array(known, decimal))
    assert as_decimals.locate(pa.array(known)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "beyond", [pa.array([1, 2**63], pa.uint64()), pa.array([1, 2**63], pa.decimal128(20, 0))]
)
def test_a_master_key_beyond_the_range_of_the_index_is_refused(tmp_path, beyond):
    with pytest.raises(MasterError, match=f"beyond 64 bits with a sign: {2**63}"):
        build(tmp_path, beyond)


def test_decimals_with_a_fraction_are_no_keys(tmp_path):
    with pytest.raises(MasterError, match=r"type decimal128\(10, 2\) is not supported"):
        build(tmp_path, pa.array([1])).locate(pa.array([1], pa.decimal128(10, 2)))


def test_dictionary_view_sliced_chunked_and_null_arrays_are_looked_up(tmp_path):
    index = build(tmp_path / "s", pa.array(["a", "bb", "ccc"]))
    words = pa.array(["bb", None, "zz", "a", "bb"])
    expected = [1, MISSING, MISSING, 0, 1]
    assert index.locate(words.dictionary_encode()).tolist() == expected
    assert index.locate(words.cast(pa.string_view())).tolist() == expected
    assert index.locate(words.slice(1, 3)).tolist() == expected[1:4]
    assert index.locate(pa.chunked_array([words.slice(0, 2), words.slice(2)])).tolist() == expected
    assert index.locate(pa.nulls(3)).tolist() == [MISSING] * 3
    dictionary = build(tmp_path / "d", pa.array(["x", "y"]).dictionary_encode())
    assert dictionary.locate(pa.array(["y"])).tolist() == [1]


def test_duplicate_keys_are_refused_by_name(tmp_path):
    with pytest.raises(MasterError, match=r"duplicate keys .* -17, 4"):
        build(tmp_path / "i", pa.array([1, 4, -17, 4, 9, -17]), batch=2)
    with pytest.raises(MasterError, match=r"duplicate keys .*'twice'"):
        build(tmp_path / "s", pa.array(["once", "twice", "", "twice"]), batch=1)


def test_null_keys_are_refused_with_their_rank(tmp_path):
    with pytest.raises(MasterError, match=r"1 null keys .* rank 2"):
        build(tmp_path, pa.array([1, 2, None]))


def test_too_few_and_too_many_keys_are_refused(tmp_path):
    builder = IndexBuilder(tmp_path, 2, pa.int64())
    builder.add(pa.array([1]))
    with pytest.raises(MasterError, match="given 1 keys, 2 rows"):
        builder.finish()
    with pytest.raises(MasterError, match="more than the 2"):
        builder.add(pa.array([2, 3]))


def test_keys_of_another_kind_are_refused(tmp_path):
    with pytest.raises(MasterError, match=r"type double is not supported"):
        IndexBuilder(tmp_path, 1, pa.float64())
    with pytest.raises(MasterError, match="string do not fit the master's integer keys"):
        build(tmp_path, pa.array([1])).locate(pa.array(["1"]))


def test_a_missing_or_foreign_index_is_refused(tmp_path):
    with pytest.raises(SnapshotError, match="sort again"):
        open_index(tmp_path / "nowhere")
    build(tmp_path, pa.array([1]))
    (tmp_path / "index.json").write_text('{"format": 99}')
    with pytest.raises(SnapshotError, match="format 99"):
        open_index(tmp_path)


def test_bytes_of_the_mapped_files_are_reported(tmp_path):
    index = build(tmp_path, pa.array([f"k{number}" for number in range(1_000)]))
    on_disk = sum(file.stat().st_size for file in tmp_path.glob("*.bin"))
    assert index.nbytes == on_disk
