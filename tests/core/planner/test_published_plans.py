"""Published steps as plans."""

from __future__ import annotations

from devexplorer.core.planner.plan import checked
from devexplorer.core.planner.published_steps import fitted_to, published, rates_of, spec_of
from devexplorer.core.planner.records import Fit, ServingFit
from devexplorer.core.planner.serving import request


def test_every_plan_of_a_published_step_can_be_asked_for() -> None:
    plans = [(row, spec) for row in published() if (spec := spec_of(row)) is not None]
    assert len(plans) > 200
    for row, spec in plans:
        config, cards = checked(spec)
        assert config.train == (row.task == "training")
        assert [profile.name for (profile,) in cards] == [row.profile]


def test_steps_that_the_planner_has_not_are_left_out() -> None:
    for row in published():
        if row.optimizer.startswith("none") or not row.profile or not row.samples_per_s:
            assert spec_of(row) is None


def test_a_step_that_copies_its_input_is_planned_with_that_copy() -> None:
    plans = [(row, spec) for row in published() if (spec := spec_of(row)) is not None and not row.decodes]
    assert any(spec.input_copy for _, spec in plans)
    assert all(spec.input_copy == bool(row.copies_input) for row, spec in plans)


def test_rows_that_something_else_bound_are_not_fitted_to() -> None:
    for row in published():
        if row.bound_by or row.compiled or not row.samples_per_s:
            assert not fitted_to(row)


def test_a_row_of_decoding_is_a_plan_for_serving_that_nothing_was_fitted_to() -> None:
    rows = [row for row in published() if row.decodes]
    assert len(rows) == 4
    for row in rows:
        spec = spec_of(row)
        assert spec is not None
        assert spec.serving is not None
        assert spec.serving.generate > spec.serving.prompt
        assert [profile.name for profile in request.checked(spec)] == [row.profile]
        assert (row.step, row.unit) == ("decoding", "tokens/s")
        assert row.apart
        assert not fitted_to(row)
    assert all(spec.serving is None for row in published() if not row.decodes and (spec := spec_of(row)))


def test_what_a_published_rate_is_compared_with() -> None:
    plain = {"gpu": "card", "cards": ()}
    step = {"samples_per_s": 0.5, "samples_per_s_low": 0.4, "samples_per_s_high": 0.6}
    assert rates_of(Fit(**plain, fits=True, **step)) == (0.5, 0.4, 0.6)
    tokens = {"decode_tokens_per_s": 9.0, "decode_tokens_per_s_low": 7.0, "decode_tokens_per_s_high": 11.0}
    serving = ServingFit(kv_cache_bytes=1, kv_bytes_per_token=1, cache=(), **tokens)
    assert rates_of(Fit(**plain, fits=True, **step, serving=serving)) == (9.0, 7.0, 11.0)
    assert rates_of(Fit(**plain, fits=False)) == (None, None, None)
