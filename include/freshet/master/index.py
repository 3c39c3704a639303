"""The index of R: key -> rank, a flat hash table in memory-mapped files.

Every key has a 64-bit hash; its home is the slot that lies as far into the table as the hash lies into the
range of all hashes. The table is filled in the order of the hashes, each in its home or the next free slot
behind it, so it reads as a sorted array with gaps:

    slot      0     1     2     3     4     5     6  ...
    hashes   0x02  0x2f  0x31  0x33  FREE  0x9a  FREE        FREE = the largest hash, rank MISSING
    ranks      7     0     4     9    -1     2    -1

A probe starts at the home and walks on while it sees smaller hashes: a larger one says that the key is
missing, which costs no more than finding it, and no slot lies far from its home. Filling in order also
means that the files are written from front to back, whatever order the keys come in.

The hash of an integer is reversible and so as good as the key. Of strings the bytes are kept in rank order
beside the table, and every hit is compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.errors import MasterError, SnapshotError
from freshet.master.key_hash import ByteStrings, Int64s, UInt64s, hash_integers, unhash_integers
from freshet.master.store import MISSING

INTEGER = "integer"
STRING = "string"

_FORMAT = 1
_LOAD_FACTOR = 0.6
_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_HALF = np.uint64(32)
# Keys hashed and placed at once while building: bounds the builder's memory (about 60 bytes each).
_PARTITION_KEYS = 1_000_000
# Keys probed at once: their hashes and slots stay in the processor's cache.
_PROBE_KEYS = 32_768
# Steps a probe takes with its own chunk; the few keys that need more walk on together.
_CHUNK_STEPS = 4
_NAMED_DUPLICATES = 5

_META = "index.json"
_HASHES = "hashes.bin"
_RANKS = "ranks.bin"
_STRING_OFFSETS = "key_offsets.bin"
_STRING_BYTES = "key_bytes.bin"
_STRING_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_SPILL_RECORD = np.dtype([("hash", "<u8"), ("rank", "<i8")])


def key_kind(key_type: pa.DataType) -> str:
    """INTEGER or STRING; any other type cannot be a join key."""
    if pa.types.is_dictionary(key_type):
        key_type = key_type.value_type
    if pa.types.is_integer(key_type) or _is_whole(key_type):
        return INTEGER
    if any(is_type(key_type) for is_type in _STRING_TYPES):
        return STRING
    raise MasterError(f"a join key of type {key_type} is not supported: use an integer or a string column")


def _position(hashes: UInt64s, count: int) -> Int64s:
    """Where in 0 ... count - 1 each hash belongs: in the order of the hashes, evenly spread."""
    position = hashes >> _HALF
    position *= np.uint64(count)
    position >>= _HALF
    return position.view(np.int64)


def _flat(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    return keys


def _plain_strings(keys: pa.Array) -> pa.Array:
    if pa.types.is_string_view(keys.type):
        return keys.cast(pa.large_string())
    return keys


def _is_whole(key_type: pa.DataType) -> bool:
    """Whether it is a decimal without a fraction: what an unsigned 64-bit column of MySQL becomes."""
    return pa.types.is_decimal128(key_type) and key_type.scale == 0


def _integer_values(keys: pa.Array) -> tuple[Int64s, npt.NDArray[np.bool_] | None]:
    """The values of an array of integers as int64, and which of them are within it (None: all).

    Whatever stands in the slots of nulls.
    """
    rows = slice(keys.offset, keys.offset + len(keys))
    data = keys.buffers()[1] or b""
    if _is_whole(keys.type):
        # Two words each, the lower first; of a number within 64 bits the upper one only repeats the sign.
        lower, upper = np.frombuffer(data, "<i8").reshape(-1, 2)[rows].T
        return lower.copy(), upper == lower >> 63
    values = np.frombuffer(data, keys.type.to_pandas_dtype())[rows].astype(np.int64)
    # As int64 the others are negative, and no unsigned key can equal a negative one.
    return values, values >= 0 if pa.types.is_uint64(keys.type) else None


class IndexBuilder:
    """The index of a snapshot while it is written, fed with all keys in rank order.

    Hashes go to one spill file for each range of hashes; `finish` sorts and places a range at a time.
    So memory stays bounded by one range and one batch, whatever the number of rows.
    """

    def __init__(self, folder: Path | str, rows: int, key_type: pa.DataType) -> None:
        self.folder = Path(folder)
        self.rows = rows
        self.kind = key_kind(key_type)
        self._added = 0
        self._partitions = min(max(1, -(-rows // _PARTITION_KEYS)), 2**16)
        self._string_bytes = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        for left_over in self.folder.glob("hashes.*.spill"):
            left_over.unlink()
        if self.kind == STRING:
            (self.folder / _STRING_BYTES).write_bytes(b"")
            (self.folder / _STRING_OFFSETS).write_bytes(np.zeros(1, "<i8").tobytes())

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Take the keys of the next rows, in rank order."""
        keys = _flat(keys)
        if pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_decode()
        if key_kind(keys.type) != self.kind:
            raise MasterError(f"the index of {self.folder} has {self.kind} keys, it was given {keys.type}")
        if keys.null_count:
            first = self._added + pc.index(keys.is_null(), pa.scalar(True)).as_py()
            raise MasterError(f"{keys.null_count} null keys in the master table, the first at rank {first}")
        if self._added + len(keys) > self.rows:
            raise MasterError(f"more than the {self.rows} announced keys were added to the index")
        hashes = self._hash_strings(_plain_strings(keys)) if self.kind == STRING else _hash_integers(keys)
        self._spill(hashes)
        self._added += len(keys)

    def finish(self) -> None:
        """Write the table; afterwards `open_index` opens it."""
        if self._added != self.rows:
            raise MasterError(f"the index was given {self._added} keys, {self.rows} rows were announced")
        slots = int(self.rows / _LOAD_FACTOR) + 1
        rank_type = np.dtype("<i4" if self.rows < 2**31 else "<i8")
        self._end_strings()
        with (self.folder / _HASHES).open("wb") as hash_file, (self.folder / _RANKS).open("wb") as rank_file:
            written = 0
            for hashes, ranks in self._sorted_partitions():
                self._refuse_duplicates(hashes, ranks)
                home = _position(hashes, slots)
                home[0] = max(int(home[0]), written)
                order = np.arange(len(home))
                place = order + np.maximum.accumulate(home - order) - written
                block = np.full(int(place[-1]) + 1, _FREE, "<u8")
                block[place] = hashes
                hash_file.write(block.data)
                rank_block = np.full(len(block), MISSING, rank_type)
                rank_block[place] = ranks
                rank_file.write(rank_block.data)
                written += len(block)
            # Free slots behind the last key, at least one: no probe runs off the end.
            spare = max(slots - written, 0) + 1
            np.full(spare, _FREE, "<u8").tofile(hash_file)
            np.full(spare, MISSING, rank_type).tofile(rank_file)
        meta = {"format": _FORMAT, "kind": self.kind, "rows": self.rows, "slots": slots}
        (self.folder / _META).write_text(json.dumps(meta | {"ranks": rank_type.str}))

    def _hash_strings(self, keys: pa.Array) -> UInt64s:
        strings = ByteStrings.from_arrow(keys)
        used = int(strings.offsets[-1])
        with (self.folder / _STRING_BYTES).open("ab") as file:
            file.write(strings.data.view(np.uint8)[:used].data)
        with (self.folder / _STRING_OFFSETS).open("ab") as file:
            file.write((strings.offsets[1:] + self._string_bytes).astype("<i8").data)
        self._string_bytes += used
        return strings.hash()

    def _end_strings(self) -> None:
        if self.kind == STRING:
            padded = ByteStrings.from_bytes(np.zeros(1, np.int64), np.zeros(self._string_bytes % 8, np.uint8))
            with (self.folder / _STRING_BYTES).open("ab") as file:
                file.write(padded.data.view(np.uint8)[self._string_bytes % 8 :].data)

    def _spill(self, hashes: UInt64s) -> None:
        records = np.empty(len(hashes), _SPILL_RECORD)
        records["hash"] = hashes
        records["rank"] = np.arange(self._added, self._added + len(hashes))
        partition = _position(hashes, self._partitions)
        if self._partitions > 1:
            # NumPy sorts 16-bit numbers by radix; so many partitions are never needed.
            records = records[np.argsort(partition.astype(np.uint16), kind="stable")]
        ends = np.cumsum(np.bincount(partition, minlength=self._partitions))
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > start:
                with self._spill_path(number).open("ab") as file:
                    file.write(records[start:end].data)

    def _spill_path(self, number: int) -> Path:
        return self.folder / f"hashes.{number}.spill"

    def _sorted_partitions(self) -> Iterator[tuple[UInt64s, Int64s]]:
        for number in range(self._partitions):
            path = self._spill_path(number)
            if path.exists():
                records = np.fromfile(path, _SPILL_RECORD)
                order = np.argsort(records["hash"], kind="stable")
                yield records["hash"][order], records["rank"][order]
                path.unlink()

    def _refuse_duplicates(self, hashes: UInt64s, ranks: Int64s) -> None:
        same = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not len(same):
            return
        if self.kind == INTEGER:
            duplicates = np.unique(unhash_integers(hashes[same])).tolist()
        else:
            # Equal hashes are almost surely equal strings; the strings themselves decide.
            suspects = np.unique(np.concatenate([ranks[same], ranks[same + 1]]))
            counts = pc.value_counts(self._stored_strings().take(pa.array(suspects)))
            duplicates = counts.field("values").filter(pc.greater(counts.field("counts"), 1)).to_pylist()
        if duplicates:
            some = ", ".join(repr(key) for key in duplicates[:_NAMED_DUPLICATES])
            raise MasterError(
                f"duplicate keys in the master table, for example {some}: "
                "a lookup needs a key that is unique; remove the duplicates or choose another key column"
            )

    def _stored_strings(self) -> pa.Array:
        offsets = pa.py_buffer(np.memmap(self.folder / _STRING_OFFSETS, "<i8", "r"))
        data = pa.py_buffer(np.memmap(self.folder / _STRING_BYTES, np.uint8, "r"))
        return pa.LargeStringArray.from_buffers(self.rows, offsets, data)


