"""How quantised weights are stored, by the `quantization_config` of a configuration, and how large the key-value cache
of a model is, layer by layer. Pure; no torch; any thread.

| method | tensors for a layer of `out` x `in` | source |
|---|---|---|
| gptq | qweight int32 (in·bits/32, out), qzeros int32 (groups, out·bits/32), scales (groups, out), g_idx int32 (in) | AutoGPTQ, auto_gptq/nn_modules/qlinear |
| awq | qweight int32 (in, out·bits/32), qzeros int32 (groups, out·bits/32), scales (groups, out) | AutoAWQ, awq/modules/linear/gemm.py |
| bitsandbytes, 8 bits | int8 (out, in), float32 (out) | bitsandbytes, `Int8Params` (CB, SCB) |
| bitsandbytes, 4 bits | uint8 (out·in/2), absmax float32 per 64, code float32 (16); nested: absmax uint8, float32 per 256 of them, code float32 (256), one offset | bitsandbytes/functional.py, `quantize_4bit` and `QuantState` |
| fp8 | float8 (out, in), float32 per block of 128x128 or one | transformers, `FP8Linear` in integrations/finegrained_fp8.py |
| compressed-tensors | packed int32 (out, in·bits/32) with an int64 (2), or int8 or float8 (out, in); scales per tensor, channel, group or block; zero points where asymmetric | compressed-tensors, `pack_quantized.py` and `naive_quantized.py` |

A group's scale is of the dtype of the activations; GPTQ and AWQ write float16, which has as many bytes.

A layer of attention keeps the same number of bytes for each token; one with a sliding window keeps at most the window;
one with a state (convolution, recurrence) keeps a fixed amount for each sequence.

Whole: room for the final length from the start, windows as large as the window, as transformers' `StaticCache`
(`StaticSlidingWindowLayer`: `min(sliding_window, max_cache_len)` tokens). Paged: blocks of a number of tokens, the last
one of each sequence partly empty. A window can begin within a block, so it may touch one block more than it fills
(`SlidingWindowSpec.max_memory_usage_bytes` of vLLM's vllm/v1/kv_cache_interface.py).
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from devexplorer.core.base import BadInput, suggestion
from devexplorer.core.planner.records import CacheLayers

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    "int4": {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                                "symmetric": True}}}},
    "int8": {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                    "input_activations": {"num_bits": 8, "type": "int", "dynamic": True}}}},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "bnb-int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "bnb-nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}  # fmt: skip
"""What `--weights` can be, as the configuration that it stands for."""
NESTED_BLOCK = 256
BNB_BLOCK = 64
ACTIVATIONS = "activations"
"""In place of a dtype: that of the activations."""
WORD_BITS = 32


class LayerPart(NamedTuple):
    """One tensor of a layer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As torch writes it, or `ACTIVATIONS`."""


@dataclass(frozen=True)
class Scheme:
    """One way to store weights."""

    method: str
    bits: int
    group: int = 0
    """Weights that share a scale along a row; 0: a whole row; -1: the whole tensor."""
    block: tuple[int, int] | None = None
    """Rows and columns that share a scale."""
    zeros: bool = False
    nested: bool = False
    packed: bool = False
    """compressed-tensors: several weights in an int32."""
    floating: bool = False
    activations: str = ""
    """dtype in which products are computed where the card has it: `int8`, `float8_e4m3fn`; empty: as without."""
    skip: tuple[str, ...] = ()
    """Layers that stay as they are: paths, parts of paths, or `re:` and an expression."""
    only: tuple[str, ...] = ()
    """Layers that are quantised; empty: all others."""

    @property
    def title(self) -> str:
        """`gptq, 4 bits in groups of 128`."""
        text = f"{self.method}, {self.bits} bits"
        if self.floating:
            text += " float"
        if self.group > 0:
            text += f" in groups of {self.group}"
        if self.block is not None:
            text += f" in blocks of {self.block[0]}x{self.block[1]}"
        return text

    def covers(self, path: str) -> bool:
        """Whether the linear layer of this path is quantised."""
        if any(_matches(path, item) for item in self.skip):
            return False
        return not self.only or any(_matches(path, item) for item in self.only)

    def parts(self, outputs: int, inputs: int) -> list[LayerPart]:
        """The tensors of a layer, its bias left out."""
        groups = -(-inputs // self.group) if self.group > 0 else 1
        if self.method == "bitsandbytes":
            return self._bitsandbytes(outputs, inputs)
        if self.method not in ("gptq", "awq"):
            return self._eight_bit_or_packed(outputs, inputs, groups)
        words = -(-outputs * self.bits // WORD_BITS)
        weights = (inputs, words) if self.method == "awq" else (inputs * self.bits // WORD_BITS, outputs)
        parts = [
            LayerPart("qweight", weights, "int32"),
            LayerPart("qzeros", (groups, words), "int32"),
            LayerPart("scales", (groups, outputs), ACTIVATIONS),
        ]
        if self.method == "gptq":
            parts.append(LayerPart("g_idx", (inputs,), "int32"))
        return parts

    def _bitsandbytes(self, outputs: int, inputs: int) -> list[LayerPart]:
        if self.bits == 8:
            return [LayerPart("weight", (outputs, inputs), "int8"), LayerPart("SCB", (outputs,), "float32")]
        elements = outputs * inputs
        blocks = -(-elements // BNB_BLOCK)
        parts = [
            LayerPart("weight", (-(-elements // 2), 1), "uint8"),
            LayerPart("code", (16,), "float32"),
            LayerPart("absmax", (blocks,), "uint8" if self.nested else "float32"),
        ]
        if self.nested:
            parts += [
                LayerPart("nested_absmax", (-(-blocks // NESTED_BLOCK),), "float32"),
                LayerPart("nested_code", (256,), "float32"),
                LayerPart("offset", (), "float32"),
            ]
        return parts

    def _eight_bit_or_packed(self, outputs: int, inputs: int, groups: int) -> list[LayerPart]:
        """fp8 and compressed-tensors."""
        scale = "float32" if self.method == "fp8" else ACTIVATIONS
        shape: tuple[int, ...] = (outputs, groups)
        if self.block is not None:
            shape = (-(-outputs // self.block[0]), -(-inputs // self.block[1]))
        elif self.group < 0:
            shape = () if self.method == "fp8" else (1,)
        parts = [LayerPart("weight_scale", shape, scale)]
        zeros = LayerPart("weight_zero_point", shape, "int8")
        if self.packed:
            per_word = WORD_BITS // self.bits
            parts.append(LayerPart("weight_packed", (outputs, -(-inputs // per_word)), "int32"))
            parts.append(LayerPart("weight_shape", (2,), "int64"))
            zeros = LayerPart("weight_zero_point", (-(-outputs // per_word), *shape[1:]), "int32")
        else:
            parts.append(LayerPart("weight", (outputs, inputs), "float8_e4m3fn" if self.floating else "int8"))
        if self.zeros:
            parts.append(zeros)
        return parts


def _matches(path: str, item: str) -> bool:
    """As the methods compare: a whole path, the end or the beginning of one, or an expression."""
    if item.startswith("re:"):
        return re.match(item[3:], path) is not None
    return path == item or f".{item}." in f".{path}."


def scheme(config: Mapping[str, Any], where: str) -> Scheme:
    """What a `quantization_config` says. Raises `BadInput` in one line for what is not planned for; `where` says whose
    it is."""
    method = str(config.get("quant_method"))
    if method == "None" and (config.get("load_in_4bit") or config.get("load_in_8bit")):
        method = "bitsandbytes"
    if method not in METHODS:
        raise BadInput(f"the quantisation '{method}' of {where} is not planned for; there are {', '.join(METHODS)}")
    try:
        return METHODS[method](config)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise BadInput(f"the quantization_config of {where} cannot be read: {type(error).__name__}: {error}") from error


def preset(name: str) -> Scheme:
    """What `--weights` names. Raises `BadInput` with what there is."""
    if name not in PRESETS:
        raise BadInput(f"there are no weights '{name}'; {suggestion(name, list(PRESETS))}")
    return scheme(PRESETS[name], "--weights")


def _names(config: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Names of layers, or expressions for them, as a configuration has them under this key."""
    given = config.get(key) or ()
    if isinstance(given, str):
        raise TypeError(f"{key} is no list of names")
    for item in given:
        if not isinstance(item, str):
            raise TypeError(f"{key} is no list of names")
        if item.startswith("re:"):
            try:
                re.compile(item[3:])
            except re.error as error:
                raise ValueError(f"{key} has an expression that is none: {error}") from None
    return tuple(given)


