"""What a plan says about generating text on each card: columns, cells and sentences. Pure, main thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import MISSING, bytes_text, count_text, number_text, range_text, seconds_text
from devexplorer.core.records import CacheLayers, Fit, FitReport, ServingFit, ServingSpec
from devexplorer.gui.widgets.table import Cell, Column, numbers

KINDS = {"full": "full attention", "sliding": "a sliding window", "state": "a state"}
FIRST = "Until the prompts of the whole batch went through: time to the first token"
RATE = "Tokens of all sequences in a second, after the first one"


def serving_columns(columns: Sequence[Column], step: int, rate: int) -> tuple[Column, ...]:
    """The columns of the table, with those of the step in other words."""
    changed = {step: numbers("simulated first token", FIRST), rate: numbers("simulated tokens/s", RATE)}
    return tuple(changed.get(index, column) for index, column in enumerate(columns))


def serving_cells(serving: ServingFit, tip: str) -> tuple[Cell, Cell]:
    """Time to the first token, and tokens a second."""
    user = number_text(serving.decode_tokens_per_s_per_user)
    each = f"{tip}\nAbout {user} tokens/s for each user" if serving.decode_tokens_per_s else tip
    return Cell(_first(serving), tip=tip), Cell(_rate(serving), tip=each)


def _first(serving: ServingFit) -> str:
    return range_text(seconds_text(serving.prefill_seconds_low), seconds_text(serving.prefill_seconds_high))


def _rate(serving: ServingFit) -> str:
    return range_text(number_text(serving.decode_tokens_per_s_low), number_text(serving.decode_tokens_per_s_high))


def serving_text(fit: Fit, serving: ServingFit) -> str:
    """The cache, the largest batch and context, and how fast it is, in sentences."""
    said = [f"KV cache {bytes_text(serving.kv_cache_bytes)}: {', '.join(map(_layers, serving.cache))}."]
    if fit.largest_batch == 0:
        said.append("No batch fits.")
    elif fit.largest_batch is not None:
        said.append(f"Largest batch: {fit.largest_batch:,}{' or more' if fit.at_least else ''}.")
    if serving.largest_context is not None:
        said.append(_context(serving, serving.largest_context))
    if serving.prefill_seconds is not None:
        said.append(f"First token after {_first(serving)}.")
    if serving.decode_step_seconds is not None:
        said.append(_rates(serving))
    return " ".join(said)


def _rates(serving: ServingFit) -> str:
    user = number_text(serving.decode_tokens_per_s_per_user)
    rates = f"Then {_rate(serving)} tokens/s, about {user} for each user, bound by {serving.decode_bound}"
    if serving.communication_share is None:
        return f"{rates}."
    card, share = number_text(serving.decode_tokens_per_s_per_card), 100 * serving.communication_share
    return f"{rates}, {card} on each card; cards exchange results for {share:.0f} % of the time."


def _context(serving: ServingFit, tokens: int) -> str:
    if not tokens:
        return "No context fits."
    limit = ", all that the model has positions for" if serving.context_limit == "positions" else ""
    return f"Longest context: {tokens:,} tokens{limit}."


def _layers(layers: CacheLayers) -> str:
    return f"{count_text(layers.layers, 'layer')} with {KINDS[layers.kind]}"


def _cache(serving: ServingSpec) -> str:
    """`KV cache float8_e4m3fn in blocks of 16`; empty where it is of the activations' dtype and whole."""
    told = (serving.kv_dtype or "", f"in blocks of {serving.kv_block}" if serving.kv_block else "")
    return f"KV cache {' '.join(filter(None, told))}" if any(told) else ""


def serving_caption(report: FitReport) -> str:
    """`16 prompts of 2,048 tokens, 512 generated, KV cache float8_e4m3fn`."""
    serving = report.spec.serving
    assert serving is not None
    facts = (
        report.spec.dtype or "",
        f"{count_text(report.spec.batch, 'prompt')} of {serving.prompt:,} tokens",
        f"{serving.generate:,} generated",
        _cache(serving),
        f"prefill of {serving.prefill_chunk:,} tokens at a time" if serving.prefill_chunk else "",
        f"{serving.weights} weights" if serving.weights else "",
        f"{serving.tensor_parallel} cards each" if serving.tensor_parallel > 1 else "",
    )
    return ", ".join(filter(None, facts)) or MISSING
