"""`devexplorer fit`: does a model fit a card, and how fast would it be? Planned in its own process; printed as tables,
with every time in them simulated. Main thread; no torch."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict, replace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from devexplorer.core.base import (
    AUTOCAST,
    MISSING,
    OPTIMIZERS,
    bytes_text,
    count_text,
    number_text,
    parse_dtype,
    parse_input_shapes,
    parse_model_dtype,
    printable,
    range_text,
)
from devexplorer.core.cli.findings import TerminalFindings, current_folder, target
from devexplorer.core.cli.terminal import console, print_document, table, waiting
from devexplorer.core.devices.profiles import parse_planned
from devexplorer.core.planner.calibrate.store import CalibrationStore
from devexplorer.core.planner.messages import (
    PARTS,
    first_token_text,
    label,
    outcome,
    samples_text,
    step_text,
    tokens_text,
    workload,
)
from devexplorer.core.planner.records import Fit, FitBytes, FitCard, FitReport, FitSpec, ServingSpec
from devexplorer.core.planner.serving.request import KV_DTYPES
from devexplorer.core.planner.worker.ask import LIMIT_SECONDS, planned
from devexplorer.core.records import Calibration

PATIENCE_S, CURVE_PATIENCE_S = 15.0, 60.0
COLUMNS = 4
"""Cards whose parts are shown side by side; more of them are a list."""
WITH_REST = 2
"""So many cards have a column for the memory at rest."""
WIDE = 110
"""Characters of a line that has room for every column of that list."""
SIMULATED = Text("every time is simulated", style="dim")
_ALWAYS = ("parameters", "activations", "context")
"""Parts that are a row also where they are nothing."""


def fit(arguments: argparse.Namespace) -> int:
    """Plan a model on cards that need not be here and print what it would take. Returns 0 whatever the answer is."""
    findings = TerminalFindings()
    spec = _spec(arguments, findings)
    limit = findings.seconds(arguments.timeout, "--timeout") or LIMIT_SECONDS
    findings.demand_none()
    with waiting() as watch:
        report = planned(spec, watch, limit)
    if arguments.json:
        print_document(**document(report))
    else:
        print_report(console(), report)
    return 0


# --- what is asked for


def _spec(arguments: argparse.Namespace, findings: TerminalFindings) -> FitSpec:
    """What is asked for; harmless values where something is wrong. The cards of `--virtual` are planned on where no
    `--gpu` is given."""
    findings.check_virtual(arguments.virtual)
    for option in ("optimizer", "checkpointing"):
        if getattr(arguments, option) and not arguments.train:
            findings.add(f"--{option} says how to train; give --train as well")
    shapes = findings.parsed(arguments.input, parse_input_shapes, ())
    first = shapes[0][0][0] if shapes and shapes[0][0] else 1
    known = CalibrationStore().load()
    gpus: dict[str, None] = {}
    for text in arguments.gpu or filter(None, [arguments.virtual]):
        gpus[findings.checked(partial(_gpu, text, known), "")] = None
    autocast = findings.parsed(arguments.autocast, parse_dtype, None)
    optimizer = findings.parsed(arguments.optimizer, str.casefold, None)
    return FitSpec(
        source=target(arguments.target, findings),
        folder=current_folder(findings),
        gpus=tuple(gpus),
        batch=findings.count(arguments.batch, "--batch") or first,
        dtype=findings.parsed(arguments.dtype, parse_model_dtype, None),
        autocast=findings.one_of(autocast, AUTOCAST, "--autocast"),
        train=arguments.train,
        optimizer=findings.one_of(optimizer, tuple(OPTIMIZERS), "--optimizer") or "adamw",
        checkpointing=arguments.checkpointing,
        tf32=arguments.tf32,
        channels_last=arguments.channels_last,
        input_copy=arguments.input_copy,
        curve=arguments.curve,
        patience_seconds=CURVE_PATIENCE_S if arguments.curve else PATIENCE_S,
        inputs=arguments.input or "",
        calibrations=tuple(each for each in known if not gpus or any(each.name in gpu for gpu in gpus)),
        serving=_serving(arguments, findings),
    )


def _gpu(text: str, known: Sequence[Calibration]) -> str:
    """`2x t4` -> `2x Tesla T4`: the names as the profiles have them."""
    return label(parse_planned(text, known))


def _serving(arguments: argparse.Namespace, findings: TerminalFindings) -> ServingSpec | None:
    """What is asked about generating text; None without `--generate`."""
    if arguments.generate is None:
        for name in ("prompt", "kv_dtype", "kv_block", "prefill_chunk", "tensor_parallel", "weights"):
            if getattr(arguments, name) is not None:
                findings.add(f"--{name.replace('_', '-')} is about generating text; give --generate N as well")
        return None
    for name in ("train", "optimizer", "checkpointing", "autocast", "input", "input_copy", "curve"):
        if getattr(arguments, name):
            findings.add(f"--{name.replace('_', '-')} and --generate exclude each other")
    given: dict[str, Any] = {"generate": 1}
    for name in ("generate", "prompt", "kv_block", "prefill_chunk", "tensor_parallel"):
        count = findings.count(getattr(arguments, name), f"--{name.replace('_', '-')}")
        if count is not None:
            given[name] = count
    dtype = findings.parsed(arguments.kv_dtype, parse_dtype, None)
    kv_dtype = findings.one_of(dtype, KV_DTYPES, "--kv-dtype")
    return ServingSpec(kv_dtype=kv_dtype, weights=arguments.weights or "", **given)


# --- the document


def chosen(report: FitReport) -> Fit:
    """The one of several that the answer is about: the first that was asked for, or of all profiles the smallest that
    fits.

    Where no profile is large enough it is the one with the most memory.
    """
    if report.spec.gpus:
        return report.fits[0]
    by_capacity = sorted(report.fits, key=lambda item: item.capacity_bytes)
    return next((item for item in by_capacity if item.fits), by_capacity[-1])


def document(report: FitReport) -> dict[str, Any]:
    """What `--json` prints: the figures of `chosen`, then what holds for all cards, and `gpus` with the figures of
    each."""
    spec = report.spec
    content = {"target": spec.source, **_fit(chosen(report))}
    for name in ("batch", "dtype", "autocast", "train", "checkpointing", "tf32", "channels_last", "input_copy"):
        content[name] = getattr(spec, name)
    for name in ("inputs", "parameters", "flop_per_step", "late", "untried", "assumptions"):
        content[name] = getattr(report, name)
    if spec.serving is not None:
        content["serving"] = spec.serving
    return content | {
        "optimizer": spec.optimizer if spec.train else None,
        "calibrations": [asdict(item) for item in spec.calibrations],
        "gpus": list(map(_fit, report.fits)),
        "helps": [asdict(item) | {"simulated": True} for item in report.helps],
        "curve": [asdict(item) | {"simulated": True} for item in report.curve],
    }


def _fit(item: Fit) -> dict[str, Any]:
    """One answer. What is unknown (it could not be split, so no card has anything to hold) is null, never 0."""
    content = asdict(item) | _memory(item) | {"simulated": True}
    for name in ("capacity_bytes", "samples_per_joule", "samples_per_joule_low", "samples_per_joule_high"):
        content[name] = getattr(item, name)
    content["cards"] = [asdict(card) | _memory(card) for card in item.cards]
    serving = content.pop("serving")
    if serving is not None:
        content |= asdict(serving)
    return content


def _memory(item: Fit | FitCard) -> dict[str, Any]:
    """The parts with their sum, at the peak and at rest, and what PyTorch and nvidia-smi would say; null where they are
    unknown: a card that was worked out has a context at least."""
    names = ("bytes", "rest", "max_allocated_bytes", "reserved_bytes", "used_bytes")
    if not item.bytes.total:
        return dict.fromkeys(names)
    figures = _parts(item.bytes), _parts(item.rest), item.bytes.from_allocator, item.reserved_bytes, item.used_bytes
    return dict(zip(names, figures, strict=True))


def _parts(parts: FitBytes) -> dict[str, int]:
    """With their sum; a cache only where text is generated."""
    known = asdict(parts) | {"total": parts.total}
    if not parts.kv_cache:
        del known["kv_cache"]
    return known


# --- the tables


def print_report(out: Console, report: FitReport) -> None:
    """The parts on each card and whether it fits; of many cards a list, and the parts on the `chosen` one."""
    if report.spec.serving is not None:  # all cards of a fit hold the same: one of them is shown
        report = replace(report, fits=tuple(replace(item, cards=item.cards[:1]) for item in report.fits))
    out.print(_text(f"{report.spec.source}, {count_text(report.parameters, 'parameter')}, {workload(report)}"))
    out.print()
    shown: Sequence[Fit] = report.fits
    if sum(len(item.cards) for item in shown) > COLUMNS:
        out.print(_list(shown, out.width))
        out.print(SIMULATED)
        out.print()
        shown = [chosen(report)]
    worked_out = [item for item in shown if item.bytes.total]
    if worked_out:
        out.print(_side_by_side(worked_out))
        out.print()
    for item in shown:
        for line in verdict(item):
            out.print(Text(printable(line), style="" if item.fits else "red"))
    if report.late:
        again = f"--timeout {2 * round(LIMIT_SECONDS)} or more plans for them, too"
        out.print(Text(f"no time was left for {', '.join(report.late)}; {again}", style="yellow"))
    _print_helps(out, report)
    _print_curve(out, report)
    if report.untried:
        out.print(Text(f"not calculated (time limit reached): {', '.join(report.untried)}", style="dim"))
    if report.assumptions:
        out.print(Text("\nassumptions", style="dim"))
    for assumption in report.assumptions:
        out.print(Text(f"    {printable(assumption)}", style="dim"))


def verdict(item: Fit) -> list[str]:
    """Whether it fits, and if not, why; then a line for each thing that is known of it."""
    told = "fits"
    if not item.fits:
        told = f"does not fit ({item.reason.rstrip('.')})" if item.reason else "does not fit"
    return [f"{item.gpu}: {told}", *(f"    {line}" for line in outcome(item))]


def _list(fits: Sequence[Fit], width: int) -> Table:
    """A row for each; narrow terminals get what matters most."""
    wide, serves = width >= WIDE, fits[0].serving is not None
    more = [">first token", ">tokens/s", ">longest context"] if serves else [">one step", ">samples/s", ">share"]
    if not wide:
        more = more[:2] if serves else more[:1]
    why = () if all(item.bytes.total for item in fits) else ("",)
    listing = table("gpu", ">capacity", ">needed", "fits", ">largest batch", *more, *why)
    for item in fits:
        total, serving = item.bytes.total, item.serving
        if serving is None:
            fullest = max(card.bytes.total / card.capacity_bytes for card in item.cards)
            figures = [step_text(item), samples_text(item), f"{100 * fullest:.1f} %" if total else MISSING]
        else:
            figures = [first_token_text(serving), tokens_text(serving), _number(serving.largest_context or None)]
        row: list[str | Text] = [
            _text(item.gpu),
            bytes_text(item.capacity_bytes, 1),
            bytes_text(total) if total else MISSING,
            _yes(item.fits),
            f"{_number(item.largest_batch)}{'+' if item.at_least else ''}",
            *figures[: len(more)],
        ]
        if why:
            row.append(_text("" if total else item.reason))
        listing.add_row(*row)
    return listing


def _side_by_side(fits: Sequence[Fit]) -> Table:
    """Two columns for each card: at the peak and at rest (the allocator keeps what it reserved), of which many cards
    have the sum alone. A card that is one of several says which."""
    both = sum(len(item.cards) for item in fits) <= WITH_REST
    names, columns = [], []
    for item in fits:
        for number, card in enumerate(item.cards, 1):
            names.append(card.gpu if len(item.cards) == 1 else f"{card.gpu} ({number} of {len(item.cards)})")
            columns.append((card, card.bytes))
            if both:
                names.append("at rest")
                columns.append((card, card.rest))
    listing = table("", *(f">{name}" for name in names))

    def add(name: str, sizes: Iterable[int | None], style: str = "") -> None:
        listing.add_row(name, *(MISSING if size is None else bytes_text(size) for size in sizes), style=style)

    for part, name in PARTS.items():
        sizes = [getattr(parts, part) for _, parts in columns]
        if part in _ALWAYS or any(sizes):
            add(name.removeprefix("the "), sizes)
    add("total", [parts.total for _, parts in columns], "bold")
    if not both:
        add("at rest", [card.rest.total for card, _ in columns])
    add("capacity", [card.capacity_bytes for card, _ in columns])
    listing.add_row("share", *(f"{100 * parts.total / card.capacity_bytes:.1f} %" for card, parts in columns))
    listing.add_row("fits", *(_yes(card.fits and parts.total <= card.capacity_bytes) for card, parts in columns))
    add("memory_allocated (PyTorch)", [parts.from_allocator for _, parts in columns], "dim")
    for name, field in (("memory_reserved (PyTorch)", "reserved_bytes"), ("in use (nvidia-smi)", "used_bytes")):
        add(name, [getattr(card, field) if card.device == "cuda" else None for card, _ in columns], "dim")
    return listing


def _print_helps(out: Console, report: FitReport) -> None:
    if not report.helps:
        return
    out.print(Text(f"\nwhat would help on {printable(report.helps[0].gpu)}", style="bold"))
    listing = table("", ">needed", ">saved", "fits", ">largest batch", ">one step")
    for item in report.helps:
        sizes = bytes_text(item.total_bytes), bytes_text(item.saved_bytes)
        listing.add_row(_text(item.title), *sizes, _yes(item.fits), _number(item.largest_batch), step_text(item))
    out.print(listing)
    out.print(SIMULATED)


def _print_curve(out: Console, report: FitReport) -> None:
    if not report.curve:
        return
    out.print(Text(f"\nover the batch on {printable(report.fits[0].gpu)}", style="bold"))
    listing = table(">batch", ">needed", "fits", ">one step", ">samples/s")
    for point in report.curve:
        rate = MISSING
        if point.step_seconds_low is not None and point.step_seconds_high is not None:
            slow, fast = point.batch / point.step_seconds_high, point.batch / point.step_seconds_low
            rate = range_text(number_text(slow), number_text(fast))
        needed = bytes_text(point.total_bytes)
        listing.add_row(f"{point.batch:,}", needed, _yes(point.fits), step_text(point), rate)
    out.print(listing)
    out.print(SIMULATED)


def _yes(fits: bool) -> str:
    return "yes" if fits else "no"


def _number(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _text(text: str) -> Text:
    """Words from elsewhere, in which brackets are brackets."""
    return Text(printable(text))
