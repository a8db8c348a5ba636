"""What published benchmarks of memory ran, on measuring GPUs: the model as its checkpoint was loaded, and the script's
loop with what its variables keep.

Two scripts: transformers' training benchmark (the model in float16 and in training mode, `zero_grad`, forward, the sum
of the logits, backward; the output of a step is kept until the next one has its own;
https://github.com/huggingface/transformers/pull/32092 has one of its copies), and AITemplate's benchmark of BERT's
encoder (examples/03_bert/benchmark_pt.py: a forward without `no_grad`, in evaluation mode)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from devexplorer.core.planner.run import Measuring
    from devexplorer.core.planner.trace import Trace

STEPS = 3
"""The output of the second is kept in the third."""

CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base": ("BertConfig", "BertLMHeadModel", {}),
    "gpt2-large": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "pythia-410m": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "vocab_size": 50304,
        },
    ),
    "opt-350m": (
        "OPTConfig",
        "OPTForCausalLM",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
        },
    ),
    "codellama-34b decode": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "hidden_size": 8192,
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "intermediate_size": 22016,
        },
    ),
}
"""Name of a published model -> its configuration and class in transformers."""


def model_of(name: str, attention: str, dtype: torch.dtype) -> torch.nn.Module:
    """The model without values, as `from_pretrained(torch_dtype=…)` makes it: what its code computes in float32, as the
    tables of a rotary embedding, stays so."""
    import transformers

    config_name, model_name, sizes = CONFIGS[name]
    config = getattr(transformers, config_name)(**sizes)
    config.pad_token_id = None  # else it looks for padding in ids that have no values here
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            made: torch.nn.Module = getattr(transformers, model_name)._from_config(
                config, attn_implementation=attention
            )
    finally:
        torch.set_default_dtype(before)
    return made


def trained(name: str, attention: str, batch: int, length: int, profile: str) -> Trace:
    """Steps of transformers' benchmark."""

    def steps(cards: Measuring, model: torch.nn.Module) -> None:
        ids = _empty(cards, (batch, length), torch.int64)
        # Only BERT makes a mask of fractions itself, and asks whether it hides anything.
        mask = {"attention_mask": torch.ones(batch, length, dtype=torch.int64, device=cards.devices[0])}
        given = {"input_ids": ids, **(mask if name == "bert-base" else {})}
        model.train()
        outputs = loss = None
        for _ in range(STEPS):
            model.zero_grad()
            outputs = model(**given)
            loss = outputs.logits.sum()
            _backward(loss)
            cards.label((parameter.grad for parameter in model.parameters()), "gradients")
        del outputs, loss

    return _measured(lambda: model_of(name, attention, torch.float16), profile, steps)


def encoded(batch: int, length: int, profile: str) -> Trace:
    """AITemplate's forward of BERT's encoder."""

    def steps(cards: Measuring, model: Any) -> None:
        hidden = _empty(cards, (batch, length, model.config.hidden_size), torch.float16)
        model.eval()
        model.bert.encoder(hidden)

    return _measured(lambda: model_of("bert-base", "eager", torch.float16), profile, steps)


def decoded(name: str, batch: int, profile: str) -> Trace:
    """One token: the least that generating takes."""

    def steps(cards: Measuring, model: torch.nn.Module) -> None:
        with torch.no_grad():
            model.eval()(input_ids=_empty(cards, (batch, 1), torch.int64))

    return _measured(lambda: model_of(name, "sdpa", torch.bfloat16), profile, steps)


def _empty(cards: Measuring, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    from devexplorer.core.virtual.backend import meta_empty

    return meta_empty(shape, dtype, cards.devices[0])


def _backward(loss: torch.Tensor) -> None:
    from devexplorer.core.virtual.backend import backward_guard

    with backward_guard():
        loss.backward()


def _measured(
    build: Callable[[], torch.nn.Module], profile: str, steps: Callable[[Measuring, torch.nn.Module], None]
) -> Trace:
    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.models import clone_model, no_collections, parameters_and_buffers
    from devexplorer.core.planner.run import Measuring

    subject = build()
    cards = Measuring((load_profiles()[profile],))
    gc.collect()
    with no_collections():
        made: dict[int, torch.Tensor] = {}
        for tensor in parameters_and_buffers(subject):
            if id(tensor) not in made:
                made[id(tensor)] = _empty(cards, tuple(tensor.shape), tensor.dtype)
        model = clone_model(subject, lambda tensor: made.pop(id(tensor)))
        cards.label(model.parameters(), "parameters")
        cards.label(model.buffers(), "buffers")
        steps(cards, model)
        (trace,) = cards.traces()
        del model
    return trace
