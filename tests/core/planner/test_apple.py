"""Plans for Apple's chips: memory without what only CUDA takes, attention taken apart, one GPU, wide ranges."""

import pytest
from fakes.serving import LLAMA
from msgspec.structs import replace

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import apple_profiles
from devexplorer.core.planner.plan import plan
from devexplorer.core.planner.records import FitSpec, ServingSpec
from devexplorer.core.planner.serving.calculator import plan_serving
from devexplorer.core.planner.trace import UNVERIFIED
from devexplorer.core.virtual.device.cost import Kind, Product, Roofline, Work, terms

pytestmark = pytest.mark.usefixtures("virtual")

M4 = "Apple M4 Max 64GB"
QUICK = FitSpec(source="mlp", gpus=(M4,), search=False, options=False, patience_seconds=600.0)


def asked(**given):
    return plan(replace(QUICK, **given))


def test_nothing_that_only_cuda_takes_is_counted():
    (apple, t4) = asked(source="lenet", gpus=(M4, "Tesla T4"), train=True).fits
    assert apple.capacity_bytes == 48 << 30
    assert (apple.bytes.context, apple.bytes.library_workspace) == (0, 0)
    assert apple.bytes.allocated == t4.bytes.allocated, "the tensors are the same"
    assert (apple.cards[0].device, t4.cards[0].device) == ("mps", "cuda")
    assert (apple.board_power_w, apple.samples_per_joule) == (None, None)


def test_attention_keeps_its_scores():
    """4 heads of 96 x 96 scores in float32 of two sequences, for each of the layers; a T4 has a kernel for it."""
    source = "transformers:gpt2?n_embd=64&n_layer=2&n_head=4&vocab_size=64"
    fits = asked(source=source, gpus=(M4, "Tesla T4"), train=True, batch=2, inputs="1x96:int64").fits
    apple, t4 = (fit.bytes.activations for fit in fits)
    assert apple - t4 > 2 * 2 * 4 * 96 * 96 * 4
    alone = asked(source=source, gpus=("Tesla T4",), train=True, batch=2, inputs="1x96:int64").fits[0]
    assert alone.bytes == fits[1].bytes, "that of another card does not change"


def test_the_range_is_wide_and_the_assumptions_say_why():
    report = asked(gpus=(M4,))
    (fit,) = report.fits
    assert fit.step_seconds is not None
    assert fit.step_seconds_high == pytest.approx(2 * UNVERIFIED * fit.step_seconds, rel=0.1), "the host bounds it"
    said = " ".join(report.assumptions)
    assert "recommendedMaxWorkingSetSize" in said
    assert "not verified" in said
    assert "The CUDA context takes" not in said
    assert "cuBLAS takes" not in said
    both = " ".join(asked(gpus=(M4, "Tesla T4")).assumptions)
    assert "The CUDA context takes" in both
    assert "recommendedMaxWorkingSetSize" in both
    assert "mps" not in " ".join(asked(gpus=("Tesla T4",)).assumptions)


def test_what_helps_is_what_a_mac_has():
    helps = asked(source="lenet", train=True, options=True).helps
    assert helps
    assert not {help.key for help in helps} & {"two-cards", "adam8bit"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpus": (f"2x {M4}",)}, f"a Mac has one GPU; plan for '{M4}' alone"),
        ({"gpus": (f"{M4}, Tesla T4",)}, f"a Mac has one GPU; plan for '{M4}' alone"),
        ({"dtype": "float64"}, "MPS has no float64"),
    ],
)
def test_what_a_mac_has_not(given, words):
    with pytest.raises(BadInput, match=words):
        asked(**given)


def test_text_is_generated_at_the_rate_of_the_memory():
    """Products of one token with weights are bound by bandwidth: their rows are not padded."""
    work = Work(Kind.PRODUCT, 2 * 4096 * 4096, 2 * 4096 * 4096, "float16", Product(1, 4096, 4096))
    profile = apple_profiles()["Apple M1 Max 64GB"]
    compute, memory, _ = Roofline(profile).bounds(work)
    assert compute < memory
    parts = terms(work._replace(product=Product(64, 4096, 4096), flop=64 * work.flop), profile)
    assert parts.compute is not None
    assert {"vector", "vector apple"} <= set(parts.compute.parameters), "no unit is faster in 16 bits"


def test_a_chip_can_serve():
    pytest.importorskip("transformers.cache_utils")
    spec = FitSpec(
        source=LLAMA, gpus=(M4,), batch=2, dtype="float16", search=False, serving=ServingSpec(generate=8, prompt=16)
    )
    report = plan_serving(spec)
    (fit,) = report.fits
    assert fit.fits
    assert (fit.bytes.context, fit.cards[0].device) == (0, "mps")
    assert any("not verified" in sentence for sentence in report.assumptions)
    assert spec.serving is not None
    with pytest.raises(BadInput, match="a Mac has one GPU"):
        plan_serving(replace(spec, serving=replace(spec.serving, tensor_parallel=2)))
