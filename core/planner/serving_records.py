"""What is asked about generating text, and what the planner answers for a card. Every figure of time is simulated. Any
thread."""

from __future__ import annotations

from devexplorer.core.records.base import Record


class ServingSpec(Record):
    """One request: so many sequences with prompts of one length, to which tokens are added."""

    generate: int
    """Tokens that each sequence gets."""
    prompt: int = 512
    """Tokens of each prompt."""
    kv_dtype: str | None = None
    """dtype of the key-value cache; None: that of the activations."""
    kv_block: int | None = None
    """Tokens in a block of a paged cache; None: room for the whole sequence from the start."""
    tensor_parallel: int = 1
    """Cards over which every layer is split."""
    prefill_chunk: int | None = None
    """The most tokens of a prompt that go through the model at a time; None: the whole prompt."""
    weights: str = ""
    """A quantisation (`int4`, `gptq`, `fp8`, …) or the path of a checkpoint; empty: as the configuration says."""

    @property
    def context(self) -> int:
        """Tokens of a sequence at the end."""
        return self.prompt + self.generate


class CacheLayers(Record):
    """Layers of one model that keep the same."""

    kind: str
    """`full`, `sliding` or `state`."""
    layers: int
    tokens: int
    """Tokens that each of them has room for, for each sequence; 0 for a state, which does not grow."""
    bytes: int
    """Of all these layers and all sequences, on one card."""


class ServingFit(Record):
    """What generating takes on one card, or on several together."""

    kv_cache_bytes: int
    """The cache at the end of the request, on all cards together."""
    kv_bytes_per_token: int
    """What one more token of one sequence takes, on all cards together; layers with a full window take nothing more."""
    cache: tuple[CacheLayers, ...]
    """What it consists of, on one card."""
    largest_context: int | None = None
    """The most tokens, prompt and generated ones together, that the batch can have; 0: none; None: not looked for."""
    context_limit: str = ""
    """`memory` or `positions` (of the model): what ends the context; empty where it is not known."""
    prefill_seconds: float | None = None
    """Simulated time to the first token: the prompts of the whole batch."""
    prefill_seconds_low: float | None = None
    """The range in which a real card's would be expected, simulated."""
    prefill_seconds_high: float | None = None
    decode_step_seconds: float | None = None
    """Simulated time of a later token, the mean over those that are generated."""
    decode_tokens_per_s: float | None = None
    """Simulated, of all sequences together, the first token left out."""
    decode_tokens_per_s_low: float | None = None
    decode_tokens_per_s_high: float | None = None
    decode_tokens_per_s_per_user: float | None = None
    decode_tokens_per_s_per_card: float | None = None
    communication_share: float | None = None
    """Part of the decode step in which cards exchange results."""
    decode_bound: str | None = None
    """`compute`, `bandwidth`, `launches` or `link`: what most of a decode step's time goes to."""
