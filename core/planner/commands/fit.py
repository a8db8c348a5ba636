"""`devexplorer fit`: does a model fit a card, and how fast would it be? Planned in its own process; printed as tables,
with every time in them simulated. Main thread; no torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import groupby
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
    seconds_text,
)
from devexplorer.core.cli.findings import TerminalFindings, current_folder, target
from devexplorer.core.cli.terminal import console, print_document, table, waiting
from devexplorer.core.devices.profiles import parse_planned
from devexplorer.core.planner.calibrate.store import CalibrationStore
from devexplorer.core.planner.messages import PARTS
from devexplorer.core.planner.records import (
    BatchPoint,
    CacheLayers,
    Fit,
    FitBytes,
    FitCard,
    FitReport,
    FitSpec,
    Help,
    ServingFit,
    ServingSpec,
)
from devexplorer.core.planner.serving.request import KV_DTYPES
from devexplorer.core.planner.worker.ask import LIMIT_SECONDS, planned
from devexplorer.core.records import Calibration

COLUMNS = 4
"""Cards whose parts are shown side by side; more of them are a list."""
WITH_REST = 2
"""So many cards have a column for the memory at rest."""
WIDE = 110
"""Characters of a line that has room for every column of that list."""
SIMULATED = "every time is simulated"


def print_report(out: Console, report: FitReport, chosen: Fit) -> None:
    """The parts on each card and whether it fits; of many cards a list, and the parts on the `chosen` one."""
    out.print(Text(printable(_fit_title(report))))
    out.print()
    several = sum(len(item.cards) for item in report.fits) > COLUMNS
    if several:
        out.print(_fit_list(report.fits, out.width))
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
        out.print(Text("assumptions", style="dim"))
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
        parts.append(f"one step {step_text(item)}, {_samples_text(item)} samples/s, bound by {item.bound} (simulated)")
    return f"{item.gpu}: {'; '.join(parts)}"


def fits_text(item: Fit) -> str:
    """`does not fit (it needs 20.10 GiB of the 14.56 GiB that the card has)`."""
    if item.fits:
        return "fits"
    return f"does not fit ({item.reason.rstrip('.')})" if item.reason else "does not fit"


def step_text(item: Fit | Help | BatchPoint) -> str:
    """`280 to 450 ms`: where a real card's step would be expected."""
    return range_text(seconds_text(item.step_seconds_low), seconds_text(item.step_seconds_high))


def _fit_title(report: FitReport) -> str:
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


def _fit_list(fits: Sequence[Fit], width: int) -> Table:
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
            *((_share(fullest.bytes.total, fullest), _samples_text(item)) if wide else ()),
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


def _samples_text(item: Fit) -> str:
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


# `devexplorer fit --generate`: what is asked about generating text, and the figures for `--json`. Main thread; no
# torch.

PROMPT = 512
"""Tokens, where nothing is said."""
_OPTIONS = ("prompt", "kv_dtype", "kv_block", "prefill_chunk", "tensor_parallel", "weights")
_REFUSED = ("train", "optimizer", "checkpointing", "autocast", "input", "input_copy", "curve")


def serving_spec(arguments: argparse.Namespace, findings: TerminalFindings) -> ServingSpec | None:
    """None without `--generate`."""
    given = [name for name in _OPTIONS if getattr(arguments, name) is not None]
    if arguments.generate is None:
        for name in given:
            findings.add(f"--{name.replace('_', '-')} is about generating text; give --generate N as well")
        return None
    for name in _REFUSED:
        if getattr(arguments, name):
            findings.add(f"--{name.replace('_', '-')} and --generate exclude each other")
    counts = {
        name: findings.count(getattr(arguments, name), f"--{name.replace('_', '-')}")
        for name in ("generate", "prompt", "kv_block", "prefill_chunk", "tensor_parallel")
    }
    dtype = findings.parsed(arguments.kv_dtype, parse_dtype, None)
    return ServingSpec(
        generate=counts["generate"] or 1,
        prompt=counts["prompt"] or PROMPT,
        kv_dtype=findings.one_of(dtype, KV_DTYPES, "--kv-dtype"),
        kv_block=counts["kv_block"],
        tensor_parallel=counts["tensor_parallel"] or 1,
        prefill_chunk=counts["prefill_chunk"],
        weights=arguments.weights or "",
    )


def serving_document(serving: ServingFit | None) -> dict[str, Any]:
    """Keys that join those of a card; none without `--generate`."""
    if serving is None:
        return {}
    return asdict(serving) | {"cache": [asdict(layers) for layers in serving.cache]}


