"""The Fit page's mode for serving: what is asked about generating text. Main thread only."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtWidgets import QWidget

from devexplorer.core.base import Findings
from devexplorer.core.records import ServingSpec
from devexplorer.gui.forms.page import FormPage
from devexplorer.gui.widgets import check_box, line_edit
from devexplorer.gui.widgets.form_fields import Choice, MenuEdit

KV_DTYPES = (
    (None, "KV as activations", "Keys and values in the dtype of the activations"),
    ("float8_e4m3fn", "KV float8", "Keys and values in float8_e4m3fn, where the card has it"),
    ("int8", "KV int8", "Keys and values in int8, where the card has it"),
)
WEIGHTS = (
    ("", "own weights", "As the configuration says: in the model's dtype, or quantised"),
    ("int4", "int4 weights", "compressed-tensors: 4 bits in groups of 128"),
    ("int8", "int8 weights", "compressed-tensors: 8 bits, activations too"),
    ("fp8", "fp8 weights", "8 bits in blocks of 128 x 128, activations too"),
    ("gptq", "GPTQ", "4 bits in groups of 128, with zero points and the order of groups"),
    ("awq", "AWQ", "4 bits in groups of 128, with zero points"),
    ("bnb-nf4", "NF4", "bitsandbytes in 4 bits"),
    ("bnb-int8", "LLM.int8()", "bitsandbytes in 8 bits"),
)
SERVE = (
    "Generate text with a language model of transformers: KV cache, time to the first token, tokens/s, longest context"
)
PROMPT, GENERATE = "512", "128"
WHOLE = "whole"
BLOCKS = "Tokens in a block of a paged KV cache (vLLM: 16). Empty: each sequence has room for all its tokens at once."
CHUNK = "The most tokens of a prompt that go through the model at a time. Empty: the whole prompt."
BLOCK_SIZES, CHUNK_SIZES = (16, 32, 64, 128), (512, 2048, 8192)
"""What the menus offer, as engines have them; others can be typed."""


class ServingForm:
    """Adds its fields to the page; on show only while it is on, and those of `others` only while it is not."""

    def __init__(self, page: FormPage) -> None:
        self.on = check_box("Serve", tip=SERVE)
        self.prompt = line_edit(PROMPT, PROMPT, "Tokens of each prompt", 52)
        self.generate = line_edit(GENERATE, GENERATE, "Tokens that each sequence gets", 52)
        self.kv_dtype = Choice("dtype of the KV cache", KV_DTYPES)
        self.weights = Choice("Quantisation of the weights", WEIGHTS)
        self.block = _tokens("Tokens in a block of the KV cache", BLOCK_SIZES, BLOCKS)
        self.chunk = _tokens("Tokens in a piece of the prompt", CHUNK_SIZES, CHUNK)
        self.cards = line_edit("1", "1", "Cards over which every layer is split", 36, tip="Tensor parallelism")
        page.add_field("", self.on)
        self._own = [
            page.add_field(words, field)
            for words, field in (
                ("prompt", self.prompt),
                ("generate", self.generate),
                ("", self.kv_dtype),
                ("KV blocks", self.block),
                ("prefill", self.chunk),
                ("", self.weights),
                ("cards each", self.cards),
            )
        ]

    @property
    def is_on(self) -> bool:
        """Whether text is to be generated."""
        return self.on.isChecked()

    def show_fields(self, others: Iterable[QWidget]) -> None:
        """Its fields, or those that mean nothing for it."""
        for field in self._own:
            field.setVisible(self.is_on)
        for field in others:
            field.setVisible(not self.is_on)

    def spec(self, findings: Findings, autocast: str | None) -> ServingSpec | None:
        """What the fields say; None while it is off."""
        if not self.is_on:
            return None
        counts = [
            findings.count(field.text(), name)
            for field, name in ((self.generate, "generate"), (self.prompt, "prompt"), (self.cards, "cards each"))
        ]
        block, chunk = (
            findings.count(field.text(), name) if field.text().strip() else None
            for field, name in ((self.block, "KV blocks"), (self.chunk, "prefill"))
        )
        if autocast is not None:
            findings.add("text is generated in one dtype; choose one instead of autocast")
        generate, prompt, cards = (count or 1 for count in counts)
        return ServingSpec(
            generate=generate,
            prompt=prompt,
            kv_dtype=self.kv_dtype.value,
            kv_block=block,
            prefill_chunk=chunk,
            tensor_parallel=cards,
            weights=self.weights.value,
        )

    def fill(self, serving: ServingSpec | None) -> None:
        """Set the fields to this."""
        self.on.setChecked(serving is not None)
        if serving is not None:
            self.generate.setText(str(serving.generate))
            self.prompt.setText(str(serving.prompt))
            self.cards.setText(str(serving.tensor_parallel))
            self.kv_dtype.choose(serving.kv_dtype)
            self.block.fill("" if serving.kv_block is None else str(serving.kv_block))
            self.chunk.fill("" if serving.prefill_chunk is None else str(serving.prefill_chunk))
            self.weights.choose(serving.weights)


def _tokens(name: str, offered: Iterable[int], tip: str) -> MenuEdit:
    result = MenuEdit("", name, [(WHOLE, ""), *((str(count), str(count)) for count in offered)], 96, WHOLE)
    result.setToolTip(tip)
    return result
