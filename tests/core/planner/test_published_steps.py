"""The published steps that the planner is compared with: the rows, and that the docs hold what was computed."""

import statistics

import pytest
from benchmarks import published_steps

from devexplorer.core.devices.profiles import load_profiles, resource_rows

ROWS = published_steps.published()
BOUND = {"", "locked clocks", "fill-the-card batch", "data loading", "variable lengths", "post-processing",
         "several cards", "power cap"}  # fmt: skip


def test_every_row_names_its_source_and_is_marked_with_known_words():
    for row in ROWS:
        assert row.source.startswith("https://")
        assert row.samples_per_s or row.peak_memory_bytes
        assert bool(row.peak_memory_bytes) == bool(row.memory_kind)
        assert row.bound_by in BOUND
        assert row.task in ("training", "inference")
        assert not row.profile or row.profile in load_profiles()
    assert "quote" not in resource_rows("published_steps.csv")[0]


def test_every_row_is_computed_or_has_a_reason():
    reasons = {words for words, _ in published_steps.REASONS}
    listed = published_steps.read_list()
    assert [each.row for each in listed] == ROWS
    for each in listed:
        assert (each.predicted is None) == (each.reason in reasons)
        assert any(holds(each.row) for _, holds in published_steps.REASONS) == bool(each.reason)


def test_the_docs_hold_the_table_of_the_list():
    text = published_steps.DOCS.read_text(encoding="utf-8")
    written = text.partition(published_steps.BEGIN)[2].partition(published_steps.END)[0]
    assert written == published_steps.table(published_steps.read_list()), (
        "run: python tests/benchmarks/published_steps.py --write"
    )


@pytest.mark.usefixtures("virtual")
def test_a_row_is_predicted_as_listed():
    """With copies of the input, on a card without TF32."""
    listed = next(
        each
        for each in published_steps.read_list()
        if each.row.model == "resnet18" and each.row.copies_input and each.row.profile == "GeForce RTX 2080 Ti"
    )
    (traced,) = published_steps.traced_rows([listed.row])
    speed, factor = published_steps.speed_of(traced)
    assert (speed, factor) == pytest.approx((listed.predicted, listed.factor), rel=0.01), (
        "run: python tests/benchmarks/published_steps.py --write"
    )


@pytest.mark.usefixtures("virtual")
def test_a_row_of_decoding_is_predicted_as_listed():
    pytest.importorskip("transformers.cache_utils")
    listed = next(each for each in published_steps.read_list() if each.row.model == "phi-1.5 decode")
    found = published_steps.decoded(listed.row)
    assert (found.predicted, found.factor) == pytest.approx((listed.predicted, listed.factor), rel=0.01), (
        "run: python tests/benchmarks/published_steps.py --write"
    )


@pytest.mark.parametrize("speed", ["without_model", "without_card"])
def test_rows_that_a_fit_has_not_seen_are_predicted_as_the_documents_promise(speed):
    """The targets of the cost model: half of the rows are no more optimistic than pessimistic, four of five within a
    quarter."""
    judged = [each for each in published_steps.read_list() if each.predicted is not None and not each.row.apart]
    ratios = [getattr(each, speed) / float(each.row.samples_per_s) for each in judged]
    assert 0.95 <= statistics.median(ratios) <= 1.05
    assert sum(1 / 1.25 <= ratio <= 1.25 for ratio in ratios) >= 0.8 * len(ratios)
    assert sum(1 / 1.6 <= ratio <= 1.6 for ratio in ratios) >= 0.95 * len(ratios)
    inside = sum(1 / each.factor <= ratio <= each.factor for each, ratio in zip(judged, ratios, strict=True))
    assert inside >= 0.85 * len(ratios)
    assert statistics.median(each.factor**2 for each in judged) <= 1.6