def _block(config: Mapping[str, Any], key: str) -> tuple[int, int] | None:
    """Rows and columns that share a scale: two numbers, or `128x128`."""
    given = config.get(key)
    if given is None:
        return None
    rows, columns = map(int, given.split("x") if isinstance(given, str) else given)
    if min(rows, columns) < 1:
        raise ValueError(f"{key} is {given!r}")
    return rows, columns


def _bits(config: Mapping[str, Any], key: str, known: tuple[int, ...]) -> int:
    bits = config.get(key, known[0])
    if bits not in known:
        raise ValueError(f"{key} is {bits!r}; {', '.join(map(str, known))} are planned for")
    return int(bits)


def _group(config: Mapping[str, Any], key: str, otherwise: int) -> int:
    group = config.get(key, otherwise)
    if type(group) is not int or not (group == -1 or group > 0):
        raise ValueError(f"{key} is {group!r}")
    return 0 if group == -1 else group


def _gptq(config: Mapping[str, Any]) -> Scheme:
    key = "modules_in_block_to_quantize"
    only = _names({key: [name for some in config.get(key) or () for name in some]}, key)
    skip = () if config.get("lm_head") else ("lm_head",)
    return Scheme("gptq", _bits(config, "bits", (4, 8, 3, 2)), _group(config, "group_size", 128), skip=skip, only=only)


def _awq(config: Mapping[str, Any]) -> Scheme:
    bits = _bits(config, "bits" if "bits" in config else "w_bit", (4,))
    group = _group(config, "group_size" if "group_size" in config else "q_group_size", 128)
    return Scheme("awq", bits, group, skip=("lm_head", *_names(config, "modules_to_not_convert")))


