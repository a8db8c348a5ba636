"""The planner's answers: what fits, the largest batch, what would help, several cards, and what cannot be planned."""

import dataclasses

import pytest
import torch
from fakes.planning import ONE, T4, traced
from msgspec.structs import replace
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner import calculator as desks
from devexplorer.core.planner import plan as planning
from devexplorer.core.planner import subject, trace, trace_cache
from devexplorer.core.planner.calculator import state_sizes
from devexplorer.core.planner.messages import label
from devexplorer.core.planner.plan import plan
from devexplorer.core.planner.records import FitSpec
from devexplorer.core.planner.run import DeviceMap, StepConfig
from devexplorer.core.planner.subject import EQUAL_SHARES, NOTE
from devexplorer.core.planner.trace_cache import WITH_VALUES
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES
from devexplorer.core.virtual.device.memory import round_up

pytestmark = [
    pytest.mark.usefixtures("virtual"),
    pytest.mark.filterwarnings("ignore:.*is deprecated", "ignore:`torch.jit", "ignore:Sparse invariant"),  # torch's
]

QUICK = FitSpec(source="mlp", gpus=("Tesla T4",), search=False, options=False)
CUBLAS = 2 * 4096 * 1024 + 8 * 16 * 1024
TRAINING = 2 * CUBLAS
"""Two threads run products: the caller's and autograd's."""
CUDNN = 64 << 20
WEIGHTS = round_up(4 * 8 * 8) + round_up(4 * 8)
"""Of `nn.Linear(8, 8)`."""


def asked(**given):
    return plan(replace(QUICK, **{"patience_seconds": 600.0, **given}))


@pytest.fixture
def small_card(monkeypatch):
    """Lets a T4 have so many bytes beside context and the workspaces of training."""

    def shrink(nbytes):
        small = dataclasses.replace(T4, usable_bytes=nbytes + CONTEXT_BYTES + TRAINING)
        monkeypatch.setattr(
            planning, "parse_planned", lambda text, _calibrations: [small] * (2 if text.startswith("2x") else 1)
        )

    return shrink


