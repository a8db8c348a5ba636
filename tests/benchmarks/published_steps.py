"""The planner's speeds against published ones (`resources/published_steps.csv`), and the table of docs/planner.md.

    python tests/benchmarks/published_steps.py [--steps FILE] [--write]

Each model is traced once per batch and way of running it, without values; its simulated speed on the profile of the
row's card is divided by the published one: above 1, the simulation is too fast. The cost model is fitted to these very
rows (`fit_cost_model.py`), so what counts are predictions from fits that have not seen the row's model, or its card.
Rows of decoding are planned as serving, and no fit has seen any.
Every row is listed in docs/published_steps.csv, those that are not computed with their reason. No device is needed; it
takes some minutes. `--write` replaces that list and the table; without it, the table is printed."""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from devexplorer.core.planner.published_steps import (
    OPTIMIZERS,
    REASONS,
    VGG16,
    PublishedStep,
    inputs_of,
    published,
    rates_of,
    reason_of,
    source_of,
    spec_of,
)
from devexplorer.core.virtual.device.cost import HostCall, Work

if TYPE_CHECKING:
    from devexplorer.core.planner.trace import Trace

DOCS = Path(__file__).parents[2] / "docs" / "planner.md"
LIST = DOCS.with_name("published_steps.csv")
BEGIN, END = "<!-- written by tests/benchmarks/published_steps.py -->\n", "<!-- end -->"

ARCHITECTURES = {"6": "Pascal", "7.0": "Volta", "7.5": "Turing", "8.9": "Ada", "8": "Ampere", "9": "Hopper",
                 "1": "Blackwell"}  # fmt: skip
"""Beginning of a compute capability -> the architecture's name; the first that matches."""
NEAR, FAR = 1.25, 1.6
"""The planner's targets: most rows within the first factor, almost all within the second."""


FAMILIES = ("ResNet", "VGG", "ViT", "BEiT", "Swin", "ConvNeXt", "EfficientNet", "RegNet", "BERT", "GPT-2", "Pythia",
            "Llama")  # fmt: skip


def family(row: PublishedStep) -> str:
    """`ResNet` for resnet50."""
    plain = re.sub(r"\W", "", row.model.lower())
    return next((name for name in FAMILIES if plain.startswith(re.sub(r"\W", "", name.lower()))), row.model)


def same_model(row: PublishedStep) -> str:
    """The model, however the source spells it."""
    plain = re.sub(r"[-_]", "", row.model.lower())
    return "bertlarge" if plain.startswith("bertlarge") else plain


def zeroed_gradients(row: PublishedStep) -> bool:
    """Its script calls `zero_grad()` of a PyTorch before 2.0, and steps no optimizer."""
    return "ryujaehun" in row.source and row.task == "training"


class TracedStep(msgspec.Struct, frozen=True):
    """What happens in a step, without values."""

    work: list[tuple[Work, int]]
    calls: list[tuple[HostCall, int]]


class TracedRow(NamedTuple):
    """A published row and its step."""

    row: PublishedStep
    work: list[tuple[Work, int]]
    calls: list[tuple[HostCall, int]]

    @property
    def apart(self) -> str:
        """See `PublishedStep.apart`."""
        return self.row.apart


class Compared(NamedTuple):
    """A row and what became of it."""

    row: PublishedStep
    predicted: float | None
    """Samples per second."""
    reason: str
    """Why it is not computed; else empty."""
    without_model: float | None = None
    """The same from a fit that has seen no row of this model."""
    without_card: float | None = None
    """And none of this card."""
    factor: float = 1.0
    """The stated range is from the prediction over this to the prediction times this."""

    @property
    def ratio(self) -> float:
        """Predicted over published speed."""
        assert self.predicted is not None
        return self.predicted / float(self.row.samples_per_s)