def _hash_integers(keys: pa.Array) -> UInt64s:
    values, within = _integer_values(keys)
    if within is not None and not within.all():
        raise MasterError(f"an integer key is beyond 64 bits with a sign: {keys[int(within.argmin())]}")
    return hash_integers(values)


class Index:
    """An opened index: the ranks of keys, found without reading a page of R."""

    def __init__(
        self,
        kind: str,
        rows: int,
        slots: int,
        hashes: UInt64s,
        ranks: npt.NDArray[Any],
        keys: ByteStrings | None,
    ) -> None:
        self.kind = kind
        self.rows = rows
        self._slots = slots
        self._hashes = hashes
        self._ranks = ranks
        self._keys = keys

    @property
    def nbytes(self) -> int:
        """Bytes of the mapped files, left to the operating system."""
        strings = 0 if self._keys is None else self._keys.offsets.nbytes + self._keys.data.nbytes
        return self._hashes.nbytes + self._ranks.nbytes + strings

    def locate(self, keys: pa.Array | pa.ChunkedArray) -> Int64s:
        """The rank of each key; MISSING for a key R does not have and for null."""
        keys = _flat(keys)
        if pa.types.is_null(keys.type):
            return np.full(len(keys), MISSING, np.int64)
        if pa.types.is_dictionary(keys.type):
            of_value: Int64s = np.append(self.locate(keys.dictionary), MISSING)
            codes: Int64s = keys.indices.cast(pa.int64()).fill_null(len(of_value) - 1).to_numpy()
            return of_value[codes]
        if key_kind(keys.type) != self.kind:
            raise MasterError(f"stream keys of type {keys.type} do not fit the master's {self.kind} keys")
        locate = self._locate_strings if self.kind == STRING else self._locate_integers
        ranks = locate(keys)
        if keys.null_count:
            ranks[keys.is_null().to_numpy(zero_copy_only=False)] = MISSING
        return ranks

    def _locate_integers(self, keys: pa.Array) -> Int64s:
        values, within = _integer_values(keys)
        ranks, _ = self._probe(hash_integers(values))
        if within is not None:
            ranks[~within] = MISSING
        return ranks

    def _locate_strings(self, keys: pa.Array) -> Int64s:
        ranks = np.empty(len(keys), np.int64)
        for start in range(0, len(keys), _PROBE_KEYS):
            part = ByteStrings.from_arrow(_plain_strings(keys.slice(start, _PROBE_KEYS)))
            ranks[start : start + len(part)] = self._locate_part(part)
        return ranks

    def _locate_part(self, keys: ByteStrings) -> Int64s:
        hashes = keys.hash()
        ranks, slots = self._probe(hashes)
        rows = np.flatnonzero(ranks != MISSING)
        # A string with the same hash as another one stands in a slot behind it.
        while len(rows):
            wrong = rows[~keys.equal(rows, self._strings, ranks[rows])]
            slots[wrong] += 1
            next_ranks = np.take(self._ranks, slots[wrong], mode="clip")
            same_hash = np.take(self._hashes, slots[wrong], mode="clip") == hashes[wrong]
            ranks[wrong] = np.where(same_hash, next_ranks, MISSING)
            rows = wrong[ranks[wrong] != MISSING]
        return ranks

    @property
    def _strings(self) -> ByteStrings:
        assert self._keys is not None
        return self._keys

    def _probe(self, hashes: UInt64s) -> tuple[Int64s, Int64s]:
        """The rank and the slot of the first entry with each hash (rank MISSING: there is none)."""
        ranks = np.empty(len(hashes), np.int64)
        slots = _position(hashes, self._slots)
        behind = []
        for start in range(0, len(hashes), _PROBE_KEYS):
            chunk = slice(start, start + _PROBE_KEYS)
            behind.append(start + self._walk(hashes[chunk], slots[chunk], ranks[chunk], _CHUNK_STEPS))
        rows = np.concatenate(behind) if behind else np.empty(0, np.int64)
        if len(rows):
            rest_slots, rest_ranks = slots[rows] + 1, np.empty(len(rows), np.int64)
            self._walk(hashes[rows], rest_slots, rest_ranks, None)
            slots[rows], ranks[rows] = rest_slots, rest_ranks
        return ranks, slots

    def _walk(self, hashes: UInt64s, slots: Int64s, ranks: Int64s, steps: int | None) -> Int64s:
        """Move each slot on past smaller hashes (at most so many steps), fill the ranks in; the rows left."""
        seen = np.take(self._hashes, slots, mode="clip")
        rows = np.flatnonzero(seen < hashes)
        while len(rows) and steps != 0:
            moved = slots[rows] + 1
            now = np.take(self._hashes, moved, mode="clip")
            slots[rows] = moved
            seen[rows] = now
            rows = rows[now < hashes[rows]]
            steps = None if steps is None else steps - 1
        ranks[:] = np.take(self._ranks, slots, mode="clip")
        ranks[seen != hashes] = MISSING
        return rows


def open_index(folder: Path | str) -> Index:
    """The index in this folder, memory-mapped."""
    folder = Path(folder)
    try:
        meta = json.loads((folder / _META).read_text())
        if meta["format"] != _FORMAT:
            raise SnapshotError(f"the index {folder} has format {meta['format']}, not {_FORMAT}: sort again")
        keys = None
        if meta["kind"] == STRING:
            keys = ByteStrings(_map(folder / _STRING_OFFSETS, "<i8"), _map(folder / _STRING_BYTES, "<u8"))
        hashes, ranks = _map(folder / _HASHES, "<u8"), _map(folder / _RANKS, meta["ranks"])
        return Index(meta["kind"], meta["rows"], meta["slots"], hashes, ranks, keys)
    except (OSError, ValueError, KeyError) as error:
        raise SnapshotError(f"the index {folder} cannot be opened ({error}): sort again") from error


def _map(path: Path, dtype: str) -> npt.NDArray[Any]:
    return np.memmap(path, dtype, "r").view(np.ndarray)
