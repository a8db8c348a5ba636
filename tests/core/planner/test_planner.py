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
from devexplorer.core.planner.plan import plan
from devexplorer.core.planner.records import FitSpec
from devexplorer.core.planner.run import DeviceMap, StepConfig
from devexplorer.core.planner.subject import EQUAL_SHARES, NOTE
from devexplorer.core.planner.trace_cache import WITH_VALUES
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES
from devexplorer.core.virtual.device.memory import round_up

pytestmark = pytest.mark.usefixtures("virtual")

QUICK = FitSpec(source="mlp", gpus=("Tesla T4",), search=False, options=False)
CUBLAS = 2 * 4096 * 1024 + 8 * 16 * 1024
TRAINING = 2 * CUBLAS
"""Two threads run products: the caller's and autograd's."""
CUDNN = 64 << 20


def asked(**given):
    return plan(replace(QUICK, **{"patience_seconds": 600.0, **given}))


@pytest.fixture
def small_card(monkeypatch):
    """Lets a T4 have so many bytes beside context and the workspaces of training."""

    def shrink(nbytes):
        small = _with_memory(nbytes + CONTEXT_BYTES + TRAINING)
        monkeypatch.setattr(
            planning, "parse_planned", lambda text, _calibrations: [small] * (2 if text.startswith("2x") else 1)
        )

    return shrink


def _with_memory(nbytes):
    return dataclasses.replace(T4, usable_bytes=nbytes)


def write(folder, name, text):
    (folder / f"{name}.py").write_text(text)
    return {"source": f"{name}.py:Net", "folder": str(folder)}


def test_everything_that_is_known_of_one_card():
    report = asked(batch=4, train=True)
    (fit,) = report.fits
    (card,) = fit.cards
    assert (fit.gpu, fit.fits, card.capacity_bytes) == ("Tesla T4", True, T4.usable_bytes)
    assert (card.bytes.context, card.bytes.library_workspace) == (CONTEXT_BYTES, TRAINING)
    assert card.bytes.optimizer == 2 * card.bytes.parameters
    assert card.bytes.gradients == card.bytes.parameters
    assert card.reserved_bytes >= card.bytes.allocated + TRAINING
    assert card.bytes.from_allocator == card.bytes.total - CONTEXT_BYTES
    assert card.used_bytes == card.reserved_bytes + CONTEXT_BYTES
    assert (card.rest.parameters, card.rest.gradients, card.rest.optimizer) == (card.bytes.parameters,) * 2 + (
        card.bytes.optimizer,
    )
    assert card.rest.activations == 3 * 512, "the inputs, the output and the loss"
    (forward,) = asked(batch=4).fits
    assert forward.cards[0].bytes.library_workspace == CUBLAS, "autograd has nothing to do"
    assert forward.rest.gradients == forward.rest.optimizer == 0
    assert fit.samples_per_s == pytest.approx(4 / fit.step_seconds)
    assert (report.parameters, report.inputs, report.simulated) == (20 * 256 + 256 + 256 * 10 + 10, "4x20", True)
    assert report.flop_per_step == 2 * 4 * (20 * 256 + 256 * 10) * 3 - 2 * 4 * 20 * 256, (
        "nobody needs the gradient of the input"
    )
    assert report.assumptions


def test_without_cards_every_profile_is_looked_at():
    report = asked(gpus=())
    assert [fit.gpu for fit in report.fits] == list(load_profiles())
    assert all(fit.fits for fit in report.fits)


def test_the_largest_batch_fits_and_one_more_does_not(small_card):
    small_card((40 << 20) + CUDNN)
    (fit,) = asked(source="lenet", train=True, search=True).fits
    assert not fit.at_least
    assert fit.largest_batch > 100
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


