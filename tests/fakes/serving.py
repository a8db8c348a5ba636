"""Shared by tests of serving: small language models of transformers, and how they are planned for."""

from __future__ import annotations

from typing import Any

import torch

from devexplorer.core.models import builder_of
from devexplorer.core.planner.serving.session import ServedModel, SessionRunner
from devexplorer.core.planner.serving.storage import CacheLayout
from devexplorer.core.planner.serving.tensor_parallel import split

LLAMA = (
    "transformers:llama?hidden_size=64&num_hidden_layers=5&num_attention_heads=8&num_key_value_heads=4"
    "&intermediate_size=128&vocab_size=256"
)
GEMMA = (
    "transformers:gemma3_text?hidden_size=64&num_hidden_layers=7&num_attention_heads=4&num_key_value_heads=2"
    "&head_dim=16&intermediate_size=128&vocab_size=256&sliding_window=8"
)
"""Five layers with a window, one without, and so on."""
MIXTRAL = (
    "transformers:mixtral?hidden_size=64&num_hidden_layers=4&num_attention_heads=8&num_key_value_heads=2"
    "&intermediate_size=96&vocab_size=256&num_local_experts=8"
)
DEEPSEEK = (
    "transformers:deepseek_v3?hidden_size=64&num_hidden_layers=4&num_attention_heads=4&num_key_value_heads=4"
    "&intermediate_size=128&moe_intermediate_size=32&n_routed_experts=8&num_experts_per_tok=2&n_group=2&topk_group=1"
    "&first_k_dense_replace=1&kv_lora_rank=24&q_lora_rank=32&qk_rope_head_dim=8&qk_nope_head_dim=16&v_head_dim=16"
    "&vocab_size=256"
)
JAMBA = (
    "transformers:jamba?hidden_size=64&num_hidden_layers=8&num_attention_heads=4&num_key_value_heads=2"
    "&intermediate_size=96&vocab_size=256&attn_layer_period=4&attn_layer_offset=2&num_experts=4&mamba_dt_rank=4"
)
MAMBA = "transformers:mamba?hidden_size=64&num_hidden_layers=3&vocab_size=256&state_size=16"
BIGCODE = "transformers:gpt_bigcode?n_embd=64&n_layer=4&n_head=4&vocab_size=256"
GPT2 = "transformers:gpt2?n_embd=64&n_layer=4&n_head=4&vocab_size=256"


def served(source: str, ways: int = 1, dtype: torch.dtype = torch.bfloat16, **options: Any) -> ServedModel:
    """The model as one card holds it."""
    model: Any = builder_of(source, "").build_without_values()
    model.requires_grad_(False)
    model = model.to(dtype)
    return ServedModel(source, model, split(model, source, ways), dtype, **options)


def layout_of(source: str, ways: int = 1, dtype: torch.dtype = torch.bfloat16, block: int | None = None) -> CacheLayout:
    """What the planner finds out about the cache of a model."""
    return CacheLayout(SessionRunner(served(source, ways, dtype)).layers, dtype.itemsize, block)
