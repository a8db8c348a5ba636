"""What figures about generated text rest on, in sentences. Pure functions; any thread."""

from __future__ import annotations

from collections.abc import Collection

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.planner.experts import EQUAL_SHARES, has_experts
from devexplorer.core.planner.messages import CONTEXT, MPS_MEMORY, MPS_SECONDS, as_it_is
from devexplorer.core.planner.records import FitSpec
from devexplorer.core.planner.serving.latents import keeps_latents
from devexplorer.core.planner.serving.served import Served
from devexplorer.core.planner.serving.session import SessionRunner
from devexplorer.core.planner.serving.state_space import has_scans

CROSS_ATTENTION = ("encoder_attn", "crossattention", "cross_attn")
"""What models of transformers call the attention of a decoder to what an encoder, of text, sound or pictures, found."""
LEFT_OUT = (
    "It is a decoder that attends to the output of an encoder, and it was planned for alone. Left out are the encoder"
    " (its weights and its run), the keys and values of its output that every such layer keeps for each sequence, and"
    " the attention to them; the weights of that attention are counted."
)


def assumptions(spec: FitSpec, made: Served, runner: SessionRunner, devices: Collection[str]) -> list[str]:
    """One sentence each."""
    serving = spec.serving
    assert serving is not None
    dtype = str(made.served.dtype).removeprefix("torch.")
    kept = "the whole sequence" if serving.kv_block is None else f"blocks of {serving.kv_block} tokens"
    sentences = [
        "No real card was asked: memory is counted by the rules of PyTorch's caching allocator, seconds are simulated"
        " by a roofline.",
        _weights(made, dtype),
        f"The cache has room for {kept} from the start, and tokens are written in place; transformers' own DynamicCache"
        " would copy it for each token.",
        "All prompts have the same length, and all sequences end together; the first token is there when the whole"
        " batch went through.",
        "Attention is one kernel that reads keys and values as they are kept.",
    ]
    if made.changed:
        sentences.append(as_it_is(made.changed))
    if any(name.rpartition(".")[2] in CROSS_ATTENTION for name, _ in made.served.model.named_modules()):
        sentences.append(LEFT_OUT)
    if "mps" in devices:
        sentences += [MPS_MEMORY, MPS_SECONDS]
    if "cuda" in devices:
        sentences.append(CONTEXT)
    if serving.prefill_chunk is None:
        sentences.append("Each prompt goes through the model as a whole; --prefill-chunk takes less memory.")
    if any(layer.state_bytes for layer in runner.layers):
        sentences.append("States (convolutions, recurrences) keep the dtype that the model gives them.")
    if any(map(keeps_latents, made.served.model.modules())) and runner.one_kernel:
        sentences.append(
            "Latents (MLA) are expanded for prompts; a later token attends to them as they lie, the projections"
            " absorbed, as serving engines do. transformers' own models expand the whole context for each token, which"
            " takes longer."
        )
    if has_scans(made.served.model):
        sentences.append(
            "Scans of state-space layers and updates of their states are one kernel each, as in mamba-ssm; without that"
            " package transformers takes several times as long."
        )
    if has_experts(made.served.model):
        sentences.append(EQUAL_SHARES)
    if serving.tensor_parallel > 1:
        sentences.append(
            f"Layers are split over {count_text(serving.tensor_parallel, 'card')} by transformers' plan for the model,"
            " what it leaves out is on every card; exchanges are rings over the profile's link, and nothing overlaps"
            " them."
        )
    return sentences


def _weights(made: Served, dtype: str) -> str:
    checkpoint, scheme = made.checkpoint, made.scheme
    stored = f"{scheme.title}, everything else is {dtype}" if scheme is not None else dtype
    if checkpoint is None:
        return f"Weights are {stored}."
    files = count_text(checkpoint.files, "file")
    return f"Weights are {stored}: {bytes_text(checkpoint.nbytes)} by the headers of {files} of '{checkpoint.path}'."