def test_what_would_help_is_sorted_by_what_it_saves():
    report = asked(source="transformer", train=True, batch=1024, options=True)
    saved = [help.saved_bytes for help in report.helps]
    assert saved == sorted(saved, reverse=True)
    assert min(saved) > 0
    now = report.fits[0].cards[0].bytes.total
    for help in report.helps:
        assert help.total_bytes + help.saved_bytes == now
        assert help.gpu == "Tesla T4"
        assert help.words.endswith(".")
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
    first, second = state_sizes(
        nn.Sequential(model, nn.Linear(128, 1)), DeviceMap((T4, T4), ((id(model.weight), 0), (id(model.bias), 1)))
    )
    assert second == [1024, 1024, 512, 512], "each card has the state of its own parameters"
    assert 8192 in first


def test_a_split_over_two_cards():
    report = asked(source="transformer", gpus=("2x Tesla T4",), batch=8, train=True)
    (fit,) = report.fits
    one = asked(source="transformer", batch=8, train=True).fits[0]
    assert (fit.gpu, fit.fits, len(fit.cards)) == ("2x Tesla T4", True, 2)
    assert sum(card.bytes.parameters for card in fit.cards) == one.cards[0].bytes.parameters
    assert all(0 < card.bytes.parameters < one.cards[0].bytes.parameters for card in fit.cards)
    assert fit.capacity_bytes == 2 * T4.usable_bytes
    assert fit.step_seconds > one.step_seconds, "the copies between the cards take time"


def test_a_card_that_is_too_full_gets_a_smaller_share(small_card, tmp_path):
    """The first layers have few parameters and large activations: with half of the parameters each, one card is
    full."""
    source = write(
        tmp_path,
        "narrowing",
        "from torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):\n        early ="
        " [nn.Sequential(nn.Linear(16, 4096), nn.ReLU(), nn.Linear(4096, 16), nn.ReLU()) for _ in range(6)]\n       "
        " late = [nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]\n   "
        "     super().__init__(*early, nn.Linear(16, 512), *late)\n",
    )
    given = {**source, "inputs": "1x16", "batch": 2048, "train": True, "optimizer": "sgd"}
    needed = asked(**given).fits[0].cards[0].reserved_bytes
    small_card(needed * 3 // 4)
    (one,), (two,) = (asked(**given, gpus=gpus).fits for gpus in (("Tesla T4",), ("2x Tesla T4",)))
    assert not one.fits
    assert two.fits, two.reason
    first, second = (card.bytes for card in two.cards)
    assert first.parameters < second.parameters
    assert first.activations > second.activations


def test_unequal_cards_get_shares_of_their_size():
    (fit,) = asked(source="transformer", gpus=("Tesla T4, NVIDIA H200",)).fits
    assert fit.gpu == "Tesla T4, NVIDIA H200"
    small, large = (card.bytes.parameters for card in fit.cards)
    assert 0 < small < large


def test_what_cannot_be_divided_says_why(tmp_path):
    source = write(
        tmp_path,
        "whole",
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(8, 8)\n",
    )
    (fit,) = asked(**source, inputs="2x8", gpus=("2x Tesla T4",)).fits
    assert not fit.fits
    assert "one block" in fit.reason
    assert not fit.bytes.total


def test_a_model_that_looks_at_its_values_runs_with_them(tmp_path):
    source = write(
        tmp_path,
        "looking",
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n        x = self.layer(x)\n        return x if x.sum() > 0 else -x\n",
    )
    report = asked(**source, inputs="2x8", train=True)
    assert report.fits[0].fits
    assert any("values" in one for one in report.assumptions)


def test_tensors_that_are_not_registered_need_no_values_of_the_others(tmp_path):
    source = write(
        tmp_path,
        "holding",
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n       "
        " super().__init__()\n        self.layer = nn.Linear(8, 8)\n        self.scale = torch.ones(8)\n    def"
        " forward(self, x):\n        return self.layer(x) * self.scale.to(x.device)\n",
    )
    report = asked(**source, inputs="2x8", train=True)
    assert report.fits[0].fits
    assert not any("values" in one for one in report.assumptions)


def test_a_model_that_is_wrong_says_so_in_one_line(tmp_path):
    source = write(
        tmp_path,
        "broken",
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n        return self.layer(x.repeat(1, 2))\n",
    )
    with pytest.raises(BadInput, match=r"failed with a batch of 1: .*mat1 and mat2 shapes.*in 'layer'"):
        asked(**source, inputs="2x8")


ASKING = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8){0}
        self.register_buffer("scale", torch.ones(8{1}))
    def forward(self, x):
        return self.layer(x{2}) * self.scale{3}
