"""The planner's report as tables. Every time in them is simulated. Main thread; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from devexplorer.core.base import MISSING, bytes_text, count_text, number_text, printable, range_text, seconds_text
from devexplorer.core.cli.terminal import table
from devexplorer.core.planner.messages import PARTS
from devexplorer.core.planner.records import BatchPoint, Fit, FitCard, FitReport, FitSpec, Help
from devexplorer.core.planner.worker.ask import LIMIT_SECONDS

COLUMNS = 4
"""Cards whose parts are shown side by side; more of them are a list."""
WITH_REST = 2
"""So many cards have a column for the memory at rest."""
WIDE = 110
"""Characters of a line that has room for every column of that list."""
SIMULATED = "every time is simulated"


def print_report(out: Console, report: FitReport, chosen: Fit) -> None:
    """The parts on each card and whether it fits; of many cards a list, and the parts on the `chosen` one."""
    out.print(Text(printable(_title(report))))
    out.print()
    several = sum(len(item.cards) for item in report.fits) > COLUMNS
    if several:
        out.print(_list(report.fits, out.width))
        out.print(Text(SIMULATED, style="dim"))
        out.print()
    shown = (chosen,) if several else report.fits
    worked_out = [item for item in shown if item.bytes.total]
    if worked_out:
        out.print(side_by_side(worked_out))
        out.print()
    for item in shown:
        out.print(Text(printable(verdict(item)), style="" if item.fits else "red"))
    print_late(out, report)
    _print_helps(out, report.helps)
    _print_curve(out, report)
    if report.untried:
        out.print(Text(f"not calculated (time limit reached): {', '.join(report.untried)}", style="dim"))
    print_assumptions(out, report.assumptions)


def print_late(out: Console, report: FitReport) -> None:
    """The cards that there was no time for."""
    if report.late:
        again = f"--timeout {2 * round(LIMIT_SECONDS)} or more plans for them, too"
        out.print(Text(f"no time was left for {', '.join(report.late)}; {again}", style="yellow"))


def print_assumptions(out: Console, assumptions: Sequence[str]) -> None:
    """What the figures rest on, a line each."""
    if assumptions:
        out.print()
        out.print(Text("what these figures rest on", style="dim"))
        for assumption in assumptions:
            out.print(Text(f"    {printable(assumption)}", style="dim"))


def verdict(item: Fit) -> str:
    """`2x Tesla T4: fits; largest batch 128; one step 2.6 to 4 ms, 2,000 to 3,100 samples/s, bound by compute
    (simulated)`."""
    parts = [fits_text(item)]
    if item.largest_batch is not None:
        or_more = " or more" if item.at_least else ""
        parts.append("no batch fits" if item.largest_batch == 0 else f"largest batch {item.largest_batch:,}{or_more}")
    if item.step_seconds is not None:
        parts.append(f"one step {step_text(item)}, {_rate(item)} samples/s, bound by {item.bound} (simulated)")
    return f"{item.gpu}: {'; '.join(parts)}"


def fits_text(item: Fit) -> str:
    """`does not fit (it needs 20.10 GiB of the 14.56 GiB that the card has)`."""
    if item.fits:
        return "fits"
    return f"does not fit ({item.reason.rstrip('.')})" if item.reason else "does not fit"


def step_text(item: Fit | Help | BatchPoint) -> str:
    """`280 to 450 ms`: where a real card's step would be expected."""
    return range_text(seconds_text(item.step_seconds_low), seconds_text(item.step_seconds_high))


def _title(report: FitReport) -> str:
    """`resnet50, 25,557,032 parameters, training with adamw, batch 8 (8x3x224x224)`."""
    given = f" ({report.inputs})" if report.inputs else ""
    parts = [report.spec.source, count_text(report.parameters, "parameter"), how(report.spec)]
    return f"{', '.join(parts)}, batch {report.spec.batch:,}{given}"


def how(spec: FitSpec) -> str:
    """`training with adamw in bfloat16, checkpointing`."""
    text = f"training with {spec.optimizer}" if spec.train else "forward"
    if spec.dtype is not None:
        text += f" in {spec.dtype}"
    more = [f"autocast to {spec.autocast}" if spec.autocast else "", "checkpointing" if spec.checkpointing else ""]
    more += ["TF32" if spec.tf32 else "", "channels_last" if spec.channels_last else ""]
    more += ["inputs copied from the host" if spec.input_copy else ""]
    return ", ".join(filter(None, (text, *more)))