PATIENCE_S, CURVE_PATIENCE_S = 15.0, 60.0


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
    elif spec.serving is not None:
        print_serving(console(), report, chosen(report))
    else:
        print_report(console(), report, chosen(report))
    return 0


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
    return {
        "target": spec.source,
        **_fit(chosen(report)),
        "batch": spec.batch,
        "dtype": spec.dtype,
        "autocast": spec.autocast,
        "train": spec.train,
        "optimizer": spec.optimizer if spec.train else None,
        "checkpointing": spec.checkpointing,
        **({} if spec.serving is None else {"serving": asdict(spec.serving)}),
        "tf32": spec.tf32,
        "channels_last": spec.channels_last,
        "input_copy": spec.input_copy,
        "calibrations": [asdict(item) for item in spec.calibrations],
        "inputs": report.inputs,
        "parameters": report.parameters,
        "flop_per_step": report.flop_per_step,
        "gpus": [_fit(item) for item in report.fits],
        "late": report.late,
        "untried": report.untried,
        "helps": [asdict(item) | {"simulated": True} for item in report.helps],
        "curve": [asdict(item) | {"simulated": True} for item in report.curve],
        "assumptions": list(report.assumptions),
    }


def _fit(item: Fit) -> dict[str, Any]:
    """One answer. What is unknown (it could not be split, so no card has anything to hold) is null, never 0."""
    known = asdict(item)
    serving = known.pop("serving")
    return known | {
        "capacity_bytes": item.capacity_bytes,
        "samples_per_joule": item.samples_per_joule,
        "samples_per_joule_low": item.samples_per_joule_low,
        "samples_per_joule_high": item.samples_per_joule_high,
        **_memory(item, sum(card.reserved_bytes for card in item.cards)),
        "simulated": True,
        "cards": [asdict(card) | _memory(card, card.reserved_bytes) for card in item.cards],
        **serving_document(serving),
    }


def _memory(item: Fit | FitCard, reserved_bytes: int) -> dict[str, Any]:
    """The parts with their sum, at the peak and at rest, and what PyTorch and nvidia-smi would say; null where they are
    unknown: a card that was worked out has a context at least."""
    known = bool(item.bytes.total)
    figures = {
        "bytes": _parts(item.bytes),
        "rest": _parts(item.rest),
        "max_allocated_bytes": item.bytes.from_allocator,
        "reserved_bytes": reserved_bytes,
        "used_bytes": item.used_bytes,
    }
    return {key: value if known else None for key, value in figures.items()}


def _parts(parts: FitBytes) -> dict[str, int]:
    """With their sum; a cache only where text is generated."""
    known = asdict(parts) | {"total": parts.total}
    return known if parts.kv_cache else {key: value for key, value in known.items() if key != "kv_cache"}


# --- what is asked for


def _spec(arguments: argparse.Namespace, findings: TerminalFindings) -> FitSpec:
    """What is asked for; harmless values where something is wrong. The cards of `--virtual` are planned on where no
    `--gpu` is given."""
    findings.check_virtual(arguments.virtual)
    for option, given in (
        ("--optimizer", arguments.optimizer is not None),
        ("--checkpointing", arguments.checkpointing),
    ):
        if given and not arguments.train:
            findings.add(f"{option} says how to train; give --train as well")
    shapes = findings.parsed(arguments.input, parse_input_shapes, ())
    first = shapes[0][0][0] if shapes and shapes[0][0] else 1
    known = CalibrationStore().load()
    wanted = arguments.gpu or filter(None, [arguments.virtual])
    gpus = [findings.checked(partial(_gpu, text, known), "") for text in wanted]
    autocast = arguments.autocast and findings.checked(partial(parse_dtype, arguments.autocast), None)
    return FitSpec(
        source=target(arguments.target, findings),
        folder=current_folder(findings),
        gpus=tuple(dict.fromkeys(gpus)),
        batch=findings.count(arguments.batch, "--batch") or first,
        dtype=findings.parsed(arguments.dtype, parse_model_dtype, None),
        autocast=findings.one_of(autocast, AUTOCAST, "--autocast"),
        train=arguments.train,
        optimizer=findings.one_of(
            arguments.optimizer and arguments.optimizer.casefold(), tuple(OPTIMIZERS), "--optimizer"
        )
        or "adamw",
        checkpointing=arguments.checkpointing,
        tf32=arguments.tf32,
        channels_last=arguments.channels_last,
        input_copy=arguments.input_copy,
        curve=arguments.curve,
        patience_seconds=CURVE_PATIENCE_S if arguments.curve else PATIENCE_S,
        inputs=arguments.input or "",
        calibrations=tuple(each for each in known if not gpus or any(each.name in gpu for gpu in gpus)),
        serving=serving_spec(arguments, findings),
    )


def _gpu(text: str, known: Sequence[Calibration]) -> str:
    """`2x t4` -> `2x Tesla T4`: the names as the profiles have them."""
    profiles = parse_planned(text, known)
    groups = [(name, len(list(same))) for name, same in groupby(profile.name for profile in profiles)]
    return ", ".join(name if number == 1 else f"{number}x {name}" for name, number in groups)


# The planner's report about generating text, as tables. Every time in them is simulated.

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
