"""Zipf keys come as often as the law says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.workload.zipf import Zipf, ZipfKeys


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.7])
def test_each_rank_is_drawn_as_often_as_its_probability(exponent: float) -> None:
    draws = 200_000
    weights = [1 / k**exponent for k in range(1, 51)]
    expected = np.array(weights) / sum(weights) * draws
    counted = np.bincount(Zipf(50, exponent).ranks(draws, np.random.default_rng(5)), minlength=50)
    chi_square = float(((counted - expected) ** 2 / expected).sum())
    assert chi_square < 95, "beyond the 99.99 % point with 49 degrees of freedom"


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3000), st.floats(0, 60))
def test_ranks_lie_in_range_for_any_exponent(keys: int, exponent: float) -> None:
    ranks = Zipf(keys, exponent).ranks(500, np.random.default_rng(1))
    assert ranks.min() >= 0
    assert ranks.max() < keys


def test_hot_keys_are_dealt_at_random() -> None:
    keys = ZipfKeys(10_000, 1.0, seed=4)
    assert sorted(keys.by_rank.tolist()) == list(range(10_000))
    hottest = np.argsort(-np.bincount(keys.draw(100_000), minlength=10_000))[:3]
    assert hottest.tolist() == keys.by_rank[:3].tolist()
    assert keys.by_rank[:100].max() > 5_000


def test_a_seed_gives_the_same_keys_again() -> None:
    first, second, other = (ZipfKeys(1000, 0.8, seed).draw(500) for seed in (7, 7, 8))
    assert first.tolist() == second.tolist()
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize(("keys", "exponent"), [(0, 1.0), (5, -0.1), (5, float("nan")), (5, float("inf"))])
def test_impossible_distributions_are_refused(keys: int, exponent: float) -> None:
    with pytest.raises(ValueError, match=r"at least one|0 or above"):
        Zipf(keys, exponent)