"""
CARD = ', device="cuda:0"'


@pytest.mark.parametrize(
    "where",
    [(".cuda()", "", "", ""), ('.to("cuda")', CARD, "", ""), ("", "", ".cuda()", ' * torch.ones(8, device="cuda")')],
    ids=["in the constructor", "with a name", "in forward"],
)
def test_code_that_asks_for_cuda_sees_the_cards(tmp_path, where):
    report = asked(**write(tmp_path, "asking", ASKING.format(*where)), inputs="2x8", train=True)
    held = report.fits[0].bytes
    assert held.parameters == held.gradients == round_up(4 * 8 * 8) + round_up(4 * 8)
    assert held.buffers == round_up(4 * 8)
    assert NOTE in report.assumptions
    assert WITH_VALUES not in report.assumptions


def test_code_that_asks_for_more_cards_than_it_is_planned_for_fails_in_one_line(tmp_path):
    source = write(tmp_path, "asking", ASKING.format("", "", "", ' * torch.ones(8, device="cuda:1")'))
    with pytest.raises(BadInput, match="its code asks for CUDA itself, and devexplorer doctor names the line"):
        asked(**source, inputs="2x8")


@pytest.mark.filterwarnings("ignore:.*is deprecated", "ignore:`torch.jit")  # torch's own
@pytest.mark.parametrize(
    ("compiler", "said"), [("torch.compile", "torch.compile"), ("torch.jit.script", "torch.jit.script would fuse")]
)
def test_compiled_parts_run_as_they_are(tmp_path, compiler, said):
    text = "import torch\nfrom torch import nn\nclass Net(nn.Sequential):\n    def __init__(self): super().__init__("
    name = compiler.rpartition(".")[2]
    compiled, plain = (
        asked(**write(tmp_path, file, f"{text}{layer})\n"), inputs="2x8", train=True)
        for file, layer in ((name, f"{compiler}(nn.Linear(8, 8))"), (f"un{name}", "nn.Linear(8, 8)"))
    )
    assert compiled.fits[0].bytes == plain.fits[0].bytes
    assert any(said in one for one in compiled.assumptions)
    assert not any(said in one for one in plain.assumptions)


def test_functions_with_a_backward_of_their_own(tmp_path):
    source = write(
        tmp_path,
        "own",
        "import torch\nfrom torch import nn\n"
        "class Sine(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x.sin()\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        return grad * ctx.saved_tensors[0].cos()\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(8, 8)\n"
        "    def forward(self, x): return Sine.apply(super().forward(x))\n",
    )
    report = asked(**source, inputs="2x8", train=True)
    assert report.fits[0].bytes.optimizer == 4 * 512
    assert not any("values" in one for one in report.assumptions)


def test_too_large_to_run_with_values_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "VALUES_BYTES", 100)
    source = write(
        tmp_path,
        "large",
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(8, 8)\n"
        "    def forward(self, x):\n        x = super().forward(x)\n        return x if x.sum() > 0 else -x\n",
    )
    with pytest.raises(BadInput, match=r"failed without values.*not tried with them.*more than the 100 B"):
        asked(**source, inputs="2x8")


def test_a_model_without_parameters_cannot_be_trained(tmp_path):
    source = write(tmp_path, "bare", "from torch import nn\nclass Net(nn.ReLU):\n    pass\n")
    with pytest.raises(BadInput, match="no parameters to train"):
        asked(**source, inputs="2x8", train=True)
    assert asked(**source, inputs="2x8").fits[0].bytes.library_workspace == 0


def test_everything_that_is_wrong_with_a_request_is_reported_at_once():
    with pytest.raises(BadInput) as told:
        asked(
            gpus=("Tesla T5",),
            batch=0,
            optimizer="adagrad",
            autocast="int8",
            dtype="int64",
            inputs="axb",
            checkpointing=True,
        )
    assert len(told.value.findings) == 7


def test_unknown_models_are_refused():
    with pytest.raises(BadInput, match="did you mean resnet18"):
        asked(source="resnet19")


def normalising(folder, layer="nn.Linear(8, 8), nn.BatchNorm1d(8)"):
    text = (
        "import torch\nfrom torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):"
        f" super().__init__({layer})\n"
    )
    return write(folder, "normalising", text)


def test_what_cannot_train_on_a_single_sample_can_be_planned_for(tmp_path, small_card):
    """Batch normalisation wants two of them: the search begins there."""
    source = normalising(tmp_path)
    small_card(4 << 20)
    (fit,) = asked(**source, inputs="4x8", batch=4, train=True, search=True).fits
    assert fit.fits
    assert fit.largest_batch > 4
    assert not asked(**source, inputs="4x8", batch=fit.largest_batch + 1, train=True).fits[0].fits
    small_card(1 << 20)
    (fit,) = asked(**source, inputs="4x8", batch=4, train=True, search=True).fits
    assert (fit.fits, fit.largest_batch) == (False, 0)


def test_lazy_batch_normalisation_gets_its_shapes(tmp_path):
    source = normalising(tmp_path, "nn.LazyLinear(8), nn.LazyBatchNorm1d()")
    assert asked(**source, inputs="4x8", batch=4).fits[0].fits


def test_a_model_for_one_batch_only_has_that_as_its_largest(tmp_path):
    source = write(
        tmp_path,
        "fixed",
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(8, 8); self.places = nn.Parameter(torch.zeros(4, 8))\n"
        "    def forward(self, x): return super().forward(x) + self.places\n",
    )
    (fit,) = asked(**source, inputs="4x8", batch=4, search=True).fits
    assert (fit.largest_batch, fit.at_least) == (4, True)


def test_a_batch_that_cannot_run_here_is_no_end_of_the_answer(tmp_path):
    """Tensors above 16 MiB have no values here, and this model looks at one that grows with the batch."""
    source = write(
        tmp_path,
        "looking_far",
        "import torch\nfrom torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(64, 64)\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if (1 + torch.arange(x.numel(), device=x.device)).min() > 0 else None\n",
    )
    report = asked(**source, inputs="2x64", search=True)
    assert report.fits[0].largest_batch == 65536
    assert any("could not run here" in one for one in report.assumptions)
    assert not any("It cannot run without values" in one for one in report.assumptions), "what was asked for did"


def test_sequences_whose_batch_is_not_first_are_named(tmp_path):
    text = "from torch import nn\nclass Net(nn.GRU):\n    def __init__(self): super().__init__(8, 8, batch_first={})\n"
    second = asked(**write(tmp_path, "second", text.format(False)), inputs="5x2x8", batch=5)
    first = asked(**write(tmp_path, "first", text.format(True)), inputs="5x2x8", batch=5)
    assert any("'Net' was made with batch_first=False" in one for one in second.assumptions)
    assert not any("batch_first" in one for one in first.assumptions)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "complex64"])
def test_dtypes_that_no_layer_computes_in_are_refused(dtype):
    with pytest.raises(BadInput, match=f"do not compute in {dtype}; plan for float32"):
        asked(dtype=dtype)


@pytest.mark.filterwarnings("ignore:.*is deprecated")  # torch's own
def test_packed_weights_are_refused(tmp_path):
    source = normalising(tmp_path, "torch.ao.nn.quantized.dynamic.Linear(8, 8)")
    with pytest.raises(BadInput, match=r"'0' of 'normalising\.py:Net' holds packed weights"):
        asked(**source, inputs="2x8")


def test_lazy_models_get_their_shapes_first():
    lazy, plain = (asked(source=name, train=True).fits[0].cards[0].bytes for name in ("lazy-mlp", "mlp"))
    assert lazy == plain


def test_transformers_models_need_no_values():
    pytest.importorskip("transformers")
    llama = (
        "transformers:llama?hidden_size=64&num_hidden_layers=2&num_attention_heads=4&num_key_value_heads=2&intermediate_size=128"
        "&vocab_size=100"
    )
    report = asked(source=llama, train=True, checkpointing=True, inputs="1x32:int64", gpus=("Tesla T4", "2x Tesla T4"))
    assert [fit.fits for fit in report.fits] == [True, True]
    assert not any("values" in one for one in report.assumptions)


def test_a_model_larger_than_any_machine():
    """Its parameters alone are 768 GiB, but it uses no memory of this machine."""
    pytest.importorskip("transformers")
    huge = "transformers:gpt2?n_layer=4&n_embd=65536&n_head=64&vocab_size=1000&bos_token_id=1&eos_token_id=1"
    (fit,) = asked(source=huge, train=True, inputs="1x64:int64").fits
    assert not fit.fits
    assert fit.cards[0].bytes.parameters > 768 << 30
    assert not torch.vgpu.memory_allocated("vgpu:0"), "nothing is left of it"  # type: ignore[attr-defined]


def test_without_time_the_answer_says_what_is_missing():
    report = plan(replace(QUICK, source="lenet", train=True, search=True, options=True, patience_seconds=0.0))
    (fit,) = report.fits
    assert fit.fits
    assert fit.largest_batch > 1
    assert not report.helps
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
    assert report.fits[0].gpu != report.fits[1].gpu


def test_labels_of_cards():
    profiles = load_profiles()
    t4, h200 = profiles["Tesla T4"], profiles["NVIDIA H200"]
    assert desks.label([t4]) == "Tesla T4"
    assert desks.label([t4, t4, h200]) == "2x Tesla T4, NVIDIA H200"


def test_a_function_over_submodules_runs_on_the_card(tmp_path):
    text = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"into": nn.Linear(8, 16), "out": nn.Linear(16, 8)})
        parts = self.parts
        self.feed = lambda x: parts["out"](parts["into"](x).relu())
    def forward(self, x): return x + self.feed(x)
"""
    report = asked(**write(tmp_path, "feeding", text), inputs="2x8", train=True)
    assert report.fits[0].fits
    assert report.fits[0].bytes.parameters == sum(round_up(4 * size) for size in (8 * 16, 16, 16 * 8, 8))
    assert not [line for line in report.assumptions if line == WITH_VALUES]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_buffer_takes_its_own_bytes(tmp_path):
    text = """
import torch
from torch import nn
class Net(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        indices = torch.zeros(2, 100, dtype=torch.int64)
        self.register_buffer("graph", torch.sparse_coo_tensor(indices, torch.ones(100), (10**6, 10**6)))
"""
    report = asked(**write(tmp_path, "sparse", text), inputs="2x8", train=True)
    assert report.fits[0].bytes.buffers == round_up(100 * (2 * 8 + 4))


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("out", "The loss is the sum of the outputs"),
        ("out.square().mean()", "The loss is the one that the model returns"),
        ("(out.square().mean(), out)", "The loss is the one that the model returns"),
        ("{'logits': out, 'loss': out.square().mean()}", "The loss is the one that the model returns"),
    ],
)
def test_a_model_that_returns_its_loss_is_trained_with_it(tmp_path, returned, says):
    source = write(
        tmp_path,
        f"returning{abs(hash(returned))}",
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(8, 8)\n"
        f"    def forward(self, x):\n        out = super().forward(x)\n        return {returned}\n",
    )
    report = asked(**source, inputs="1x8", train=True)
    assert next(each for each in report.assumptions if each.startswith("The loss is")).startswith(says)
    assert any("output and loss live until the next forward" in each for each in report.assumptions)