@pytest.fixture
def write(tmp_path):
    """Makes a file with a class Net; returns how a plan names it."""

    def written(text, name="net"):
        (tmp_path / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{text}\n")
        return {"source": f"{name}.py:Net", "folder": str(tmp_path)}

    return written


def linear(body="return out", init="pass"):
    """A layer of 8 x 8 with more in its constructor and its forward."""
    return (
        f"class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(8, 8)\n        {init}\n"
        f"    def forward(self, x):\n        out = super().forward(x)\n        {body}"
    )


def sequential(layers):
    return f"class Net(nn.Sequential):\n    def __init__(self): super().__init__({layers})"


def test_everything_that_is_known_of_one_card():
    report = asked(batch=4, train=True)
    (fit,) = report.fits
    (card,) = fit.cards
    assert (fit.gpu, fit.fits, card.capacity_bytes) == ("Tesla T4", True, T4.usable_bytes)
    assert (card.bytes.context, card.bytes.library_workspace) == (CONTEXT_BYTES, TRAINING)
    assert (card.bytes.optimizer, card.bytes.gradients) == (2 * card.bytes.parameters, card.bytes.parameters)
    assert card.reserved_bytes >= card.bytes.allocated + TRAINING
    assert card.bytes.from_allocator == card.bytes.total - CONTEXT_BYTES
    assert card.used_bytes == card.reserved_bytes + CONTEXT_BYTES
    for part in ("parameters", "gradients", "optimizer"):
        assert getattr(card.rest, part) == getattr(card.bytes, part)
    assert card.rest.activations == 3 * 512, "the inputs, the output and the loss"
    (forward,) = asked(batch=4).fits
    assert forward.cards[0].bytes.library_workspace == CUBLAS, "autograd has nothing to do"
    assert forward.rest.gradients == forward.rest.optimizer == 0
    assert fit.samples_per_s == pytest.approx(4 / fit.step_seconds)
    assert (report.parameters, report.inputs, report.simulated) == (20 * 256 + 256 + 256 * 10 + 10, "4x20", True)
    assert report.flop_per_step == 2 * 4 * (20 * 256 + 256 * 10) * 3 - 2 * 4 * 20 * 256, (
        "nobody needs the gradient of the input"
    )


def test_without_cards_every_profile_is_looked_at():
    report = asked(gpus=())
    assert [fit.gpu for fit in report.fits] == list(load_profiles())
    assert all(fit.fits for fit in report.fits)


# --- the largest batch


def test_the_largest_batch_fits_and_one_more_does_not(small_card):
    small_card((40 << 20) + CUDNN)
    (fit,) = asked(source="lenet", train=True, search=True).fits
    assert (fit.at_least, fit.largest_batch > 100) == (False, True)
    assert asked(source="lenet", train=True, batch=fit.largest_batch).fits[0].fits
    assert not asked(source="lenet", train=True, batch=fit.largest_batch + 1).fits[0].fits


def test_where_not_even_one_fits_the_largest_batch_is_0(small_card):
    small_card(1 << 20)
    (fit,) = asked(source="resnet18", search=True).fits
    assert (fit.fits, fit.largest_batch, fit.at_least) == (False, 0, False)
    assert (fit.step_seconds, fit.samples_per_s) == (None, None)
    assert "the largest part is" in fit.reason


def test_the_search_has_an_end():
    (fit,) = asked(search=True).fits
    assert (fit.largest_batch, fit.at_least) == (65536, True)


def test_what_cannot_train_on_a_single_sample_can_be_planned_for(write, small_card):
    """Batch normalisation wants two of them: the search begins there."""
    source = {**write(sequential("nn.Linear(8, 8), nn.BatchNorm1d(8)")), "inputs": "4x8", "train": True}
    small_card(4 << 20)
    (fit,) = asked(**source, batch=4, search=True).fits
    assert fit.largest_batch > 4
    assert not asked(**source, batch=fit.largest_batch + 1).fits[0].fits
    small_card(1 << 20)
    (fit,) = asked(**source, batch=4, search=True).fits
    assert (fit.fits, fit.largest_batch) == (False, 0)


def test_a_model_for_one_batch_only_has_that_as_its_largest(write):
    source = write(linear("return out + self.places", "self.places = nn.Parameter(torch.zeros(4, 8))"))
    (fit,) = asked(**source, inputs="4x8", batch=4, search=True).fits
    assert (fit.largest_batch, fit.at_least) == (4, True)


def test_without_time_the_answer_says_what_is_missing():
    report = asked(source="lenet", train=True, search=True, options=True, patience_seconds=0.0)
    (fit,) = report.fits
    assert (fit.fits, fit.largest_batch > 1, report.helps) == (True, True, ())
    assert "parameters and activations in bfloat16" in report.untried
    assert any("were extrapolated" in one for one in report.assumptions)


def test_cards_with_the_same_room_are_searched_once(monkeypatch):
    searched, search = [], desks.largest

    def counting(*given, **options):
        searched.append(given)
        return search(*given, **options)

    monkeypatch.setattr(desks, "largest", counting)
    report = asked(gpus=("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB", "Tesla T4"), search=True)
    assert len(searched) == 2
    assert report.fits[0].largest_batch == report.fits[1].largest_batch


# --- what would help


def test_what_would_help_is_sorted_by_what_it_saves():
    report = asked(source="transformer", train=True, batch=1024, options=True)
    saved = [help.saved_bytes for help in report.helps]
    assert saved == sorted(saved, reverse=True)
    assert min(saved) > 0
    now = report.fits[0].cards[0].bytes.total
    for help in report.helps:
        assert (help.total_bytes + help.saved_bytes, help.gpu) == (now, "Tesla T4")
    assert {"bfloat16", "half-batch", "checkpointing", "autocast"} <= {help.key for help in report.helps}


def test_an_8_bit_optimizer_is_computed_to_the_byte():
    """A weight of 64·128 elements is quantised in 32 blocks, its bias is too small for that; two code books come with
    the first."""
    model = nn.Linear(64, 128)
    sizes = state_sizes(model, ONE)
    assert sizes == [[1024, 1024, 8192, 8192, 128, 128, 512, 512]]
    plain = traced(model, (1, 64), config=StepConfig(train=True, optimizer="sgd"), batch=1)
    eight = plain.with_state(sizes[0]).without_end
    assert eight.parts["optimizer"] == 2 * 1024 + 2 * 8192 + 2 * 512 + 2 * 512
    assert eight.peak == plain.without_end.peak + eight.parts["optimizer"]
    two = DeviceMap((T4, T4), ((id(model.weight), 0), (id(model.bias), 1)))
    first, second = state_sizes(nn.Sequential(model, nn.Linear(128, 1)), two)
    assert (8192 in first, second) == (True, [1024, 1024, 512, 512]), "each card has the state of its own parameters"


# --- several cards


def test_a_split_over_two_cards():
    (fit,), (one,) = (
        asked(source="transformer", gpus=gpus, batch=8, train=True).fits for gpus in (("2x Tesla T4",), ("Tesla T4",))
    )
    assert (fit.gpu, fit.fits, fit.capacity_bytes) == ("2x Tesla T4", True, 2 * T4.usable_bytes)
    shares = [card.bytes.parameters for card in fit.cards]
    assert (len(shares), sum(shares)) == (2, one.cards[0].bytes.parameters)
    assert min(shares) > 0
    assert fit.step_seconds > one.step_seconds, "the copies between the cards take time"


def test_a_card_that_is_too_full_gets_a_smaller_share(small_card, write):
    """The first layers have few parameters and large activations: with half of the parameters each, one card is
    full."""
    block = "nn.Sequential(nn.Linear({0}, {1}), nn.ReLU(), nn.Linear({1}, {0}), nn.ReLU()) for _ in range({2})"
    early, late = block.format(16, 4096, 6), block.format(512, 512, 4)
    source = write(sequential(f"*({early}), nn.Linear(16, 512), *({late})"))
    given = {**source, "inputs": "1x16", "batch": 2048, "train": True, "optimizer": "sgd"}
    needed = asked(**given).fits[0].cards[0].reserved_bytes
    small_card(needed * 3 // 4)
    (one,), (two,) = (asked(**given, gpus=gpus).fits for gpus in (("Tesla T4",), ("2x Tesla T4",)))
    assert (one.fits, two.fits) == (False, True), two.reason
    first, second = (card.bytes for card in two.cards)
    assert first.parameters < second.parameters
    assert first.activations > second.activations


def test_unequal_cards_get_shares_of_their_size():
    (fit,) = asked(source="transformer", gpus=("Tesla T4, NVIDIA H200",)).fits
    assert fit.gpu == "Tesla T4, NVIDIA H200"
    small, large = (card.bytes.parameters for card in fit.cards)
    assert 0 < small < large
    profiles = load_profiles()
    t4, h200 = profiles["Tesla T4"], profiles["NVIDIA H200"]
    assert label([t4, t4, h200]) == "2x Tesla T4, NVIDIA H200"


def test_what_cannot_be_divided_says_why(write):
    (fit,) = asked(**write(linear()), inputs="2x8", gpus=("2x Tesla T4",)).fits
    assert (fit.fits, fit.bytes.total) == (False, 0)
    assert "one block" in fit.reason


# --- what models do

FEEDING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"into": nn.Linear(8, 8), "out": nn.Linear(8, 8)})
        parts = self.parts
        self.feed = lambda x: parts["out"](parts["into"](x).relu())
    def forward(self, x): return x + self.feed(x)
