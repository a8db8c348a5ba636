"""Quantised weights: the tensors of a layer by hand, which layers stay, and what is refused."""

import math

import pytest
import torch
from fakes.serving import LLAMA, MIXTRAL, served

from devexplorer.core.base import BadInput
from devexplorer.core.planner.serving.kernels import PackedWeights, quantise
from devexplorer.core.planner.serving.storage import ACTIVATIONS, PRESETS, preset, scheme

pytest.importorskip("transformers.cache_utils")
ITEM = {"int32": 4, "int64": 8, "int8": 1, "uint8": 1, "float32": 4, "float8_e4m3fn": 1, ACTIVATIONS: 2}


def nbytes(config, outputs, inputs):
    """Bytes of a layer's tensors."""
    parts = scheme(config, "the test").parts(outputs, inputs)
    return sum(math.prod(part.shape) * ITEM[part.dtype] for part in parts)


def compressed(form="float-quantized", **weights):
    """A configuration of compressed-tensors with one group of layers."""
    groups = {"group_0": {"weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


BLOCKS = {"num_bits": 8, "type": "float", "strategy": "block"}


@pytest.mark.parametrize(
    ("config", "outputs", "inputs", "expected"),
    [
        # gate_proj of Llama 2 7B: weights, 32 groups of zeros in 4 bits and scales in 16, an int32 for each input
        (PRESETS["gptq"], 11008, 4096, 11008 * 4096 // 2 + 32 * 11008 // 2 + 32 * 11008 * 2 + 4096 * 4),
        (PRESETS["awq"], 11008, 4096, 11008 * 4096 // 2 + 32 * 11008 // 2 + 32 * 11008 * 2),
        # one scale for each column
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 64, 256, 64 * 256 + 64 + 64 * 2 + 256 * 4),
        # half a byte each, a float32 for each 64, a code of 16 float32
        (PRESETS["bnb-nf4"], 4096, 4096, 4096 * 4096 // 2 + 4096 * 64 * 4 + 64),
        # a byte for each 64, a float32 for each 256 of those, a code of 256 float32 and an offset
        (
            {**PRESETS["bnb-nf4"], "bnb_4bit_use_double_quant": True}, 4096, 4096,
            4096 * 4096 // 2 + 4096 * 64 + 4096 * 64 // 256 * 4 + 64 + 1024 + 4,
        ),
        (PRESETS["bnb-int8"], 300, 200, 300 * 200 + 300 * 4),
        ({"load_in_8bit": True}, 300, 200, 300 * 200 + 300 * 4),
        (PRESETS["fp8"], 7168, 16384, 7168 * 16384 + 56 * 128 * 4),  # a float32 for each 128 x 128
        ({"quant_method": "fp8"}, 100, 100, 100 * 100 + 4),
        # eight weights in an int32, a scale for each group, the shape
        (PRESETS["int4"], 256, 512, 256 * 512 // 2 + 256 * 4 * 2 + 16),
        (PRESETS["int8"], 256, 512, 256 * 512 + 256 * 2),
        (
            compressed("pack-quantized", num_bits=4, strategy="group", group_size=128, symmetric=False), 256, 512,
            256 * 512 // 2 + 256 * 4 * 2 + 16 + 256 * 4 // 2,
        ),
        (compressed("int-quantized", num_bits=8, strategy="tensor", symmetric=False), 256, 512, 256 * 512 + 2 + 1),
        (compressed(**BLOCKS, block_structure=[128, 64]), 256, 512, 256 * 512 + 2 * 8 * 2),
        (compressed(**BLOCKS, block_structure="128x64"), 256, 512, 256 * 512 + 2 * 8 * 2),
    ],
)  # fmt: skip
def test_the_tensors_of_a_layer(config, outputs, inputs, expected):
    assert nbytes(config, outputs, inputs) == expected


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (PRESETS["gptq"], 7),
        ({**PRESETS["awq"], "modules_to_not_convert": ["self_attn"]}, 3),
        ({**PRESETS["int8"], "ignore": ["re:.*mlp.*", "lm_head"]}, 4),
        ({**PRESETS["gptq"], "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]}, 2),
    ],
)
def test_layers_that_are_quantised(config, layers):
    """Of each of five; the embedding, the norms and lm_head stay."""
    model = served(LLAMA).model
    assert quantise(model, scheme(config, "the test"), torch.bfloat16) == 5 * layers
    packed = [path for path, module in model.named_modules() if isinstance(module, PackedWeights)]
    assert len(packed) == 5 * layers
    assert not any("lm_head" in path or "norm" in path or "embed" in path for path in packed)


def test_a_layer_tied_to_the_embedding_stays():
    model = served(f"{LLAMA}&tie_word_embeddings=true").model
    config = {**PRESETS["fp8"], "modules_to_not_convert": []}
    assert quantise(model, scheme(config, "the test"), torch.bfloat16) == 5 * 7


def test_experts_are_layers_of_their_own():
    """8 experts with gate, up and down; and the sum of their tensors is that of 24 linear layers."""
    model = served(MIXTRAL).model
    assert quantise(model, preset("awq"), torch.bfloat16) == 4 * (4 + 3 * 8)
    experts = model.get_submodule("model.layers.0.mlp.experts")
    held = sum(parameter.nbytes for parameter in experts.parameters())
    assert held == 8 * (2 * nbytes(PRESETS["awq"], 96, 64) + nbytes(PRESETS["awq"], 64, 96))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "aqlm"}, "'aqlm' of the test is not planned for; there are gptq, awq"),
        ({"quant_method": []}, r"'\[\]' of the test is not planned for"),
        ({}, "'None' of the test is not planned for"),
        ({"quant_method": "gptq", "bits": 5}, "bits is 5; 4, 8, 3, 2 are planned for"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "x"}, "group_size is 'x'"),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": [3]}, "no list of names"),
        ({"quant_method": "awq", "modules_to_not_convert": ["re:("]}, "has an expression that is none"),
        ({"quant_method": "awq", "modules_to_not_convert": "lm_head"}, "no list of names"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, r"weight_block_size is \[0, 128\]"),
        ({"quant_method": "fp8", "weight_block_size": 7}, "cannot be read"),
        (compressed(**BLOCKS, block_structure=[0, 0]), "block_structure is"),
        (compressed(**BLOCKS), "blocks without a block_structure"),
        (compressed(num_bits=8, strategy="channels"), "the strategy 'channels'"),
        (compressed(num_bits=4), "in the format"),
        ({"quant_method": "compressed-tensors"}, "cannot be read: KeyError"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, "2 groups of layers"),
    ],
)
def test_what_is_refused_in_one_line(config, words):
    with pytest.raises(BadInput, match=words) as refused:
        scheme(config, "the test")
    assert "\n" not in str(refused.value)
