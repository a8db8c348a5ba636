"""Published steps as plans."""

from devexplorer.core.planner.plan import checked
from devexplorer.core.planner.published_steps import fitted_to, published, rates_of, spec_of
from devexplorer.core.planner.records import Fit, ServingFit
from devexplorer.core.planner.serving import request


def test_every_published_step_that_the_planner_has_is_a_plan_that_can_be_asked_for():
    plans = decoding = 0
    for row in published():
        spec = spec_of(row)
        if row.bound_by or row.compiled or row.decodes or not row.samples_per_s:
            assert not fitted_to(row)
        if row.optimizer.startswith("none") or not row.profile or not row.samples_per_s:
            assert spec is None
        if spec is None:
            continue
        plans += 1
        if row.decodes:
            decoding += 1
            assert spec.serving is not None
            assert spec.serving.generate > spec.serving.prompt
            assert [profile.name for profile in request.checked(spec)] == [row.profile]
            assert (row.step, row.unit, bool(row.apart)) == ("decoding", "tokens/s", True)
        else:
            config, cards = checked(spec)
            assert (config.train, spec.input_copy) == (row.task == "training", bool(row.copies_input))
            assert [profile.name for (profile,) in cards] == [row.profile]
    assert (plans > 200, decoding) == (True, 4)


def test_what_a_published_rate_is_compared_with():
    plain = {"gpu": "card", "cards": ()}
    step = {"samples_per_s": 0.5, "samples_per_s_low": 0.4, "samples_per_s_high": 0.6}
    assert rates_of(Fit(**plain, fits=True, **step)) == (0.5, 0.4, 0.6)
    tokens = {"decode_tokens_per_s": 9.0, "decode_tokens_per_s_low": 7.0, "decode_tokens_per_s_high": 11.0}
    serving = ServingFit(kv_cache_bytes=1, kv_bytes_per_token=1, cache=(), **tokens)
    assert rates_of(Fit(**plain, fits=True, **step, serving=serving)) == (9.0, 7.0, 11.0)
    assert rates_of(Fit(**plain, fits=False)) == (None, None, None)