"""
SINE = """
class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()
"""
MASKING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(50, 32), nn.Linear(32, 32)
    def forward(self, ids, mask):
        h = self.table(ids)
        if not mask.all():
            h = h.masked_fill(~mask[..., None].bool(), 0)
        return self.layer(h)
"""
BUFFER = 'self.register_buffer("scale", torch.ones(8{}))'
INDICES = "torch.zeros(2, 100, dtype=torch.int64)"
SPARSE = f'self.register_buffer("graph", torch.sparse_coo_tensor({INDICES}, torch.ones(100), (10**6, 10**6)))'
TABLE = "class Net(nn.{}):\n    def __init__(self): super().__init__(50, 32, sparse=True)"
GRU = "class Net(nn.GRU):\n    def __init__(self): super().__init__(8, 8, batch_first={})"
SUM, OWN = "The loss is the sum of the outputs", "The loss is the one that the model returns"
IDS = {"inputs": "2x16:int64", "batch": 2, "optimizer": "sgd"}
ONE_LAYER = {"parameters": WEIGHTS, "gradients": WEIGHTS}


@pytest.mark.parametrize(
    ("text", "more", "held", "says", "not_said"),
    [
        (linear("return out if out.sum() > 0 else -out"), {}, ONE_LAYER, [WITH_VALUES, SUM], []),
        (linear("return out * self.own.to(x.device)", "self.own = torch.ones(8)"), {}, ONE_LAYER, [], [WITH_VALUES]),
        (linear("return out * self.scale", "self.cuda(); " + BUFFER.format("")), {}, ONE_LAYER, [NOTE], [WITH_VALUES]),
        (
            linear("return out * self.scale", 'self.to("cuda"); ' + BUFFER.format(', device="cuda:0"')), {},
            {**ONE_LAYER, "buffers": round_up(4 * 8)}, [NOTE], [WITH_VALUES],
        ),
        (linear('return out.cuda() * torch.ones(8, device="cuda")'), {}, ONE_LAYER, [NOTE], [WITH_VALUES]),
        (SINE + linear("return Sine.apply(out)"), {}, {"optimizer": 2 * WEIGHTS}, [], [WITH_VALUES]),
        (FEEDING, {}, {"parameters": 2 * WEIGHTS}, [], [WITH_VALUES]),
        (linear(init=SPARSE), {}, {"buffers": round_up(100 * (2 * 8 + 4))}, [], []),
        (MASKING, {"inputs": "2x16:int64,2x16:int64"}, {}, [], [WITH_VALUES]),
        (MASKING, {"inputs": "2x16:int64,2x16:bool"}, {}, [], [WITH_VALUES]),
        (TABLE.format("Embedding"), IDS, {"gradients": round_up(50 * 32 * 4)}, ["sparse gradients"], []),
        (TABLE.format("EmbeddingBag"), IDS, {"gradients": round_up(50 * 32 * 4)}, ["sparse gradients"], []),
        (TABLE.format("Embedding"), {**IDS, "train": False}, {}, [], ["sparse"]),
        (GRU.format(False), {"inputs": "5x2x8"}, {}, ["'Net' was made with batch_first=False"], []),
        (GRU.format(True), {"inputs": "5x2x8"}, {}, [], ["batch_first"]),
        (sequential("torch.compile(nn.Linear(8, 8))"), {}, ONE_LAYER, ["torch.compile"], []),
        (sequential("torch.jit.script(nn.Linear(8, 8))"), {}, ONE_LAYER, ["torch.jit.script would fuse"], []),
        (sequential("nn.Linear(8, 8)"), {}, ONE_LAYER, ["output and loss live until the next forward"], ["would fuse"]),
        (sequential("nn.LazyLinear(8), nn.LazyBatchNorm1d()"), {"batch": 4}, {}, [SUM], [WITH_VALUES]),
        (linear("return out.square().mean()"), {}, ONE_LAYER, [OWN], [SUM]),
        (linear("return out.square().mean(), out"), {}, ONE_LAYER, [OWN], [SUM]),
        (linear("return {'logits': out, 'loss': out.square().mean()}"), {}, ONE_LAYER, [OWN], [SUM]),
    ],
)  # fmt: skip
def test_models_are_planned_for_as_they_are(write, monkeypatch, text, more, held, says, not_said):
    """`held`: parts of the memory at rest."""
    if text is MASKING:
        monkeypatch.setattr(subject, "VALUES_BYTES", 0)
    report = asked(**{**write(text), "inputs": "2x8", "train": True, **more})
    (fit,) = report.fits
    assert fit.fits
    assert {part: getattr(fit.rest, part) for part in held} == held
    told = "\n".join(report.assumptions)
    assert [words for words in says if words not in told] == []
    assert [words for words in not_said if words in told] == []