def _list(fits: Sequence[Fit], width: int) -> Table:
    """A row for each; narrow terminals get what matters most."""
    wide = width >= WIDE
    more = (">share", ">samples/s") if wide else ()
    why = () if all(item.bytes.total for item in fits) else ("",)
    listing = table("gpu", ">capacity", ">needed", "fits", ">largest batch", ">one step", *more, *why)
    for item in fits:
        capacity = bytes_text(item.capacity_bytes, 1)
        if not item.bytes.total:
            listing.add_row(_text(item.gpu), capacity, MISSING, "no", *[MISSING] * (2 + len(more)), _text(item.reason))
            continue
        fullest = max(item.cards, key=lambda card: card.bytes.total / card.capacity_bytes)
        figures = (
            bytes_text(item.bytes.total),
            "yes" if item.fits else "no",
            batch_text(item),
            step_text(item),
        )
        listing.add_row(
            _text(item.gpu),
            capacity,
            *figures,
            *((_share(fullest.bytes.total, fullest), _rate(item)) if wide else ()),
        )
    return listing


def side_by_side(fits: Sequence[Fit]) -> Table:
    """Two columns for each card: at the peak and at rest (the allocator keeps what it reserved), of which many cards
    have the sum alone. A card that is one of several says which."""
    named = [(_card_name(item, index), card) for item in fits for index, card in enumerate(item.cards)]
    cards = [card for _, card in named]
    both = len(cards) <= WITH_REST
    heads = [(name, *(("at rest",) if both else ())) for name, _ in named]
    listing = table("", *(f">{head}" for group in heads for head in group))
    moments = [parts for card in cards for parts in ((card.bytes, card.rest) if both else (card.bytes,))]
    for part, name in PARTS.items():
        if part in _ALWAYS or any(getattr(parts, part) for parts in moments):
            listing.add_row(name.removeprefix("the "), *(bytes_text(getattr(parts, part)) for parts in moments))
    listing.add_row("total", *(bytes_text(parts.total) for parts in moments), style="bold")
    if not both:
        listing.add_row("at rest", *(bytes_text(card.rest.total) for card in cards))
    times = 2 if both else 1
    shares = [(parts.total, card) for card in cards for parts in (card.bytes, card.rest)[:times]]
    listing.add_row("capacity", *(bytes_text(card.capacity_bytes) for _, card in shares))
    listing.add_row("share", *(_share(total, card) for total, card in shares))
    listing.add_row("fits", *("yes" if total <= card.capacity_bytes and card.fits else "no" for total, card in shares))
    allocated = (bytes_text(parts.from_allocator) for parts in moments)
    listing.add_row("memory_allocated (PyTorch)", *allocated, style="dim")
    for name, sizes in (
        ("memory_reserved (PyTorch)", [card.reserved_bytes for card in cards]),
        ("in use (nvidia-smi)", [card.used_bytes for card in cards]),
    ):
        known = [
            bytes_text(size) if card.device == "cuda" else MISSING for size, card in zip(sizes, cards, strict=True)
        ]
        listing.add_row(name, *(text for text in known for _ in range(times)), style="dim")
    return listing


_ALWAYS = ("parameters", "activations", "context")
"""Parts that are a row also where they are nothing."""


def _text(text: str) -> Text:
    """Words from elsewhere, in which brackets are brackets."""
    return Text(printable(text))


def _share(total: int, card: FitCard) -> str:
    return f"{100 * total / card.capacity_bytes:.1f} %"


def _card_name(item: Fit, index: int) -> str:
    name = item.cards[index].gpu
    return name if len(item.cards) == 1 else f"{name} ({index + 1} of {len(item.cards)})"


def _rate(item: Fit) -> str:
    return range_text(number_text(item.samples_per_s_low), number_text(item.samples_per_s_high))


def batch_text(item: Fit) -> str:
    """The largest batch; `64+` where a larger one would fit too."""
    if item.largest_batch is None:
        return MISSING
    return f"{item.largest_batch:,}{'+' if item.at_least else ''}"


def _print_curve(out: Console, report: FitReport) -> None:
    if not report.curve:
        return
    out.print()
    out.print(Text(f"over the batch on {printable(report.fits[0].gpu)}", style="bold"))
    listing = table(">batch", ">needed", "fits", ">one step", ">samples/s")
    for point in report.curve:
        step, rate = step_text(point), MISSING
        if point.step_seconds_low is not None and point.step_seconds_high is not None:
            slow, fast = (point.batch / seconds for seconds in (point.step_seconds_high, point.step_seconds_low))
            rate = range_text(number_text(slow), number_text(fast))
        listing.add_row(f"{point.batch:,}", bytes_text(point.total_bytes), "yes" if point.fits else "no", step, rate)
    out.print(listing)
    out.print(Text(SIMULATED, style="dim"))


def _print_helps(out: Console, helps: Sequence[Help]) -> None:
    if not helps:
        return
    out.print()
    out.print(Text(f"what would help on {printable(helps[0].gpu)}", style="bold"))
    listing = table("", ">needed", ">saved", "fits", ">largest batch", ">one step")
    for item in helps:
        batch = MISSING if item.largest_batch is None else f"{item.largest_batch:,}"
        figures = (bytes_text(item.total_bytes), bytes_text(item.saved_bytes), "yes" if item.fits else "no", batch)
        listing.add_row(_text(item.title), *figures, step_text(item))
    out.print(listing)
    out.print(Text(SIMULATED, style="dim"))