def traced_rows(
    rows: Iterable[PublishedStep], file: Path | None = None, progress: Callable[[str], None] = lambda text: None
) -> list[TracedRow]:
    """The steps of those that can be computed, decoding apart. It replaces this process's virtual GPUs. `file`: where
    the traces are kept; what is there already is not traced again."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    known: dict[str, TracedStep] = {}
    if file is not None and file.exists():
        known = msgspec.json.decode(file.read_bytes(), type=dict[str, TracedStep])
    result, count = [], len(known)
    for row in rows:
        if reason_of(row) or row.decodes:
            continue
        key = str((source_of(row), inputs_of(row), row.batch, row.task, row.computed_in, row.tf32 == "all",
               row.optimizer, row.checkpointing, row.channels_last, zeroed_gradients(row)))  # fmt: skip
        if key not in known:
            progress(f"{len(known)}: {row.model}, batch {row.batch}, {row.precision}, {row.task}")
            trace = _traced(row)
            known[key] = TracedStep(list(trace.work.items()), list(trace.calls.items()))
        result.append(TracedRow(row, known[key].work, known[key].calls))
    if file is not None and len(known) > count:
        file.write_bytes(msgspec.json.encode(known))
    return result


def compare(rows: Sequence[PublishedStep], traced: Sequence[TracedRow]) -> list[Compared]:
    """Predict what can be predicted: with the parameters as they are, and with fits that have not seen the model, or
    the card."""
    from fit_cost_model import steps_without

    predicted = {id(each.row): speed_of(each) for each in traced}
    judged = [each for each in traced if not each.apart]
    unseen = {id(each.row): pair for each, pair in zip(judged, zip(*steps_without(judged), strict=True), strict=True)}
    result = []
    for row in rows:
        if row.decodes and not reason_of(row):
            result.append(decoded(row))
            continue
        if id(row) not in predicted:
            result.append(Compared(row, None, reason_of(row)))
            continue
        speed, factor = predicted[id(row)]
        models = [int(row.batch) / seconds for seconds in unseen.get(id(row), ())]
        without_model, without_card = models or (None, None)
        result.append(Compared(row, speed, "", without_model, without_card, factor))
    return result


def decoded(row: PublishedStep) -> Compared:
    """A row of decoding, planned as serving. It replaces this process's virtual GPUs."""
    from msgspec.structs import replace

    from devexplorer.core.planner.run import warm
    from devexplorer.core.planner.serving.calculator import plan_serving

    warm()
    spec = spec_of(row)
    assert spec is not None
    (fit,) = plan_serving(replace(spec, search=False)).fits
    rate, low, _ = rates_of(fit)
    assert rate is not None
    assert low is not None
    return Compared(row, rate, "", factor=rate / low)


def _traced(row: PublishedStep) -> Trace:
    import torch

    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.planner.run import DeviceMap, StepConfig, run_step
    from devexplorer.core.planner.subject import Subject, subject_of

    source = source_of(row)
    assert source is not None
    if source == VGG16:
        plain = subject_of("vgg16-bn", "", inputs_of(row))
        features = plain.model.features
        assert isinstance(features, torch.nn.Sequential)
        plain.model.features = torch.nn.Sequential(
            *(layer for layer in features if not isinstance(layer, torch.nn.BatchNorm2d))
        )
        subject = Subject(VGG16, plain.model, plain.specs, False)
    else:
        subject = subject_of(source, "", inputs_of(row))
    dtype, autocast = row.computed_in
    config = StepConfig(
        train=row.task == "training",
        optimizer=next((ours for name, ours in OPTIMIZERS.items() if row.optimizer.startswith(name)), "sgd"),
        dtype=getattr(torch, dtype),
        autocast=getattr(torch, autocast) if autocast else None,
        checkpointing=bool(row.checkpointing),
        channels_last=bool(row.channels_last),
        tf32=row.tf32 == "all",
        zeroed_gradients=zeroed_gradients(row),
    )
    device_map = DeviceMap((load_profiles()[row.profile],))
    return run_step(subject, config, int(row.batch), device_map)[0]


def pageable_bytes(row: PublishedStep) -> int:
    """What the timed step copies to the card, from pageable memory."""
    if not row.copies_input:
        return 0
    elements = np.prod([int(size) for size in inputs_of(row).split("x")[1:]])
    return int(elements) * int(row.batch) * (2 if row.dtype == "float16" else 4)


def speed_of(traced: TracedRow) -> tuple[float, float]:
    """Samples per second, and the factor of its range."""
    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.planner.trace import COMPILED, Trace, step_estimate

    row, nothing = traced.row, np.zeros(0, dtype=np.int64)
    trace = Trace(
        nothing,
        nothing,
        {},
        dict(traced.work),
        dict(traced.calls),
        {},
        state_at=0 if row.task == "training" else None,
        input_bytes=pageable_bytes(row),
    )
    step = step_estimate([trace], [load_profiles()[row.profile]], [COMPILED] if row.compiled else [], input_copy=True)
    return int(row.batch) / step.seconds, step.high / step.seconds


COLUMNS = ("model", "card", "profile", "precision", "task", "batch", "input", "bound_by", "compiled", "published",
           "predicted", "ratio", "range_factor", "ratio_without_model", "ratio_without_card", "not_computed",
           "source")  # fmt: skip


def write_list(found: Sequence[Compared]) -> None:
    """Every row with its prediction, or the reason why there is none."""
    with LIST.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for each in found:
            row = each.row
            numbers = ["", "", ""] if each.predicted is None else [
                f"{each.predicted:.4g}", f"{each.ratio:.3f}", f"{each.factor:.3f}"
            ]  # fmt: skip
            numbers += [
                "" if speed is None else f"{speed / float(row.samples_per_s):.3f}"
                for speed in (each.without_model, each.without_card)
            ]
            writer.writerow((row.model, row.card, row.profile, row.precision, row.step, row.batch, row.input,
                             row.bound_by, row.compiled, row.samples_per_s, *numbers, each.reason,
                             row.source))  # fmt: skip


def read_list() -> list[Compared]:
    """What `write_list` wrote, in the order of the published rows."""
    with LIST.open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    found = []
    for row, each in zip(published(), listed, strict=True):
        unseen = [
            float(each[column]) * float(row.samples_per_s) if each[column] else None
            for column in ("ratio_without_model", "ratio_without_card")
        ]
        predicted = float(each["predicted"]) if each["predicted"] else None
        found.append(Compared(row, predicted, each["not_computed"], *unseen, float(each["range_factor"] or 1)))
    return found


