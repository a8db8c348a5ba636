"""The layout that the planner finds against the caches of transformers, filled by small models that really run."""

import pytest
import torch
from fakes.serving import BIGCODE, DEEPSEEK, GEMMA, GPT2, JAMBA, LLAMA, MAMBA, MIXTRAL, layout_of

from devexplorer.core.models import builder_of

cache_utils = pytest.importorskip("transformers.cache_utils")
pytestmark = pytest.mark.usefixtures("virtual")


def held(cache):
    """Bytes of every tensor in a cache."""
    total = 0
    for layer in cache.layers:
        tensors = [layer.keys, layer.values] if getattr(layer, "keys", None) is not None else []
        for name in ("conv_states", "recurrent_states"):
            tensors += [state for state in getattr(layer, name, {}).values() if state is not None]
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return total


def filled(source, cache_class, batch, length, dtype=torch.bfloat16, **options):
    """The cache after a prompt and one more token."""
    model = builder_of(source, "").build(0).to(dtype).eval()
    cache = cache_class(config=model.config, **options)
    name = "cache_params" if "mamba?" in source else "past_key_values"
    ids = torch.zeros((batch, length - 1), dtype=torch.int64)
    with torch.no_grad():
        model(input_ids=ids, use_cache=True, **{name: cache})
        model(input_ids=ids[:, :1], use_cache=True, **{name: cache})
    return cache


@pytest.mark.parametrize("source", [LLAMA, MIXTRAL, DEEPSEEK, JAMBA, MAMBA, BIGCODE, GPT2], ids=lambda text: text[:20])
def test_a_dynamic_cache(source):
    cache = filled(source, cache_utils.DynamicCache, 3, 11)
    assert held(cache) == layout_of(source).bytes(3, 11)


@pytest.mark.parametrize("source", [LLAMA, GEMMA, BIGCODE], ids=lambda text: text[:20])
@pytest.mark.parametrize("length", [5, 8, 30])
def test_a_static_cache(source, length):
    """Windows as large as the window (8 tokens in Gemma's), or as the whole."""
    cache = filled(source, cache_utils.StaticCache, 2, length, max_cache_len=length)
    assert held(cache) == layout_of(source).bytes(2, length)


def test_windows_of_a_dynamic_cache_lack_the_token_that_comes():
    """It keeps one less than the window between two tokens; with the next one, it is the window."""
    layout = layout_of(GEMMA)
    sliding = [layer for layer in layout.layers if layer.window is not None]
    missing = 2 * sum(sum(layer.parts) for layer in sliding) * layout.item_bytes
    assert held(filled(GEMMA, cache_utils.DynamicCache, 2, 30)) == layout.bytes(2, 30) - missing


def test_float32_takes_twice_as_much():
    assert held(filled(LLAMA, cache_utils.DynamicCache, 1, 7, torch.float32)) == layout_of(LLAMA).bytes(1, 7) * 2
    assert layout_of(LLAMA, dtype=torch.float32).bytes(1, 7) == layout_of(LLAMA).bytes(1, 7) * 2