MOE = "num_hidden_layers=1&hidden_size=64&num_attention_heads=4&num_key_value_heads=2&vocab_size=128"


@pytest.mark.parametrize(
    "source",
    [
        f"transformers:mixtral?{MOE}&intermediate_size=96&num_local_experts=4",
        f"transformers:qwen3_moe?{MOE}&moe_intermediate_size=48&num_experts=8&num_experts_per_tok=2",
        f"transformers:gpt_oss?{MOE}&head_dim=16&intermediate_size=96&num_local_experts=4",
    ],
)
@pytest.mark.parametrize("train", [False, True])
def test_mixtures_of_experts_are_planned_for_without_values(source, train, monkeypatch):
    pytest.importorskip("transformers.integrations.moe")
    monkeypatch.setattr(subject, "VALUES_BYTES", 0)
    report = asked(source=source, inputs="1x24:int64", batch=2, train=train, optimizer="adamw")
    (fit,) = report.fits
    assert fit.fits
    assert EQUAL_SHARES in report.assumptions
    assert WITH_VALUES not in report.assumptions
    assert 4 * report.parameters <= fit.bytes.parameters < 4.1 * report.parameters
    if train:
        assert fit.bytes.optimizer == pytest.approx(2 * fit.bytes.parameters, rel=0.01), "every expert is trained"


