"""Models of installed libraries: configurations of transformers, names of torchvision (a fake module here); nothing is
downloaded."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.other_models import SOURCES
from torch import nn

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models.builders import Made, SourceRecipe

TINY = "&".join(SOURCES["gpt2-tiny"].split("?")[1].split("&"))


def made(source: str, folder: str = "") -> Made:
    return SourceRecipe(parse(source), folder).make()


# --- transformers


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"transformers:gpt2?{TINY}", "GPT2LMHeadModel"),
        (f"transformers:gpt2?{TINY}&head=base", "GPT2Model"),
        (f"transformers:gpt2?{TINY}&head=sequence-classification", "GPT2ForSequenceClassification"),
        (SOURCES["bert-tiny"], "BertForMaskedLM"),
        (SOURCES["llama-tiny"], "LlamaForCausalLM"),
    ],
)
def test_the_head_is_the_one_that_was_asked_for_or_that_of_its_kind(source: str, expected: str) -> None:
    assert type(made(source).model).__name__ == expected


def test_values_are_those_of_the_seed_where_a_process_of_its_own_builds_it() -> None:
    first, again, other = (
        SourceRecipe(parse(SOURCES["gpt2-tiny"]), "").build(seed).get_parameter("lm_head.weight") for seed in (0, 0, 1)
    )
    assert first.equal(again)
    assert not first.equal(other)


def test_the_way_that_attention_is_computed_is_an_option_too() -> None:
    one = made(f"transformers:gpt2?{TINY}&attn_implementation=eager")
    assert one.model.config._attn_implementation == "eager"
    with pytest.raises(BadInput, match="attn_implementation"):
        made(f"transformers:gpt2?{TINY}&attn_implementations=eager")


def test_options_of_a_configuration_within_the_configuration(tmp_path: Path) -> None:
    small = "&".join(
        f"{part}.{key}"
        for part in ("text_config", "vision_config")
        for key in ("num_hidden_layers=1", "hidden_size=32")
    )
    options = (
        f"{small}&text_config.num_attention_heads=2&vision_config.num_attention_heads=2"
        "&vision_config.image_size=32&projection_dim=8"
    )
    config = made(f"transformers:clip?{options}&vision_config.patch_size=16").model.config
    assert (config.text_config.num_hidden_layers, config.vision_config.image_size, config.projection_dim) == (1, 32, 8)
    assert config.text_config.vocab_size == 49408, "what is not given is as it usually is"
    text = {"num_hidden_layers": 2, "vocab_size": 60, "bos_token_id": 0, "eos_token_id": 1}
    content = {"model_type": "clip", "text_config": text, "vision_config": {"num_hidden_layers": 2}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    config = made(f"transformers:config.json?{options}&vision_config.patch_size=16", str(tmp_path)).model.config
    assert (config.text_config.num_hidden_layers, config.text_config.vocab_size) == (1, 60)
    with pytest.raises(
        BadInput, match=r"clip has no 'text_config.num_hidden_layer'; did you mean text_config.num_hidden_layers"
    ):
        made("transformers:clip?text_config.num_hidden_layer=1")


def test_a_configuration_of_a_file_names_its_own_architecture_and_its_code_is_not_run(tmp_path: Path) -> None:
    content = {
        "model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"], "n_layer": 1, "n_embd": 32, "n_head": 2,
        "vocab_size": 50,
        "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0, "auto_map": {"AutoModel": "evil.Model"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "evil.py").write_text("raise SystemExit")
    one = made("transformers:config.json?n_embd=48", str(tmp_path))
    assert type(one.model).__name__ == "GPT2DoubleHeadsModel"
    assert one.model.get_parameter("transformer.wte.weight").shape == (50, 48)
    assert f'AutoConfig.from_pretrained("{tmp_path / "config.json"}", n_embd=48)' in one.code.text("m", 0, one.changes)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("transformers:gptt2", "has no model type 'gptt2'; did you mean gpt2"),
        ("transformers:meta-llama/Llama-2-7b", "is a name on a hub, and nothing is downloaded"),
        ("transformers:bert-base-uncased", "names of a hub are not looked up"),
        (
            "transformers:bert?layers=2&hidden_sise=32",
            "has no 'layers'.*has no 'hidden_sise'; did you mean hidden_size",
        ),
        ("transformers:gpt2?n_layer=two", "transformers refuses this configuration of gpt2.*'n_layer'"),
        ("transformers:gpt2?head=masked-lm", "gpt2 has no head 'masked-lm' in transformers; it has base, causal-lm"),
        ("transformers:gpt2?head=causal", "there is no head 'causal'; did you mean causal-lm"),
        ("transformers:bert?hidden_size=30&num_attention_heads=4", "cannot make .*hidden size"),
        ("transformers:absent.json", "absent.json cannot be read: no such file"),
        ("transformers:broken.json", "broken.json is no JSON"),
        ("transformers:list.json", "list.json names no model_type"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(BadInput, match=words) as refused:
        made(source, str(tmp_path))
    assert "\n" not in str(refused.value)


def test_nothing_is_fetched_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    seen = []
    recipe = SourceRecipe(parse(SOURCES["gpt2-tiny"]), "")
    assert recipe._prepared is not None
    make = recipe._prepared.make
    object.__setattr__(
        recipe._prepared,
        "make",
        lambda: seen.append((constants.HF_HUB_OFFLINE, os.environ["HF_HUB_OFFLINE"])) or make(),
    )
    recipe.make()
    assert seen == [(True, "1")]
    assert "HF_HUB_OFFLINE" not in os.environ


def test_its_sizes_are_known_before_it_is_made() -> None:
    recipe = SourceRecipe(parse(SOURCES["gpt2-tiny"]), "")
    sizes = recipe.sizes()
    assert sizes is not None
    model = recipe.make().model
    assert sorted(elements for _, elements in sizes) == sorted(
        t.numel() for t in (*model.parameters(), *model.buffers())
    )


def test_what_is_not_installed_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        Unavailable, match=r'the package transformers is not installed; get it with pip install "devexplorer\[models\]"'
    ):
        made("transformers:gpt2")
    with pytest.raises(
        Unavailable, match="the package torchvision is not installed; get it with pip install torchvision"
    ):
        made("torchvision:resnet50")


# --- torchvision


TORCHVISION = """
from torch import nn

