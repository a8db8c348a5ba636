"""Published steps of training, inference and decoding, and the plan that each of them is. No torch; any thread.

`resources/published_steps.csv` has the rows with their sources. The cost model is fitted to most of those that can be
planned (`tests/benchmarks/fit_cost_model.py`), so their predictions are no test of the model: `fitted_to` says which.
It has seen no row of decoding, for which a sample is a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from devexplorer.core.devices.profiles import resource_rows
from devexplorer.core.planner.records import Fit, FitSpec, ServingSpec

LARGE_BERT = "hidden_size=1024&num_hidden_layers=24&num_attention_heads=16&intermediate_size=4096"
LLAMA = "transformers:llama?num_key_value_heads=8&vocab_size=128256&head_dim={}&tie_word_embeddings=true&"
CLASSES = "head=image-classification"
VGG16 = "vgg16"
"""Not a sample model: the one with batch norm, without it."""

SOURCES: dict[str, str] = {
    r"^resnet18$": "resnet18",
    r"^resnet-?50$": "resnet50",
    r"^resnet34$": f"transformers:resnet?{CLASSES}&layer_type=basic&depths=[3,4,6,3]&hidden_sizes=[64,128,256,512]",
    r"^resnet101$": f"transformers:resnet?{CLASSES}&depths=[3,4,23,3]",
    r"^vgg16$": VGG16,
    r"^vit_tiny_patch16_224$": f"transformers:vit?{CLASSES}&hidden_size=192&num_attention_heads=3"
    "&intermediate_size=768",
    r"^vit_small_patch16_224$": f"transformers:vit?{CLASSES}&hidden_size=384&num_attention_heads=6"
    "&intermediate_size=1536",
    r"^vit[-_]base[-_]patch16[-_]224$": f"transformers:vit?{CLASSES}",
    r"^vit_large_patch16_384$": f"transformers:vit?{CLASSES}&image_size=384&{LARGE_BERT}",
    r"^vit_huge_patch14_224$": f"transformers:vit?{CLASSES}&patch_size=14&hidden_size=1280&num_hidden_layers=32"
    "&num_attention_heads=16&intermediate_size=5120",
    r"^swin_tiny_": f"transformers:swin?{CLASSES}",
    r"^swin_base_": f"transformers:swin?{CLASSES}&embed_dim=128&depths=[2,2,18,2]&num_heads=[4,8,16,32]",
    r"^convnext_tiny$": f"transformers:convnext?{CLASSES}",
    r"^convnext_base$": f"transformers:convnext?{CLASSES}&depths=[3,3,27,3]&hidden_sizes=[128,256,512,1024]",
    r"^convnext[-_]large": f"transformers:convnext?{CLASSES}&depths=[3,3,27,3]&hidden_sizes=[192,384,768,1536]",
    r"^efficientnet_b0$": f"transformers:efficientnet?{CLASSES}&width_coefficient=1.0&depth_coefficient=1.0"
    "&image_size=224&hidden_dim=1280",
    r"^regnety_032$": f"transformers:regnet?{CLASSES}&hidden_sizes=[72,216,576,1512]&depths=[2,5,13,1]&groups_width=24",
    r"^beit-base$": f"transformers:beit?{CLASSES}",
    r"^gpt2-large$": "transformers:gpt2?n_embd=1280&n_layer=36&n_head=20",
    r"^gpt2-124m$": "transformers:gpt2?tie_word_embeddings=false",
    r"^pythia-410m$": "transformers:gpt_neox?hidden_size=1024&num_hidden_layers=24&num_attention_heads=16"
    "&intermediate_size=4096&vocab_size=50304",
    r"^llama-3.2-1b$": LLAMA.format(64) + "hidden_size=2048&num_hidden_layers=16&num_attention_heads=32"
    "&intermediate_size=8192",
    r"^llama-2-7b decode$": "transformers:llama?max_position_embeddings=4096",
    r"^llama-3.1-8b decode$": "transformers:llama?num_key_value_heads=8&intermediate_size=14336&vocab_size=128256",
    r"^phi-1.5 decode$": "transformers:phi",
    r"^llama-3.2-3b ": LLAMA.format(128) + "hidden_size=3072&num_hidden_layers=28&num_attention_heads=24"
    "&intermediate_size=8192",
}
"""Name of a published model -> what the planner builds in its place: the same layers and sizes. Models of timm are
built from transformers' configurations, whose attention has three products where timm's has one."""

PROMPT = 5
"""Tokens of the prompt of published decoding, a few words: "just 5 tokens" (gpt-fast)."""
GENERATED = {"litgpt": 50, "gpt-fast": 200}
"""Source -> tokens that its script generates, by default (generate/base.py of litgpt, generate.py of gpt-fast)."""

HEADS = {
    "ForQuestionAnswering": "question-answering",
    "ForSequenceClassification": "sequence-classification",
    "LM head": "masked-lm",
    "encoder only": "base",
}
"""What a published BERT says of its head -> ours."""

OPTIMIZERS = {
    "none": "",
    "SGD momentum": "momentum",
    "SGD (no": "sgd",
    "BertAdam": "adamw",
    "FusedAdam": "adamw",
    "AdamW": "adamw",
    "RMSprop": "adamw",
}
"""Beginning of a published optimizer -> the planner's with as much state; empty: forward and backward alone."""