def _bnb(config: Mapping[str, Any]) -> Scheme:
    skip = _names(config, "llm_int8_skip_modules") or ("lm_head",)
    if config.get("load_in_8bit"):
        return Scheme("bitsandbytes", 8, activations="int8", skip=skip)
    return Scheme("bitsandbytes", 4, nested=bool(config.get("bnb_4bit_use_double_quant")), skip=skip)


def _fp8(config: Mapping[str, Any]) -> Scheme:
    skip = ("lm_head", *_names(config, "modules_to_not_convert"))
    blocks = _block(config, "weight_block_size")
    return Scheme("fp8", 8, -1, blocks, floating=True, activations="float8_e4m3fn", skip=skip)


def _compressed(config: Mapping[str, Any]) -> Scheme:
    groups = list(config["config_groups"].values())
    if len(groups) != 1:
        raise ValueError(f"{len(groups)} groups of layers with different forms; one is planned for")
    (group,) = groups
    weights, given = group["weights"], group.get("input_activations")
    floating = weights.get("type", "int") == "float"
    bits = _bits(weights, "num_bits", (8,) if floating else (4, 8))
    form = group.get("format") or config.get("format") or ""
    packed = form == "pack-quantized"
    if bits != 8 and not packed:
        raise ValueError(f"{bits} bits in the format {form!r}")
    strategy = weights.get("strategy") or ("group" if weights.get("group_size") else "channel")
    if strategy not in ("tensor", "channel", "group", "block"):
        raise ValueError(f"the strategy {strategy!r}")
    block = _block(weights, "block_structure") if strategy == "block" else None
    if strategy == "block" and block is None:
        raise ValueError("blocks without a block_structure")
    own = 0
    if strategy == "group":
        own = _group(weights, "group_size", 128)
    elif strategy == "tensor":
        own = -1
    scheme = Scheme(
        "compressed-tensors",
        bits,
        own,
        block,
        zeros=not weights.get("symmetric", True),
        packed=packed,
        floating=floating,
        skip=_names(config, "ignore"),
    )
    if given is None or given.get("num_bits") != 8:
        return scheme
    return replace(scheme, activations="float8_e4m3fn" if floating else "int8")


METHODS = {"gptq": _gptq, "awq": _awq, "bitsandbytes": _bnb, "fp8": _fp8, "compressed-tensors": _compressed}


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of one sequence."""

    parts: tuple[int, ...] = ()
    """Elements for each token, of each tensor: heads times width of keys, of values, and of what else grows."""
    window: int | None = None
    """Tokens that are kept at most; None: all."""
    state_bytes: tuple[int, ...] = ()
    """Bytes of each tensor that does not grow."""

    @property
    def kind(self) -> str:
        """`full`, `sliding`, `state`; a layer with both attention and a state is what its attention is."""
        if not self.parts:
            return "state"
        return "full" if self.window is None else "sliding"

    def tokens(self, length: int, block: int | None = None) -> int:
        """Tokens that a sequence of this length has room for."""
        if not self.parts or length <= 0:
            return 0
        if block is None:
            return length if self.window is None else min(length, self.window)
        blocks = -(-length // block)
        if self.window is not None:
            blocks = min(blocks, -(-self.window // block) + 1)
        return blocks * block

    def sizes(self, batch: int, length: int, item_bytes: int, block: int | None = None) -> list[int]:
        """Bytes of each tensor for so many sequences of this length."""
        tokens = self.tokens(length, block)
        return [
            *(batch * tokens * elements * item_bytes for elements in self.parts),
            *(batch * nbytes for nbytes in self.state_bytes),
        ]


@dataclass(frozen=True)
class CacheLayout:
    """What all layers of a model keep."""

    layers: tuple[LayerCache, ...]
    item_bytes: int
    """Of one element of keys and values."""
    block: int | None = None
    """Tokens of a block; None: not paged."""

    def sizes(self, batch: int, length: int) -> list[int]:
        """Bytes of each tensor, layer by layer."""
        return [size for layer in self.layers for size in layer.sizes(batch, length, self.item_bytes, self.block)]

    def bytes(self, batch: int, length: int) -> int:
        """All of it."""
        return sum(self.sizes(batch, length))

    @property
    def bytes_per_token(self) -> int:
        """What one more token of a long sequence takes."""
        return sum(sum(layer.parts) for layer in self.layers if layer.window is None) * self.item_bytes

    def groups(self, batch: int, length: int) -> tuple[CacheLayers, ...]:
        """Layers of one kind together, in the order in which each first occurs."""
        kinds: dict[tuple[str, int | None], list[LayerCache]] = {}
        for layer in self.layers:
            kinds.setdefault((layer.kind, layer.window), []).append(layer)
        groups = []
        for (kind, _), same in kinds.items():
            nbytes = CacheLayout(tuple(same), self.item_bytes, self.block).bytes(batch, length)
            tokens = same[0].tokens(length, self.block)
            groups.append(CacheLayers(kind=kind, layers=len(same), tokens=tokens, bytes=nbytes))
        return tuple(groups)
