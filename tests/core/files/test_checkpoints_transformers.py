"""BERT, GPT-2 and Llama of transformers are saved and loaded, and tied embeddings stay tied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.files.records import LoadCheckpoint, Save
from devexplorer.core.records import Undo

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")


@pytest.fixture(params=["cpu", "vgpu"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_of(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def no_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """tqdm would leave a thread that watches its bars."""
    monkeypatch.setattr(pytest.importorskip("tqdm").tqdm, "monitor_interval", 0)


def made(name: str) -> Any:
    """A small one, whose two embeddings are one tensor."""
    small = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
    if name == "gpt2":
        small |= {"n_positions": 20, "n_embd": 16, "n_layer": 2, "n_head": 2}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**small))
    small |= {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    if name == "bert":
        return transformers.BertForMaskedLM(transformers.BertConfig(**small, max_position_embeddings=20))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**small))


MODELS = ("bert", "gpt2", "llama")


def tied(model: nn.Module) -> bool:
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight  # type: ignore[operator]


@pytest.mark.parametrize("form", ["safetensors", "pt"])
@pytest.mark.parametrize("name", MODELS)
def test_values_come_back_and_ties_stay(place: Place, tmp_path: Path, name: str, form: str) -> None:
    model = made(name).to(place.first)
    assert tied(model)
    place.workspace.add(name, model)
    saved = {key: value.cpu().clone() for key, value in model.state_dict().items()}
    path = str(tmp_path / f"{name}.{form}")
    place.do(Save(targets=(name,), path=path, form=form))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    place.do(LoadCheckpoint(target=name, path=path))
    assert all(torch.equal(value.cpu(), saved[key]) for key, value in model.state_dict().items())
    assert tied(model)
    tokens = torch.arange(6).reshape(1, 6).to(place.first)
    assert model(tokens).logits.abs().sum() > 0
    place.do(Undo())
    assert all(not parameter.any() for parameter in model.parameters())
    assert tied(model)


@pytest.mark.parametrize("name", MODELS)
def test_what_transformers_itself_writes_loads_and_what_is_written_here_it_reads(
    place: Place, tmp_path: Path, name: str
) -> None:
    theirs, ours = made(name), made(name).to(place.first)
    theirs.save_pretrained(tmp_path / "theirs")
    place.workspace.add(name, ours)
    place.do(LoadCheckpoint(target=name, path=str(tmp_path / "theirs" / "model.safetensors")))
    expected = theirs.state_dict()
    assert all(torch.equal(value.cpu(), expected[key]) for key, value in ours.state_dict().items())
    assert tied(ours)
    theirs.config.save_pretrained(tmp_path / "ours")
    place.do(Save(targets=(name,), path=str(tmp_path / "ours" / "model.safetensors")))
    again = type(theirs).from_pretrained(tmp_path / "ours")
    assert all(torch.equal(value, expected[key]) for key, value in again.state_dict().items())
    assert tied(again)


def test_the_file_of_the_base_model_finds_its_part(place: Place, tmp_path: Path) -> None:
    base = made("gpt2").transformer
    torch.save(base.state_dict(), tmp_path / "base.pt")
    place.workspace.add("gpt2", made("gpt2").to(place.first))
    answer = place.answer(LoadCheckpoint(target="gpt2", path=str(tmp_path / "base.pt")))
    assert [offer.label for offer in answer.offers] == ["Load into transformer"]
    assert not place.answer(answer.offers[0].command).failed
