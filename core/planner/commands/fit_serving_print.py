"""The planner's report about generating text, as tables. Every time in them is simulated. Main thread; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from devexplorer.core.base import MISSING, bytes_text, count_text, number_text, printable, range_text, seconds_text
from devexplorer.core.cli.terminal.output import table
from devexplorer.core.planner.commands.fit_print import (
    COLUMNS,
    SIMULATED,
    WIDE,
    batch_text,
    fits_text,
    print_assumptions,
    print_late,
    side_by_side,
)
from devexplorer.core.planner.records import Fit, FitReport
from devexplorer.core.planner.serving_records import CacheLayers, ServingFit, ServingSpec

KINDS = {"full": "full attention", "sliding": "a sliding window", "state": "a state"}


def print_serving(out: Console, report: FitReport, chosen: Fit) -> None:
    """What each card holds and how fast it generates; of many cards a list, and the parts on the `chosen` one."""
    serving = report.spec.serving
    assert serving is not None
    out.print(Text(printable(_title(report, serving))))
    out.print()
    several = len(report.fits) > COLUMNS
    if several:
        out.print(_list(report.fits, out.width))
        out.print(Text(SIMULATED, style="dim"))
        out.print()
    shown: Sequence[Fit] = (chosen,) if several else report.fits
    out.print(side_by_side([_one_of(item) for item in shown]))
    out.print()
    for item in shown:
        for line in lines(item):
            out.print(Text(printable(line), style="" if item.fits else "red"))
    print_late(out, report)
    print_assumptions(out, report.assumptions)


def _title(report: FitReport, serving: ServingSpec) -> str:
    spec = report.spec
    parts = [spec.source, count_text(report.parameters, "parameter"), request_text(serving, spec.batch)]
    return ", ".join(parts)


def request_text(serving: ServingSpec, batch: int) -> str:
    """`16 sequences with prompts of 2,048 tokens and 512 more, KV cache in float8_e4m3fn`."""
    text = f"{count_text(batch, 'sequence')} with prompts of {serving.prompt:,} tokens and {serving.generate:,} more"
    more = [
        f"KV cache in {serving.kv_dtype}" if serving.kv_dtype else "",
        f"in blocks of {serving.kv_block}" if serving.kv_block else "",
        f"over {serving.tensor_parallel} cards" if serving.tensor_parallel > 1 else "",
        f"weights {serving.weights}" if serving.weights else "",
    ]
    return ", ".join([text, *filter(None, more)])


def lines(item: Fit) -> list[str]:
    """What a card does, a line for each question."""
    serving = item.serving
    assert serving is not None
    said = [f"{item.gpu}: {fits_text(item)}; {largest(item, serving)}", f"    KV cache: {cache_text(serving)}"]
    if serving.prefill_seconds is not None:
        said.append(f"    first token after {_first(serving)} (simulated)")
    if serving.decode_step_seconds is not None:
        said.append(f"    then {rates(serving)} (simulated)")
    return said


def largest(item: Fit, serving: ServingFit) -> str:
    """`largest batch 23, longest context 4,096 tokens (the model's limit)`."""
    or_more = " or more" if item.at_least else ""
    if item.largest_batch is None or serving.largest_context is None:
        return "the largest batch was not looked for"
    batch = f"largest batch {item.largest_batch:,}{or_more}" if item.largest_batch else "no batch fits"
    limit = ", all that the model has positions for" if serving.context_limit == "positions" else ""
    context = (
        f"longest context {serving.largest_context:,} tokens{limit}" if serving.largest_context else "no context fits"
    )
    return f"{batch}; {context}"


def rates(serving: ServingFit) -> str:
    """`500 to 760 tokens/s, about 38.9 for each user, bound by bandwidth, 155 on each card; 12 % …`."""
    text = (
        f"{_rate(serving)} tokens/s, about {number_text(serving.decode_tokens_per_s_per_user)} for each user, bound by"
        f" {serving.decode_bound}"
    )
    if serving.communication_share is None:
        return text
    card, share = number_text(serving.decode_tokens_per_s_per_card), 100 * serving.communication_share
    return f"{text}, {card} on each card; {share:.0f} % of the time cards exchange results"


def _first(serving: ServingFit) -> str:
    return range_text(seconds_text(serving.prefill_seconds_low), seconds_text(serving.prefill_seconds_high))


def _rate(serving: ServingFit) -> str:
    return range_text(number_text(serving.decode_tokens_per_s_low), number_text(serving.decode_tokens_per_s_high))


def cache_text(serving: ServingFit) -> str:
    """`20.00 GiB; 32 layers with full attention, 2,560 tokens each`."""
    return "; ".join([bytes_text(serving.kv_cache_bytes), *map(_layers_text, serving.cache)])


def _layers_text(layers: CacheLayers) -> str:
    text = f"{count_text(layers.layers, 'layer')} with {KINDS[layers.kind]}"
    return f"{text}, room for {layers.tokens:,} tokens" if layers.tokens else text


def _one_of(item: Fit) -> Fit:
    """All cards hold the same: one of them is shown."""
    return replace(item, cards=item.cards[:1])


def _list(fits: Sequence[Fit], width: int) -> Table:
    """A row for each; narrow terminals get what matters most."""
    wide = width >= WIDE
    more = (">capacity", ">longest context") if wide else ()
    listing = table("gpu", ">needed", "fits", ">largest batch", ">first token", ">tokens/s", *more)
    for item in fits:
        serving = item.serving
        assert serving is not None
        card = item.cards[0]
        context = MISSING if not serving.largest_context else f"{serving.largest_context:,}"
        listing.add_row(
            Text(printable(item.gpu)),
            bytes_text(card.bytes.total),
            "yes" if item.fits else "no",
            batch_text(item),
            _first(serving),
            _rate(serving),
            *((bytes_text(card.capacity_bytes, 1), context) if wide else ()),
        )
    return listing
