"""Stable 64-bit hashes of join keys, computed column-wise in NumPy.

The hash of an integer is a bijection of 64 bits: equal hashes mean equal keys. The hash of a string is
not, so whoever uses it compares the strings as well (`ByteStrings.equal`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

# Odd constants without structure; odd, so that multiplication modulo 2^64 can be undone.
_FIRST = 0x9E3779B97F4A7C15
_SECOND = 0xD6E8FEB86659FD93
_POSITION = 0xA24BAED4963EE407
_LENGTH = 0x9FB21C651E98DF25
_HALF = np.uint64(32)

_WORD = 8
_PADDING = 2 * _WORD
# Up to here all strings advance together, a word a step; the rest of longer ones is summed in one go.
_COLUMN_WORDS = 8


def _mix(words: UInt64s) -> UInt64s:
    mixed = words * np.uint64(_FIRST)
    mixed ^= mixed >> _HALF
    mixed *= np.uint64(_SECOND)
    return mixed


def hash_integers(values: Int64s) -> UInt64s:
    """The hash of each integer; different integers have different hashes."""
    return _mix(np.ascontiguousarray(values).view(np.uint64))


def unhash_integers(hashes: UInt64s) -> Int64s:
    """The integers that have these hashes."""
    values = hashes * np.uint64(pow(_SECOND, -1, 1 << 64))
    values ^= values >> _HALF
    values *= np.uint64(pow(_FIRST, -1, 1 << 64))
    return values.view(np.int64)


@dataclass(frozen=True)
class ByteStrings:
    """Byte strings one after another in `data`: string i is data[offsets[i]:offsets[i + 1]].

    `data` is a whole number of 8-byte words and has a word to spare behind the last string, so that a
    string can be read word by word wherever it starts.
    """

    offsets: Int64s
    data: UInt64s

    @classmethod
    def from_arrow(cls, array: pa.Array) -> ByteStrings:
        """The strings of a `string` or `large_string` array; a null is as long as its slot."""
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        _, offset_buffer, data_buffer = array.buffers()
        if len(array) == 0 or offset_buffer is None:
            return cls.from_bytes(np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8))
        offsets = np.frombuffer(offset_buffer, width)[array.offset : array.offset + len(array) + 1]
        offsets = offsets.astype(np.int64)
        used = np.empty(0, np.uint8)
        if data_buffer is not None:
            used = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
        return cls.from_bytes(offsets - offsets[0], used)

    @classmethod
    def from_bytes(cls, offsets: Int64s, used: npt.NDArray[np.uint8]) -> ByteStrings:
        """The strings cut out of `used` (copied, with the padding that reading by words needs)."""
        padded = np.zeros(-(-(len(used) + _PADDING) // _WORD) * _WORD, np.uint8)
        padded[: len(used)] = used
        return cls(offsets, padded.view("<u8"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def hash(self) -> UInt64s:
        """The hash of each string: its mixed words, weighted by position, and its length."""
        starts = self.offsets[:-1]
        lengths = np.diff(self.offsets)
        total = lengths.view(np.uint64) * np.uint64(_LENGTH)
        rows: Int64s | None = None
        for word in range(_COLUMN_WORDS):
            weight = np.uint64(pow(_POSITION, word, 1 << 64))
            if rows is None:
                total += _mix(self._words(starts, lengths)) * weight
            else:
                done = word * _WORD
                total[rows] += _mix(self._words(starts[rows] + done, lengths[rows] - done)) * weight
            rows = np.flatnonzero(lengths > (word + 1) * _WORD)
            if not len(rows):
                return _mix(total)
        total[rows] += self._tail_sums(starts[rows], lengths[rows])
        return _mix(total)

    def equal(self, rows: Int64s, other: ByteStrings, other_rows: Int64s) -> npt.NDArray[np.bool_]:
        """Whether string rows[i] here equals string other_rows[i] there, for every i."""
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        other_starts = np.take(other.offsets, other_rows, mode="clip")
        other_ends = np.take(other.offsets, other_rows + 1, mode="clip")
        same: npt.NDArray[np.bool_] = (ends - starts) == (other_ends - other_starts)
        left = np.flatnonzero(same)
        starts, other_starts, lengths = starts[left], other_starts[left], (ends - starts)[left]
        while len(left):
            agree = self._words(starts, lengths) == other._words(other_starts, lengths)
            same[left[~agree]] = False
            going_on = np.flatnonzero(agree & (lengths > _WORD))
            left, lengths = left[going_on], lengths[going_on] - _WORD
            starts, other_starts = starts[going_on] + _WORD, other_starts[going_on] + _WORD
        return same

    def _words(self, starts: Int64s, lengths: Int64s) -> UInt64s:
        """The eight bytes at each start, zero from the string's end on.

        Put together from two aligned words, because NumPy gathers unaligned ones slowly.
        """
        at = starts >> 3
        shift = ((starts & 7) << 3).view(np.uint64)
        words = np.take(self.data, at, mode="clip") >> shift
        at += 1
        words |= np.take(self.data, at, mode="clip") << (np.uint64(64) - shift)
        short = np.flatnonzero(lengths < _WORD)
        bits = (np.maximum(lengths[short], 0) << 3).view(np.uint64)
        words[short] &= (np.uint64(1) << bits) - np.uint64(1)
        return words

    def _tail_sums(self, starts: Int64s, lengths: Int64s) -> UInt64s:
        """The weighted sums of the words behind the first `_COLUMN_WORDS`, for strings longer than those."""
        counts = -(-lengths // _WORD) - _COLUMN_WORDS
        firsts = np.cumsum(counts) - counts
        word = np.arange(int(counts.sum())) - np.repeat(firsts, counts) + _COLUMN_WORDS
        done = word * _WORD
        words = self._words(np.repeat(starts, counts) + done, np.repeat(lengths, counts) - done)
        weights = np.full(int(counts.max()) + _COLUMN_WORDS, np.uint64(_POSITION))
        weights[0] = 1
        np.cumprod(weights, out=weights)
        return np.add.reduceat(_mix(words) * weights[word], firsts)
