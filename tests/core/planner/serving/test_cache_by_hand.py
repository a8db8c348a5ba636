"""The key-value cache of published models against sums done by hand, to the byte. bfloat16 has 2 bytes."""

import pytest
from fakes.serving import layout_of

from devexplorer.core.planner.serving.storage import CacheLayout, LayerCache

pytest.importorskip("transformers.cache_utils")
pytestmark = pytest.mark.usefixtures("virtual")


HEADS = "hidden_size=4096&num_hidden_layers=32&num_attention_heads=32&num_key_value_heads=8&intermediate_size=14336"
PUBLISHED = {
    "Llama 2 7B: 32 layers, keys and values of 32 heads": ("llama", 32 * 2 * 32 * 128 * 2, 524_288, {}),
    "Llama 3 70B: 80 layers, 8 heads": (
        "llama?hidden_size=8192&num_hidden_layers=80&num_attention_heads=64&num_key_value_heads=8"
        "&intermediate_size=28672&vocab_size=128256&max_position_embeddings=8192",
        80 * 2 * 8 * 128 * 2, 327_680, {(1, 8192): 2_684_354_560},
    ),
    "StarCoder, multi-query: 40 layers, one head": (
        "gpt_bigcode?n_embd=6144&n_layer=40&n_head=48&n_inner=24576&n_positions=8192",
        40 * 2 * 1 * 128 * 2, 20_480, {(3, 100): 6_144_000},
    ),
    "DeepSeek-V3: 61 layers, 512 latent and 64 rotary numbers": (
        "deepseek_v3", 61 * (512 + 64) * 2, 70_272, {(2, 4096): 575_668_224}
    ),
    "Mistral 7B: 32 layers, 8 heads, the last 4,096 tokens": (
        f"mistral?{HEADS}&sliding_window=4096", 0, 0,
        {(1, 1000): 1000 * 131_072, (1, 4096): 536_870_912, (1, 30_000): 536_870_912},
    ),
}  # fmt: skip
"""Configuration, bytes for each token (bfloat16), bytes for so many sequences of so many tokens."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_token_takes_what_its_layers_and_heads_take(name):
    source, token, expected, whole = PUBLISHED[name]
    layout = layout_of(f"transformers:{source}")
    assert layout.bytes_per_token == token == expected
    assert {key: layout.bytes(*key) for key in whole} == whole


def test_gemma_2_9b_mixes_windows_and_whole_contexts():
    """42 layers, 2 x 8 heads x 256 x 2 B = 8,192 B for each token: 21 with a window of 4,096, 21 without."""
    layout = layout_of(
        "transformers:gemma2?hidden_size=3584&num_hidden_layers=42&num_attention_heads=16&num_key_value_heads=8"
        "&head_dim=256&intermediate_size=14336&sliding_window=4096"
    )
    assert layout.bytes(2, 8000) == 2 * 8192 * (21 * 4096 + 21 * 8000) == 4_161_798_144
    kinds = {group.kind: (group.layers, group.tokens) for group in layout.groups(2, 8000)}
    assert kinds == {"sliding": (21, 4096), "full": (21, 8000)}


def test_jamba_v01_keeps_states():
    """Four layers of attention, 2 x 8 heads x 128 x 2 B = 4,096 B for each token; 28 of Mamba: 8192 channels with a
    convolution over 4 of 2 B, and a recurrence with 16 of 4 B, for each sequence."""
    layout = layout_of("transformers:jamba")
    state = 8192 * 4 * 2 + 8192 * 16 * 4
    assert layout.bytes_per_token == 4 * 4096 == 16_384
    assert layout.bytes(1, 1) - layout.bytes_per_token == 28 * state == 16_515_072
    assert layout.bytes(8, 1024) == 8 * (1024 * 16_384 + 28 * state) == 266_338_304
    assert [(group.kind, group.layers) for group in layout.groups(1, 1)] == [("state", 28), ("full", 4)]


def test_fewer_heads_than_cards_are_on_several():
    """Llama 3 8B over four cards: two heads of keys each; over 16: one each, eight heads twice."""
    llama = f"transformers:llama?{HEADS}"
    assert layout_of(llama, ways=4).bytes_per_token == 32 * 2 * 2 * 128 * 2
    assert layout_of(llama, ways=16).bytes_per_token == 32 * 2 * 1 * 128 * 2


def test_blocks_of_a_paged_cache_are_whole():
    layer = LayerCache((1024, 1024))
    assert [layer.tokens(length, 16) for length in (1, 16, 17, 0)] == [16, 16, 32, 0]
    layout = CacheLayout((layer, layer), 2, 16)
    assert layout.bytes(3, 17) == 2 * 3 * 32 * 2048 * 2


def test_a_window_may_touch_one_block_more_than_it_fills():
    """A window of 20 in blocks of 16: two blocks, or three where it begins within one."""
    layer = LayerCache((64, 64), window=20)
    assert [layer.tokens(length, 16) for length in (10, 32, 33, 1000)] == [16, 32, 48, 48]


def test_a_state_does_not_grow():
    layer = LayerCache(state_bytes=(100, 20))
    assert layer.sizes(4, 10, 2) == layer.sizes(4, 10_000, 2) == [400, 80]
    assert layer.tokens(10) == 0


def test_eight_bits_take_half():
    layers = (LayerCache((128, 128)), LayerCache(state_bytes=(64,)))
    assert CacheLayout(layers, 1).bytes(1, 10) == 2560 + 64
    assert CacheLayout(layers, 2).bytes(1, 10) == 5120 + 64
