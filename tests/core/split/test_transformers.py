"""Three third-party models: split over two virtual GPUs, run, joined, with their tied embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.models.extras import Extras
from devexplorer.core.records import Backward, Forward, Redo, Undo
from devexplorer.core.split.draft import Draft
from devexplorer.core.split.records import Hopped, Join, PlanSplit, Split, SplitPlanned

transformers = pytest.importorskip("transformers")
SMALL = {"vocab_size": 100, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def bert() -> nn.Module:
    wide = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
    }
    model: nn.Module = transformers.BertForMaskedLM(transformers.BertConfig(**wide, **SMALL))
    return model


def gpt2() -> nn.Module:
    model: nn.Module = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=3, n_embd=32, n_head=2, n_positions=32, **SMALL)
    )
    return model


def llama() -> nn.Module:
    wide = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
    }
    model: nn.Module = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**wide, **SMALL, tie_word_embeddings=True)
    )
    return model


TIED = {
    "bert": ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    "gpt2": ("transformer.wte.weight", "lm_head.weight"),
    "llama": ("model.embed_tokens.weight", "lm_head.weight"),
}
LAYERS = {"bert": "bert.encoder.layer", "gpt2": "transformer.h", "llama": "model.layers"}


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        made.workspace.add("ids", torch.arange(16).reshape(2, 8))
        yield made


def logits(place: Place, name: str) -> Tensor:
    place.do(Forward(target=name, input="ids", output="y"))
    y = place.workspace.tensor_named("y")
    assert y.device.type == "cpu"  # where its input was
    place.do(Undo())
    return y


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_it_splits_runs_and_joins_and_its_embeddings_stay_tied(place: Place, make: Callable[[], nn.Module]):
    name = make.__name__
    torch.manual_seed(0)
    model = make().eval()
    place.workspace.add(name, model, Extras())
    before = place.snapshot(name).bytes_by_device
    expected = logits(place, name)

    (event,) = place.do(PlanSplit(target=name, even=True)).events
    assert isinstance(event, SplitPlanned)
    split = Draft(event.plan).command()
    blocks = {block.path: block for block in event.plan.blocks}
    assert {f"{LAYERS[name]}.{index}" for index in range(3)} < set(blocks)
    assert {block.device for block in blocks.values()} == {"vgpu:0", "vgpu:1"}
    tied = [block for block in blocks.values() if block.tied_with]
    assert len(tied) == 2
    assert len({block.device for block in tied}) == 1

    place.do(split)
    first, second = (model.get_parameter(path) for path in TIED[name])
    assert first is second
    assert set(place.snapshot(name).bytes_by_device) == {"vgpu:0", "vgpu:1"}
    assert torch.allclose(logits(place, name), expected, atol=1e-5)
    (ran,) = place.do(Forward(target=name, input="ids")).events
    assert isinstance(ran, Hopped)
    assert any(hop.before.startswith(LAYERS[name]) and hop.after.startswith(LAYERS[name]) for hop in ran.hops)
    place.do(Backward(target=name, input="ids"))
    assert first.grad is not None
    assert first.grad.device == first.device
    place.do(Undo())

    place.do(Undo())
    assert place.snapshot(name).bytes_by_device == before
    assert torch.equal(logits(place, name), expected)
    spread_again = place.do(split)
    assert "is split over vgpu:0 and vgpu:1" in spread_again.answer.title
    place.do(Join(target=name, device="vgpu:1"))
    assert set(place.snapshot(name).bytes_by_device) == {"vgpu:1"}
    assert model.get_parameter(TIED[name][0]) is model.get_parameter(TIED[name][1])
    place.do(Undo())
    place.do(Redo())
    assert not place.snapshot(name).hops


@pytest.mark.parametrize(
    "parted", ["transformer.wpe", "transformer.h.1.mlp", "transformer.h.1.attn.c_proj", "transformer.h.2.ln_2"]
)
def test_parts_that_add_up_on_two_devices_work_too(place: Place, parted: str):
    """Positions are added to words, and residuals to what a layer computes, outside of any module."""
    torch.manual_seed(0)
    model = gpt2().eval()
    place.workspace.add("gpt2", model, Extras())
    expected = logits(place, "gpt2")
    place.do(Split(target="gpt2", device_map={"": "vgpu:0", parted: "vgpu:1"}))
    assert torch.allclose(logits(place, "gpt2"), expected, atol=1e-5)