def test_experts_take_what_the_models_own_code_takes(monkeypatch):
    """With values, where each token goes to the experts that its router chooses, about as much is computed."""
    pytest.importorskip("transformers.integrations.moe")
    source = f"transformers:mixtral?{MOE}&intermediate_size=96&num_local_experts=4"
    equal, own = (trace_cache.TraceCache(subject.subject_of(source, "", "1x64:int64"), 600.0) for _ in range(2))
    own.subject, own._values = own.subject.with_values(RuntimeError("the test wants them")), True
    own.subject.model.config._experts_implementation = "eager"
    shared, real = (cache.traces(StepConfig(train=True), 4, ONE)[0] for cache in (equal, own))
    assert shared.flop == pytest.approx(real.flop, rel=0.1)
    assert shared.without_end.peak == pytest.approx(real.without_end.peak, rel=0.15)


def test_a_mask_that_is_an_input_can_be_read_in_a_model_too_large_for_values(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "VALUES_BYTES", 0)
    source = write(
        tmp_path,
        "masking",
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.table, self.layer = nn.Embedding(50, 32), nn.Linear(32, 32)\n"
        "    def forward(self, ids, mask):\n        h = self.table(ids)\n"
        "        if not mask.all():\n            h = h.masked_fill(~mask[..., None].bool(), 0)\n"
        "        return self.layer(h)\n",
    )
    for mask in ("int64", "bool"):
        report = asked(**source, inputs=f"2x16:int64,2x16:{mask}", train=True)
        assert report.fits[0].fits
        assert WITH_VALUES not in report.assumptions


