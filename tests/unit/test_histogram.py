"""Histogram: counting a batch gives the same result as counting its values one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.model.histogram import MAX_UNSORTED_VALUES, SECONDS_BOUNDS, Histogram

values = st.lists(
    st.one_of(st.sampled_from(SECONDS_BOUNDS), st.floats(0, 5000), st.floats(0, 0.001)), max_size=50
)


@given(st.lists(values, max_size=5))
def test_histogram_add_all_equals_adding_single_values(batches: list[list[float]]) -> None:
    whole, single = Histogram(), Histogram()
    for batch in batches:
        for value in batch:
            single.add(value)
        whole.add_all(list(batch))

    assert whole.counts == single.counts
    assert whole.max_value == single.max_value
    assert abs(whole.total - single.total) < 1e-6 * (1 + single.total)


def test_histogram_value_equal_to_bound_counts_in_its_bucket() -> None:
    one, many = Histogram(), Histogram()
    one.add(1.0)
    many.add_all([1.0] * (MAX_UNSORTED_VALUES + 1))

    assert dict(one.cumulative())["1.0"] == 1
    assert dict(one.cumulative())["0.5"] == 0
    assert dict(many.cumulative())["1.0"] == MAX_UNSORTED_VALUES + 1
    assert dict(many.cumulative())["0.5"] == 0


@given(values)
def test_histogram_cumulative_counts_rise_to_the_total(batch: list[float]) -> None:
    histogram = Histogram()
    histogram.add_all(list(batch))
    shown = histogram.cumulative()

    assert shown[-1] == ("+Inf", len(batch))
    assert [count for _, count in shown] == sorted(count for _, count in shown)


def test_histogram_take_max_value_resets_the_maximum() -> None:
    histogram = Histogram()
    histogram.add_all([0.1, 7.0])

    assert histogram.take_max_value() == 7.0
    histogram.add(0.2)
    assert histogram.take_max_value() == 0.2