class Weights: DEFAULT = "from the network"

def _plain(*, weights=None, progress=True, **kwargs):
    assert weights is None
    return nn.Conv2d(3, kwargs.get("width", 4), 3)

def _detector(*, weights=None, weights_backbone=Weights.DEFAULT, num_classes=91):
    assert weights is None and weights_backbone is None, "this would download"
    return nn.Linear(4, num_classes)

class models:
    _all = {"plain18": _plain, "detector": _detector}
    @staticmethod
    def list_models(): return list(models._all)
    @staticmethod
    def get_model_builder(name): return models._all[name]
    @staticmethod
    def get_model(name, **options): return models._all[name](**options)
"""


@pytest.fixture
def torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "torchvision.py").write_text(TORCHVISION)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    yield
    sys.modules.pop("torchvision", None)


@pytest.mark.usefixtures("torchvision")
def test_a_model_of_torchvision_comes_without_weights() -> None:
    assert isinstance(made("torchvision:plain18?width=8").model, nn.Conv2d)
    detector = made("torchvision:detector?num_classes=3")
    assert isinstance(detector.model, nn.Linear)
    scope: dict[str, object] = {}
    exec(detector.code.text("there", 0, detector.changes), scope)
    assert isinstance(scope["there"], nn.Linear)
    assert scope["there"].out_features == 3


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("torchvision:plain", "torchvision has no model 'plain'; did you mean plain18"),
        ("torchvision:plain18?weights=DEFAULT", "'weights' would download weights, and nothing is downloaded"),
        ("torchvision:detector?weights_backbone=DEFAULT", "'weights_backbone' would download"),
        ("torchvision:detector?classes=3", "has no option 'classes'; did you mean num_classes"),
        ("torchvision:plain18?width=wide", "cannot make torchvision:plain18"),
    ],
)
def test_what_torchvision_has_not_is_refused(source: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        made(source)