@pytest.mark.parametrize("layer", ["Embedding", "EmbeddingBag"])
def test_embeddings_with_sparse_gradients_are_planned_for_with_dense_ones(tmp_path, layer):
    source = write(
        tmp_path,
        f"sparse{layer.lower()}",
        "from torch import nn\n"
        f"class Net(nn.{layer}):\n    def __init__(self): super().__init__(50, 32, sparse=True)\n",
    )
    report = asked(**source, inputs="2x16:int64", batch=2, train=True, optimizer="sgd")
    assert report.fits[0].bytes.gradients == 50 * 32 * 4 // 512 * 512 + 512 * bool(50 * 32 * 4 % 512)
    assert any("sparse gradients" in each for each in report.assumptions)
    assert not any("sparse" in each for each in asked(**source, inputs="2x16:int64").assumptions)


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
def test_the_range_is_wider_and_says_why_where_the_cost_model_does_not_know(tmp_path, layers, more, doubt):
    def made(name, layers):
        text = "import torch\nfrom torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):"
        return write(tmp_path, name, f"{text} super().__init__({layers})\n")

    name = f"doubtful{abs(hash(layers))}"
    given = {"inputs": "1x64x128x128", "batch": 64}
    plain = asked(**made("plain", "nn.Conv2d(64, 64, 3)"), **given)
    doubtful = asked(**made(name, layers), **given, **more)
    assert doubt.words in doubtful.assumptions
    assert doubt.words not in plain.assumptions
    assert _range(plain) < 1.3 < 0.95 * doubt.factor <= _range(doubtful) <= 1.01 * doubt.factor


def test_the_range_of_a_small_model_on_an_apple_chip_is_a_factor_of_four():
    assert _range(asked(gpus=("Apple M4 16GB",))) == pytest.approx(4, rel=0.1)
