"""A budget never gives out more than it has, and knows who held how much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.errors import BudgetError
from freshet.memory import Budget


def test_a_reservation_that_does_not_fit_is_refused_and_changes_nothing():
    budget = Budget(1_000, owner="lookup product")
    hot = budget.reserve("hot", 700)
    with pytest.raises(BudgetError, match=r"lookup product: queue needs 301 .* 300 of the .* 1,000 bytes"):
        budget.reserve("queue", 301)
    with pytest.raises(BudgetError, match=r"hot needs 400 more"):
        hot.grow(400)
    assert (budget.used, budget.left, hot.nbytes) == (700, 300, 700)


def test_what_is_given_back_can_be_reserved_again():
    budget = Budget(100)
    first = budget.reserve("first", 100)
    first.shrink(60)
    with budget.reserve("second", 60):
        assert budget.left == 0
    first.resize(90)
    first.release()
    assert (budget.used, budget.peak) == (0, 100)


def test_peaks_are_kept_by_name_and_for_the_sum():
    budget = Budget(100)
    pages = budget.reserve("pages", 30)
    more_pages = budget.reserve("pages", 30)
    pages.release()
    budget.reserve("queue", 50)
    more_pages.release()
    assert budget.peaks == {"pages": 60, "queue": 50}
    assert budget.peak == 80
    budget.reset_peaks()
    assert budget.peaks == {"queue": 50}
    assert budget.peak == 50


def test_growing_on_trial_says_whether_it_fitted():
    budget = Budget(10)
    reservation = budget.reserve("queue")
    assert reservation.try_grow(10)
    assert not reservation.try_grow(1)
    assert reservation.nbytes == 10


def test_nonsense_is_refused():
    with pytest.raises(BudgetError, match="-1 bytes"):
        Budget(-1)
    reservation = Budget(10).reserve("queue", 5)
    with pytest.raises(ValueError, match="cannot give back 6"):
        reservation.shrink(6)
    with pytest.raises(ValueError, match="-2 bytes"):
        reservation.grow(-2)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 120))))
def test_the_total_never_exceeds_the_limit_and_the_peak_is_its_maximum(steps):
    budget = Budget(150)
    held = {name: budget.reserve(name) for name in "abc"}
    totals = [0]
    for name, size in steps:
        try:
            held[name].resize(size)
        except BudgetError:
            assert sum(other.nbytes for other in held.values()) - held[name].nbytes + size > budget.limit
        totals.append(sum(reservation.nbytes for reservation in held.values()))
        assert budget.used == totals[-1] <= budget.limit
    assert budget.peak == max(totals)
