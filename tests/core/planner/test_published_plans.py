"""Published steps as plans."""

from __future__ import annotations

from devexplorer.core.planner.plan import checked
from devexplorer.core.planner.published_steps import fitted_to, published, spec_of


def test_every_plan_of_a_published_step_can_be_asked_for() -> None:
    plans = [(row, spec) for row in published() if (spec := spec_of(row)) is not None]
    assert len(plans) > 200
    for row, spec in plans:
        config, cards = checked(spec)
        assert config.train == (row.task == "training")
        assert [profile.name for (profile,) in cards] == [row.profile]


def test_steps_that_the_planner_has_not_are_left_out() -> None:
    for row in published():
        if row.copies_input or row.optimizer.startswith("none") or not row.profile or not row.samples_per_s:
            assert spec_of(row) is None


def test_rows_that_something_else_bound_are_not_fitted_to() -> None:
    for row in published():
        if row.bound_by or row.compiled or not row.samples_per_s:
            assert not fitted_to(row)