class PublishedStep(msgspec.Struct, frozen=True):
    """A row of `resources/published_steps.csv`, as text."""

    model: str
    built_from: str
    task: str
    dtype: str
    autocast: str
    tf32: str
    optimizer: str
    attention: str
    checkpointing: str
    channels_last: str
    compiled: str
    copies_input: str
    batch: str
    input: str
    card: str
    profile: str
    samples_per_s: str
    peak_memory_bytes: str
    memory_kind: str
    bound_by: str
    source: str
    caveat: str

    @property
    def apart(self) -> str:
        """Why it is not among the rows that the model is fitted to and judged by: what bound it, or that it was
        compiled, or is another kind of step."""
        if self.bound_by:
            return self.bound_by
        if self.compiled:
            return "compiled"
        return "decoding" if self.decodes else ""

    @property
    def decodes(self) -> bool:
        """Whether it generates text: a sample is a token then."""
        return "decode" in self.input

    @property
    def step(self) -> str:
        """`training`, `inference` or `decoding`."""
        return "decoding" if self.decodes else self.task

    @property
    def unit(self) -> str:
        """Of `samples_per_s`."""
        return "tokens/s" if self.decodes else "samples/s"

    @property
    def precision(self) -> str:
        """`float16 autocast`, `TF32`, `float32`, …"""
        if self.autocast:
            return f"{self.autocast} autocast"
        return "TF32" if self.tf32 == "all" else self.dtype

    @property
    def computed_in(self) -> tuple[str, str]:
        """dtype of the weights in forward, and of products under autocast.

        NVIDIA's run_squad.py trains with apex O2: the model is float16, float32 copies are the optimizer's.
        """
        squad = "DeepLearningExamples" in self.source and "SQuAD" in self.caveat
        if self.autocast and (squad or "apex AMP O2" in self.caveat):
            return "float16", ""
        return self.dtype, self.autocast


def published() -> list[PublishedStep]:
    """Every row, in the file's order."""
    return msgspec.convert(resource_rows("published_steps.csv"), list[PublishedStep])


REASONS: tuple[tuple[str, Callable[[PublishedStep], object]], ...] = (
    ("only memory was published", lambda row: not row.samples_per_s),
    ("the card has no profile", lambda row: not row.profile),
    ("several cards", lambda row: row.bound_by == "several cards"),
    ("a detector, which cannot be installed here", lambda row: re.search("rcnn|retinanet", row.model)),
    ("LoRA adapters are not planned for", lambda row: "LoRA" in row.built_from),
    ("the length or size of the input is not published", lambda row: re.search("not stated|binned", row.input)),
    ("sizes of the model are not published", lambda row: "not on the page" in row.built_from),
    ("accumulation of gradients is not planned for", lambda row: "accumulation" in row.caveat),
    (
        "the way the optimizer runs is not planned for",
        lambda row: (
            re.search("8bit|4bit|8-bit|Adafactor|LAMB", row.optimizer)
            or re.search("offloading|fused into backward", row.caveat)
        ),
    ),
    ("needs timm, which cannot be installed here", lambda row: source_of(row) is None),
)
"""Why a row is not computed; the first that holds."""


def source_of(row: PublishedStep) -> str | None:
    """What the planner builds for it; None where it has nothing."""
    if row.model.startswith("bert-"):
        head = next(head for words, head in HEADS.items() if words in row.built_from)
        source = f"transformers:bert?head={head}&max_position_embeddings=1024"
        if "large" in row.model:
            source += f"&{LARGE_BERT}"
    else:
        known = [source for pattern, source in SOURCES.items() if re.search(pattern, row.model)]
        if not known:
            return None
        source = known[0]
        if "efficientnet" in source and "pytorch-image-models" in row.source:
            source += "&drop_connect_rate=0.0"  # timm's default
    if row.attention:
        source += f"{'&' if '?' in source else '?'}attn_implementation={row.attention}"
    return source


def inputs_of(row: PublishedStep) -> str:
    """The planner's `--input`."""
    length = re.match(r"seq (\d+)", row.input)
    if length:
        return f"1x{length[1]}:int64"
    size = re.match(r"3x\d+x\d+", row.input)
    assert size, row.input
    return f"1x{size[0]}"


def reason_of(row: PublishedStep) -> str:
    """Why it is not computed; empty where it is."""
    return next((words for words, holds in REASONS if holds(row)), "")


def fitted_to(row: PublishedStep) -> bool:
    """Whether the cost model is fitted to this row."""
    return not row.apart and not reason_of(row)


def spec_of(row: PublishedStep) -> FitSpec | None:
    """The plan of its step; None where the planner has no such step.

    That is a model or card that it lacks, or a step that trains without an optimizer.
    """
    source = None if reason_of(row) else source_of(row)
    train, optimizer = row.task == "training", ""
    for name, ours in OPTIMIZERS.items():
        if row.optimizer.startswith(name):
            optimizer = ours
            break
    if source in (None, VGG16) or (train and not optimizer):
        return None
    dtype, autocast = row.computed_in
    spec = FitSpec(
        source=source,
        gpus=(row.profile,),
        batch=int(row.batch),
        dtype=None if autocast else dtype,
        autocast=autocast or None,
        options=False,
    )
    if row.decodes:
        generate = next(tokens for name, tokens in GENERATED.items() if name in row.source)
        return replace(spec, serving=ServingSpec(generate=generate, prompt=PROMPT))
    return replace(
        spec,
        train=train,
        optimizer=optimizer or "adamw",
        checkpointing=bool(row.checkpointing),
        tf32=row.tf32 == "all",
        channels_last=bool(row.channels_last),
        input_copy=bool(row.copies_input),
        inputs=inputs_of(row),
    )


def rates_of(fit: Fit) -> tuple[float | None, float | None, float | None]:
    """What a published rate is compared with, and its range: samples per second, or tokens of a model that generates;
    None where it does not fit."""
    serving = fit.serving
    if serving is None:
        return fit.samples_per_s, fit.samples_per_s_low, fit.samples_per_s_high
    return serving.decode_tokens_per_s, serving.decode_tokens_per_s_low, serving.decode_tokens_per_s_high
