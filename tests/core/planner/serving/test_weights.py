"""Quantised weights: the tensors of a layer by hand, which layers stay, and what is refused."""

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
    total = 0
    for part in scheme(config, "the test").parts(outputs, inputs):
        elements = 1
        for length in part.shape:
            elements *= length
        total += elements * ITEM[part.dtype]
    return total


def test_gptq_of_llama_2_7b():
    """gate_proj, 11008 x 4096, 4 bits in groups of 128: weights 22,544,384 B, 32 groups of zeros in 4 bits and scales
    in 16, and an int32 for each of 4,096 inputs."""
    assert nbytes(PRESETS["gptq"], 11008, 4096) == (
        11008 * 4096 // 2 + 32 * 11008 // 2 + 32 * 11008 * 2 + 4096 * 4
    ) == 23_441_408  # fmt: skip


def test_awq_has_no_order_of_groups():
    assert nbytes(PRESETS["gptq"], 11008, 4096) - nbytes(PRESETS["awq"], 11008, 4096) == 4096 * 4


def test_gptq_with_one_group():
    """group_size -1: one scale for each column."""
    config = {"quant_method": "gptq", "bits": 8, "group_size": -1}
    assert nbytes(config, 64, 256) == 64 * 256 + 64 + 64 * 2 + 256 * 4


def test_bitsandbytes_in_four_bits():
    """4096 x 4096: half a byte each, a float32 for each 64, a code of 16 float32. Nested: a byte for each 64, a float32
    for each 256 of those, a code of 256 float32 and an offset."""
    blocks = 4096 * 4096 // 64
    assert nbytes(PRESETS["bnb-nf4"], 4096, 4096) == 4096 * 4096 // 2 + blocks * 4 + 64
    nested = {**PRESETS["bnb-nf4"], "bnb_4bit_use_double_quant": True}
    assert nbytes(nested, 4096, 4096) == 4096 * 4096 // 2 + blocks + blocks // 256 * 4 + 64 + 1024 + 4


def test_bitsandbytes_in_eight_bits():
    assert nbytes(PRESETS["bnb-int8"], 300, 200) == 300 * 200 + 300 * 4


def test_fp8_in_blocks():
    """DeepSeek-V3's o_proj, 7168 x 16384: a float32 for each 128 x 128."""
    assert nbytes(PRESETS["fp8"], 7168, 16384) == 7168 * 16384 + 56 * 128 * 4
    assert nbytes({"quant_method": "fp8"}, 100, 100) == 100 * 100 + 4


def test_compressed_tensors():
    """int4: eight weights in an int32, a scale for each group, the shape; int8: a scale for each row."""
    assert nbytes(PRESETS["int4"], 256, 512) == 256 * 512 // 2 + 256 * 4 * 2 + 16
    assert nbytes(PRESETS["int8"], 256, 512) == 256 * 512 + 256 * 2
    asymmetric = {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 128,
                                                  "symmetric": False}}},
    }  # fmt: skip
    assert nbytes(asymmetric, 256, 512) == 256 * 512 // 2 + 256 * 4 * 2 + 16 + 256 * 4 // 2


@pytest.mark.parametrize("structure", [[128, 64], "128x64"])
def test_compressed_tensors_in_blocks(structure):
    """A scale for each block of 128 rows and 64 columns; older configurations write it as text."""
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": structure}
    config = {
        "quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {"weights": weights}},
    }  # fmt: skip
    assert nbytes(config, 256, 512) == 256 * 512 + 2 * 8 * 2


def test_what_stays_as_it_is():
    """The embedding, the norms and lm_head."""
    model = served(LLAMA).model
    assert quantise(model, preset("gptq"), torch.bfloat16) == 5 * 7
    packed = [path for path, module in model.named_modules() if isinstance(module, PackedWeights)]
    assert len(packed) == 35
    assert not any("lm_head" in path or "norm" in path or "embed" in path for path in packed)


def test_layers_that_a_configuration_leaves_out():
    model = served(LLAMA).model
    config = {**PRESETS["awq"], "modules_to_not_convert": ["self_attn"]}
    assert quantise(model, scheme(config, "the test"), torch.bfloat16) == 5 * 3
    ignore = {**PRESETS["int8"], "ignore": ["re:.*mlp.*", "lm_head"]}
    assert quantise(served(LLAMA).model, scheme(ignore, "the test"), torch.bfloat16) == 5 * 4
    only = {**PRESETS["gptq"], "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]}
    assert quantise(served(LLAMA).model, scheme(only, "the test"), torch.bfloat16) == 5 * 2


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
        ({}, "'None' of the test is not planned for"),
        ({"quant_method": "gptq", "bits": 5}, "bits is 5; 4, 8, 3, 2 are planned for"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "x"}, "group_size is 'x'"),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": [3]}, "no list of names"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, r"weight_block_size is \[0, 128\]"),
        ({"quant_method": "fp8", "weight_block_size": 7}, "cannot be read"),
        ({"quant_method": "awq", "modules_to_not_convert": ["re:("]}, "has an expression that is none"),
        ({"quant_method": "awq", "modules_to_not_convert": "lm_head"}, "no list of names"),
        ({"quant_method": "gptq", "modules_in_block_to_quantize": [[3]]}, "no list of names"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {
                    "a": {"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [0, 0]}}
                },
            },
            "block_structure is",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float", "strategy": "block"}}},
            },
            "blocks without a block_structure",
        ),
        ({"quant_method": "compressed-tensors"}, "cannot be read: KeyError"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}}, "2 groups of layers"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}}}, "in the format"),
    ],
)
def test_what_is_refused_in_one_line(config, words):
    with pytest.raises(BadInput, match=words) as refused:
        scheme(config, "the test")
    assert "\n" not in str(refused.value)


def test_a_name_that_there_is_not():
    with pytest.raises(BadInput, match="there are no weights 'int5'; did you mean int8 or int4"):
        preset("int5")