def architecture(row: PublishedStep) -> str:
    """Of the row's profile."""
    from devexplorer.core.devices.profiles import load_profiles

    capability = load_profiles()[row.profile].compute_capability
    return next(name for start, name in ARCHITECTURES.items() if capability.startswith(start))


def table(found: Sequence[Compared]) -> str:
    """The part of docs/planner.md."""
    computed = [each for each in found if each.predicted is not None]
    judged = [each for each in computed if not each.row.apart]
    lines = [
        f"{len(computed)} of {len(found)} rows are computed; {len(judged)} of them count, the others are below.",
        "",
        "| fitted to | median ratio | within a factor of 1.25 | within 1.6 | inside the stated range |",
        "|---|---|---|---|---|",
        _summary("every row", judged, lambda each: each.predicted),
        _summary("rows of other models", judged, lambda each: each.without_model),
        _summary("rows of other cards", judged, lambda each: each.without_card),
        "",
        f"Median width of the stated range, high over low: {statistics.median(each.factor**2 for each in judged):.2f}.",
        "",
        "Without its own model, by architecture:",
        "",
        *_groups("architecture of the card", judged, lambda each: architecture(each.row), _without_model),
        "",
        "Without its own card, by model:",
        "",
        *_groups("model", judged, lambda each: family(each.row), _without_card),
        "",
        "Set apart before any fitting, because something else than the card or eager PyTorch set their speed or batch:",
        "",
        *_groups("reason", [each for each in computed if each.row.apart and not each.row.decodes],
                 lambda each: each.row.apart, _as_fitted),
        "",
        "Decoding, planned as [serving](#serving) with eager PyTorch's launches; no fit has seen these rows:",
        "",
        "| model | card | set apart | published tokens/s | predicted | ratio | inside the range |",
        "|---|---|---|---|---|---|---|",
        *(_decoding(each) for each in computed if each.row.decodes),
        "",
        "Not computed:",
        "",
        "| reason | rows |",
        "|---|---|",
        *(f"| {reason} | {sum(each.reason == reason for each in found)} |"
          for reason, _ in REASONS if any(each.reason == reason for each in found)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _decoding(each: Compared) -> str:
    row = each.row
    assert each.predicted is not None
    why = ", ".join(filter(None, (row.bound_by, "compiled with CUDA graphs" if row.compiled else "")))
    low, high = each.predicted / each.factor, each.predicted * each.factor
    return (
        f"| {row.model.removesuffix(' decode')} | {row.card} | {why} | {float(row.samples_per_s):.1f} | {low:.1f} to"
        f" {high:.1f} | {each.ratio:.2f} | {'yes' if 1 / each.factor <= each.ratio <= each.factor else 'no'} |"
    )


Speed = Callable[[Compared], "float | None"]


def _as_fitted(each: Compared) -> float | None:
    return each.predicted


def _without_model(each: Compared) -> float | None:
    return each.without_model


def _without_card(each: Compared) -> float | None:
    return each.without_card


def _ratio(each: Compared, speed: Speed) -> float:
    predicted = speed(each)
    assert predicted is not None
    return predicted / float(each.row.samples_per_s)


def _summary(title: str, found: Sequence[Compared], speed: Speed) -> str:
    ratios = [_ratio(each, speed) for each in found]
    near, far = (sum(1 / limit <= ratio <= limit for ratio in ratios) / len(ratios) for limit in (NEAR, FAR))
    inside = sum(1 / each.factor <= ratio <= each.factor for each, ratio in zip(found, ratios, strict=True))
    shares = [f"{100 * share:.1f} %" for share in (near, far, inside / len(ratios))]
    return f"| {title} | {statistics.median(ratios):.2f} | {' | '.join(shares)} |"


def _groups(title: str, found: Sequence[Compared], of: Callable[[Compared], str], speed: Speed) -> list[str]:
    groups: dict[tuple[str, str, str], list[float]] = {}
    for each in found:
        groups.setdefault((of(each), each.row.precision, each.row.task), []).append(_ratio(each, speed))
    lines = [f"| {title} | precision | step | rows | median | p10 | p90 |", "|---|---|---|---|---|---|---|"]
    for (name, precision, task), ratios in sorted(groups.items()):
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        lines.append(
            f"| {name} | {precision} | {task} | {len(ratios)} | {middle:.2f} | {low:.2f} | {high:.2f} |"
        )  # fmt: skip
    return lines


def main() -> None:
    """Compare and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=Path, help="keep the traces in this file, or read them from it")
    parser.add_argument("--write", action="store_true", help="replace the list and the table")
    given = parser.parse_args()
    rows = published()
    found = compare(rows, traced_rows(rows, given.steps, lambda text: print(text, file=sys.stderr, flush=True)))
    if not given.write:
        print(table(found), end="")
        return
    write_list(found)
    text = DOCS.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{DOCS} has no place for the table"
    DOCS.write_text(before + begin + table(read_list()) + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
