"""The published memory that the planner is compared with: the rows, the targets, and that the docs hold what was
computed."""

import statistics

import pytest
from benchmarks import published_memory

from devexplorer.core.devices.profiles import resource_rows


def test_every_pair_names_its_source_and_what_it_rests_on():
    for pair in published_memory.pairs():
        assert pair.source
        assert pair.printed or pair.basis.startswith("inferred")
        assert not pair.ran_batch or int(pair.ran_batch) < int(pair.failed_batch)
    assert "quote" not in resource_rows("published_oom.csv")[0]


def test_every_pair_is_computed_or_has_a_reason():
    reasons = {words for words, _ in published_memory.REASONS}
    for told in published_memory.read_pairs():
        assert (told.failed is None) == (told.reason in reasons)
        assert (told.ran is None) == (told.failed is None or not told.pair.ran_batch)
        assert any(holds(told.pair) for _, holds in published_memory.REASONS) == bool(told.reason)


def test_the_peaks_are_within_their_targets():
    found = published_memory.read_peaks()
    errors = published_memory.errors(found)
    assert published_memory.share_right(published_memory.read_pairs()) >= published_memory.RIGHT
    assert len(errors) == 30
    assert statistics.median(errors) <= published_memory.NEAR
    assert max(errors) <= published_memory.FAR


def test_the_docs_hold_the_tables_of_the_lists():
    text = published_memory.DOCS.read_text(encoding="utf-8")
    written = text.partition(published_memory.BEGIN)[2].partition(published_memory.END)[0]
    assert written == published_memory.table(published_memory.read_peaks(), published_memory.read_pairs()), (
        "run: python tests/benchmarks/published_memory.py --transformers FOLDER --write"
    )


@pytest.mark.usefixtures("virtual")
def test_a_peak_is_predicted_as_published():
    """With the installed transformers: BERT's code has kept the same tensors."""
    pytest.importorskip("transformers")
    row = next(row for row in published_memory.peaks() if row.model == "bert-base" and row.attention == "sdpa")
    assert published_memory.predicted_peak(row) == pytest.approx(int(row.peak_memory_bytes), rel=published_memory.NEAR)
