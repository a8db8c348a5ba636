"""Time and memory over the batch."""

import itertools

import pytest

from devexplorer.core.planner.plan import POINTS, curve_batches, plan
from devexplorer.core.planner.records import LARGEST_BATCH, FitSpec


@pytest.mark.parametrize("largest", [1, 2, 7, 100, 1219, 40_000, LARGEST_BATCH])
def test_the_batches_reach_from_one_to_more_than_fits(largest):
    at_least = largest == LARGEST_BATCH
    batches = curve_batches(8, largest, at_least=at_least)
    assert batches == sorted(set(batches))
    assert batches[0] == 1
    assert {8, largest} <= set(batches)
    assert any(batch > largest for batch in batches) != at_least
    assert len(batches) <= POINTS + 2
    assert curve_batches(4, None, at_least=False) == [1, 2, 4]


@pytest.mark.usefixtures("virtual")
def test_memory_grows_until_it_does_not_fit():
    spec = FitSpec(
        source="mlp", gpus=("Tesla T4",), batch=4, train=True, options=False, curve=True, patience_seconds=600.0
    )
    report = plan(spec)
    (fit,), curve = report.fits, report.curve
    asked = next(point for point in curve if point.batch == 4)
    assert (asked.total_bytes, asked.step_seconds) == (fit.cards[0].bytes.total, fit.step_seconds)
    for before, after in itertools.pairwise(curve):
        assert before.total_bytes <= after.total_bytes
        if after.step_seconds is not None:
            assert before.step_seconds is not None
            assert before.step_seconds <= after.step_seconds
    assert all(point.fits == (point.total_bytes <= point.capacity_bytes) for point in curve)


@pytest.mark.usefixtures("virtual")
def test_without_time_the_answer_names_the_batches_that_are_missing():
    spec = FitSpec(source="mlp", gpus=("Tesla T4",), batch=4, options=False, curve=True, patience_seconds=0.0)
    report = plan(spec)
    assert any(text.startswith("The curve over the batch lacks") for text in report.assumptions)
