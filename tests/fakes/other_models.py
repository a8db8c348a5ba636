"""Third-party models: BERT, GPT-2 and Llama from configurations of transformers, tiny and at full depth, narrow so that
they are fast. `SOURCES[name]` is what `OpenModel` takes, `TIED[name]` the two paths of the tied embedding,
`BLOCK[name]` one layer."""

from __future__ import annotations

_BERT = (
    "transformers:bert?hidden_size=32&num_attention_heads=2&intermediate_size=48&vocab_size=100"
    "&max_position_embeddings=32"
)
_GPT2 = "transformers:gpt2?n_embd=32&n_head=2&vocab_size=100&n_positions=32&bos_token_id=0&eos_token_id=0"
_LLAMA = (
    "transformers:llama?hidden_size=32&num_attention_heads=2&num_key_value_heads=1&intermediate_size=48&vocab_size=100"
    "&max_position_embeddings=32&tie_word_embeddings=True"
)

SOURCES = {
    "bert-tiny": f"{_BERT}&num_hidden_layers=2",
    "bert": f"{_BERT}&num_hidden_layers=12",
    "gpt2-tiny": f"{_GPT2}&n_layer=2",
    "gpt2": f"{_GPT2}&n_layer=12",
    "llama-tiny": f"{_LLAMA}&num_hidden_layers=2",
    "llama": f"{_LLAMA}&num_hidden_layers=32",
}
"""Name -> source. Without `-tiny`: as many layers as the published models have (12, 12, 32)."""
LAYERS = {"bert-tiny": 2, "bert": 12, "gpt2-tiny": 2, "gpt2": 12, "llama-tiny": 2, "llama": 32}
_TIES = {
    "bert": ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    "gpt2": ("transformer.wte.weight", "lm_head.weight"),
    "llama": ("model.embed_tokens.weight", "lm_head.weight"),
}
_BLOCKS = {"bert": "bert.encoder.layer", "gpt2": "transformer.h", "llama": "model.layers"}
TIED = {name: _TIES[name.partition("-")[0]] for name in SOURCES}
"""Name -> the two paths of one Parameter: the embedding, and the output layer that shares it."""
BLOCK = {name: f"{_BLOCKS[name.partition('-')[0]]}.1" for name in SOURCES}
"""Name -> the path of one of its layers."""
TYPES = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}
