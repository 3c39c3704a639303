"""Keys drawn from a Zipf distribution: the k-th most frequent of them with probability ~ 1 / k^e."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Zipf:
    """The distribution over the ranks 0 … keys - 1, for any exponent from 0 (all alike) upwards."""

    def __init__(self, keys: int, exponent: float = 1.0) -> None:
        if keys < 1:
            raise ValueError(f"{keys} keys: at least one is needed")
        if not 0 <= exponent < np.inf:
            raise ValueError(f"exponent {exponent}: it must be 0 or above")
        weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
        cumulated = np.cumsum(weights)
        self.cumulated: npt.NDArray[np.float64] = cumulated / cumulated[-1]
        """P(rank <= k) for each rank k; the last is 1."""

    def ranks(self, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
        """Ranks drawn by inverting the distribution."""
        return np.searchsorted(self.cumulated, random.random(count), side="right")


class ZipfKeys:
    """An endless, seeded sequence of keys out of 0 … keys - 1.

    The ranks are dealt to the keys at random, so that frequent keys do not lie side by side:
    `by_rank[k]` is the key of rank k.
    """

    def __init__(self, keys: int, exponent: float = 1.0, seed: int = 0) -> None:
        self._zipf = Zipf(keys, exponent)
        self._random = np.random.default_rng(seed)
        self.by_rank: npt.NDArray[np.int64] = self._random.permutation(keys)

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        """The next keys."""
        return self.by_rank[self._zipf.ranks(count, self._random)]