def test_a_batch_that_cannot_run_here_is_no_end_of_the_answer(write):
    """Tensors above 16 MiB have no values here, and this model looks at one that grows with the batch."""
    source = write(linear("return out if (1 + torch.arange(x.numel(), device=x.device)).min() > 0 else None"))
    report = asked(**source, inputs="2x64x8", search=True)
    assert report.fits[0].largest_batch == 65536
    assert any("could not run here" in one for one in report.assumptions)
    assert WITH_VALUES not in report.assumptions, "what was asked for ran without"


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        (
            "class Net(nn.Module):\n    def __init__(self): super().__init__(); self.layer = nn.Linear(8, 8)\n"
            "    def forward(self, x): return self.layer(x.repeat(1, 2))", {},
            r"failed with a batch of 1: .*mat1 and mat2 shapes.*in 'layer'",
        ),
        (
            linear('return out * torch.ones(8, device="cuda:1")'), {},
            "its code asks for CUDA itself, and devexplorer doctor names the line",
        ),
        (
            linear("return out if out.sum() > 0 else -out"), {"large": True},
            r"failed without values.*not tried with them.*more than the 100 B",
        ),
        ("class Net(nn.ReLU): pass", {"train": True}, "no parameters to train"),
        (linear("return x"), {"train": True}, "does not depend on anything that requires a gradient"),
        (
            sequential("torch.ao.nn.quantized.dynamic.Linear(8, 8)"), {},
            r"'0' of 'net\.py:Net' holds packed weights",
        ),
        ("", {"source": "resnet19"}, "did you mean resnet18"),
        ("", {"dtype": "float8_e4m3fn"}, "do not compute in float8_e4m3fn; plan for float32"),
        ("", {"dtype": "complex64"}, "do not compute in complex64"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_line(write, monkeypatch, text, more, words):
    if more.pop("large", False):
        monkeypatch.setattr(subject, "VALUES_BYTES", 100)
    with pytest.raises(BadInput, match=words):
        asked(**{**write(text), "inputs": "2x8", **more})


def test_a_model_without_parameters_has_a_forward(write):
    assert asked(**write("class Net(nn.ReLU): pass"), inputs="2x8").fits[0].bytes.library_workspace == 0


def test_everything_that_is_wrong_with_a_request_is_reported_at_once():
    wrong = {"batch": 0, "optimizer": "adagrad", "autocast": "int8", "dtype": "int64", "inputs": "axb"}
    with pytest.raises(BadInput) as told:
        asked(gpus=("Tesla T5",), checkpointing=True, **wrong)
    assert len(told.value.findings) == 7


def test_lazy_models_get_their_shapes_first():
    lazy, plain = (asked(source=name, train=True).fits[0].cards[0].bytes for name in ("lazy-mlp", "mlp"))
    assert lazy == plain


# --- transformers


def test_transformers_models_need_no_values():
    pytest.importorskip("transformers")
    llama = (
        "transformers:llama?hidden_size=64&num_hidden_layers=2&num_attention_heads=4&num_key_value_heads=2"
        "&intermediate_size=128&vocab_size=100"
    )
    report = asked(source=llama, train=True, checkpointing=True, inputs="1x32:int64", gpus=("Tesla T4", "2x Tesla T4"))
    assert [fit.fits for fit in report.fits] == [True, True]
    assert WITH_VALUES not in report.assumptions


def test_a_model_larger_than_any_machine():
    """Its parameters alone are 768 GiB, but it uses no memory of this machine."""
    pytest.importorskip("transformers")
    huge = "transformers:gpt2?n_layer=4&n_embd=65536&n_head=64&vocab_size=1000&bos_token_id=1&eos_token_id=1"
    (fit,) = asked(source=huge, train=True, inputs="1x64:int64").fits
    assert not fit.fits
    assert fit.cards[0].bytes.parameters > 768 << 30
    assert not torch.vgpu.memory_allocated("vgpu:0"), "nothing is left of it"  # type: ignore[attr-defined]


MOE = "num_hidden_layers=1&hidden_size=64&num_attention_heads=4&num_key_value_heads=2&vocab_size=128"
MIXTRAL = f"transformers:mixtral?{MOE}&intermediate_size=96&num_local_experts=4"


@pytest.mark.parametrize(
    "source",
    [
        MIXTRAL,
        f"transformers:qwen3_moe?{MOE}&moe_intermediate_size=48&num_experts=8&num_experts_per_tok=2",
        f"transformers:gpt_oss?{MOE}&head_dim=16&intermediate_size=96&num_local_experts=4",
    ],
)
def test_mixtures_of_experts_are_planned_for_without_values(source, monkeypatch):
    pytest.importorskip("transformers.integrations.moe")
    monkeypatch.setattr(subject, "VALUES_BYTES", 0)
    report = asked(source=source, inputs="1x24:int64", batch=2, train=True, optimizer="adamw")
    (fit,) = report.fits
    assert fit.fits
    assert EQUAL_SHARES in report.assumptions
    assert WITH_VALUES not in report.assumptions
    assert 4 * report.parameters <= fit.bytes.parameters < 4.1 * report.parameters
    assert fit.bytes.optimizer == pytest.approx(2 * fit.bytes.parameters, rel=0.01), "every expert is trained"


def test_experts_take_what_the_models_own_code_takes():
    """With values, where each token goes to the experts that its router chooses, about as much is computed."""
    pytest.importorskip("transformers.integrations.moe")
    equal, own = (trace_cache.TraceCache(subject.subject_of(MIXTRAL, "", "1x64:int64"), 600.0) for _ in range(2))
    own.subject, own._values = own.subject.with_values(RuntimeError("the test wants them")), True
    own.subject.model.config._experts_implementation = "eager"
    shared, real = (cache.traces(StepConfig(train=True), 4, ONE)[0] for cache in (equal, own))
    assert shared.flop == pytest.approx(real.flop, rel=0.1)
    assert shared.without_end.peak == pytest.approx(real.without_end.peak, rel=0.15)


# --- the range of seconds


def _range(report):
    (fit,) = report.fits
    return fit.step_seconds_high / fit.step_seconds


@pytest.mark.parametrize(
    ("layers", "more", "doubt"),
    [
        ("nn.Conv2d(64, 64, 3, groups=8)", {}, trace.GROUPED),
        ("nn.Conv2d(64, 64, 3), nn.GroupNorm(8, 64)", {}, trace.GROUP_NORM),
        ("nn.Conv2d(64, 64, 3)", {"train": True, "dtype": "float16"}, trace.OLD_HALF),
        ("torch.compile(nn.Conv2d(64, 64, 3))", {}, trace.COMPILED),
    ],
)
def test_the_range_is_wider_and_says_why_where_the_cost_model_does_not_know(write, layers, more, doubt):
    given = {"inputs": "1x64x128x128", "batch": 64}
    plain = asked(**write(sequential("nn.Conv2d(64, 64, 3)"), "plain"), **given)
    doubtful = asked(**write(sequential(layers)), **given, **more)
    assert doubt.words in doubtful.assumptions
    assert doubt.words not in plain.assumptions
    assert _range(plain) < 1.3 < 0.95 * doubt.factor <= _range(doubtful) <= 1.01 * doubt.factor
