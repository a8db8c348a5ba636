"""The planner's speeds against published ones (`resources/published_steps.csv`), and the table of docs/planner.md.

    python tests/benchmarks/published_steps.py [--steps FILE] [--write]

Each model is traced once per batch and way of running it, without values; its simulated speed on the profile of the
row's card is divided by the published one: above 1, the simulation is too fast. The cost model is fitted to these very
rows (`fit_cost_model.py`), so what counts are predictions from fits that have not seen the row's model, or its card.
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

from devexplorer.core.virtual.device.work import Call, Work

if TYPE_CHECKING:
    from devexplorer.core.planner.trace import Trace

DOCS = Path(__file__).parents[2] / "docs" / "planner.md"
LIST = DOCS.with_name("published_steps.csv")
BEGIN, END = "<!-- written by tests/benchmarks/published_steps.py -->\n", "<!-- end -->"

LARGE_BERT = "hidden_size=1024&num_hidden_layers=24&num_attention_heads=16&intermediate_size=4096"
LLAMA = "transformers:llama?num_key_value_heads=8&vocab_size=128256&head_dim={}&tie_word_embeddings=true&"
CLASSES = "head=image-classification"
VGG16 = "vgg16"
"""Not a sample model: the one with batch norm, without it."""

SOURCES: dict[str, str] = {
    r"^resnet18$": "resnet18",
    r"^resnet-?50$": "resnet50",
    r"^resnet34$": f"transformers:resnet?{CLASSES}&layer_type=basic&depths=[3,4,6,3]&hidden_sizes=[64,128,256,512]",
    r"^resnet101$": f"transformers:resnet?{CLASSES}&depths=[3,4,23,3]",
    r"^vgg16$": VGG16,
    r"^vit_tiny_patch16_224$": f"transformers:vit?{CLASSES}&hidden_size=192&num_attention_heads=3"
    "&intermediate_size=768",
    r"^vit_small_patch16_224$": f"transformers:vit?{CLASSES}&hidden_size=384&num_attention_heads=6"
    "&intermediate_size=1536",
    r"^vit[-_]base[-_]patch16[-_]224$": f"transformers:vit?{CLASSES}",
    r"^vit_large_patch16_384$": f"transformers:vit?{CLASSES}&image_size=384&{LARGE_BERT}",
    r"^vit_huge_patch14_224$": f"transformers:vit?{CLASSES}&patch_size=14&hidden_size=1280&num_hidden_layers=32"
    "&num_attention_heads=16&intermediate_size=5120",
    r"^swin_tiny_": f"transformers:swin?{CLASSES}",
    r"^swin_base_": f"transformers:swin?{CLASSES}&embed_dim=128&depths=[2,2,18,2]&num_heads=[4,8,16,32]",
    r"^convnext_tiny$": f"transformers:convnext?{CLASSES}",
    r"^convnext_base$": f"transformers:convnext?{CLASSES}&depths=[3,3,27,3]&hidden_sizes=[128,256,512,1024]",
    r"^convnext[-_]large": f"transformers:convnext?{CLASSES}&depths=[3,3,27,3]&hidden_sizes=[192,384,768,1536]",
    r"^efficientnet_b0$": f"transformers:efficientnet?{CLASSES}&width_coefficient=1.0&depth_coefficient=1.0"
    "&image_size=224&hidden_dim=1280",
    r"^regnety_032$": f"transformers:regnet?{CLASSES}&hidden_sizes=[72,216,576,1512]&depths=[2,5,13,1]&groups_width=24",
    r"^beit-base$": f"transformers:beit?{CLASSES}",
    r"^gpt2-large$": "transformers:gpt2?n_embd=1280&n_layer=36&n_head=20",
    r"^gpt2-124m$": "transformers:gpt2?tie_word_embeddings=false",
    r"^pythia-410m$": "transformers:gpt_neox?hidden_size=1024&num_hidden_layers=24&num_attention_heads=16"
    "&intermediate_size=4096&vocab_size=50304",
    r"^llama-3.2-1b$": LLAMA.format(64) + "hidden_size=2048&num_hidden_layers=16&num_attention_heads=32"
    "&intermediate_size=8192",
    r"^llama-3.2-3b ": LLAMA.format(128) + "hidden_size=3072&num_hidden_layers=28&num_attention_heads=24"
    "&intermediate_size=8192",
}
"""Name of a published model -> what the planner builds in its place: the same layers and sizes. Models of timm are
built from transformers' configurations, whose attention has three products where timm's has one."""

HEADS = {
    "ForQuestionAnswering": "question-answering",
    "ForSequenceClassification": "sequence-classification",
    "LM head": "masked-lm",
    "encoder only": "base",
}
"""What a published BERT says of its head -> ours."""

OPTIMIZERS = {
    "none": "",
    "SGD momentum": "momentum",
    "SGD (no": "sgd",
    "BertAdam": "adamw",
    "FusedAdam": "adamw",
    "AdamW": "adamw",
    "RMSprop": "adamw",
}
"""Beginning of a published optimizer -> the planner's with as much state; empty: forward and backward alone."""

ARCHITECTURES = {"6": "Pascal", "7.0": "Volta", "7.5": "Turing", "8.9": "Ada", "8": "Ampere", "9": "Hopper",
                 "1": "Blackwell"}  # fmt: skip
"""Beginning of a compute capability -> the architecture's name; the first that matches."""
PAGEABLE_RATE = 2.3e9
"""Bytes per second that rows which copy their input from pageable memory, beside the workers of a data loader, were
fitted to."""
NEAR, FAR = 1.25, 1.6
"""The planner's targets: most rows within the first factor, almost all within the second."""


class Published(msgspec.Struct, frozen=True):
    """A row of `resources/published_steps.csv`, as text."""

    model: str
    built_from: str
    task: str
    dtype: str
    autocast: str
    tf32: str
    optimizer: str
    attention: str
    checkpointing: str
    channels_last: str
    compiled: str
    copies_input: str
    batch: str
    input: str
    card: str
    profile: str
    samples_per_s: str
    peak_memory_bytes: str
    memory_kind: str
    bound_by: str
    source: str
    caveat: str

    @property
    def apart(self) -> str:
        """Why it is not among the rows that the model is fitted to and judged by: what bound it, or that it was
        compiled."""
        return self.bound_by or ("compiled" if self.compiled else "")

    @property
    def same_model(self) -> str:
        """The model, however the source spells it."""
        plain = re.sub(r"[-_]", "", self.model.lower())
        return "bertlarge" if plain.startswith("bertlarge") else plain

    @property
    def precision(self) -> str:
        """`float16 autocast`, `TF32`, `float32`, …"""
        if self.autocast:
            return f"{self.autocast} autocast"
        return "TF32" if self.tf32 == "all" else self.dtype

    @property
    def family(self) -> str:
        """`ResNet` for resnet50."""
        names = ("ResNet", "VGG", "ViT", "BEiT", "Swin", "ConvNeXt", "EfficientNet", "RegNet", "BERT", "GPT-2",
                 "Pythia", "Llama")  # fmt: skip
        plain = re.sub(r"\W", "", self.model.lower())
        return next((name for name in names if plain.startswith(re.sub(r"\W", "", name.lower()))), self.model)

    @property
    def computed_in(self) -> tuple[str, str]:
        """dtype of the weights in forward, and of products under autocast.

        NVIDIA's run_squad.py trains with apex O2: the model is float16, float32 copies are the optimizer's.
        """
        squad = "DeepLearningExamples" in self.source and "SQuAD" in self.caveat
        return (
            ("float16", "")
            if self.autocast and (squad or "apex AMP O2" in self.caveat)
            else (self.dtype, self.autocast)
        )

    @property
    def zeroed_gradients(self) -> bool:
        """Its script calls `zero_grad()` of a PyTorch before 2.0, and steps no optimizer."""
        return "ryujaehun" in self.source and self.task == "training"


class TracedStep(msgspec.Struct, frozen=True):
    """What happens in a step, without values."""

    work: list[tuple[Work, int]]
    calls: list[tuple[Call, int]]


class TracedRow(NamedTuple):
    """A published row and its step."""

    row: Published
    work: list[tuple[Work, int]]
    calls: list[tuple[Call, int]]

    @property
    def apart(self) -> str:
        """See `Published.apart`."""
        return self.row.apart


class Compared(NamedTuple):
    """A row and what became of it."""

    row: Published
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


def published() -> list[Published]:
    """Every row, in the file's order."""
    from devexplorer.core.devices.profiles import resource_rows

    return msgspec.convert(resource_rows("published_steps.csv"), list[Published])


REASONS: tuple[tuple[str, Callable[[Published], object]], ...] = (
    ("only memory was published", lambda row: not row.samples_per_s),
    ("the card has no profile", lambda row: not row.profile),
    ("several cards", lambda row: row.bound_by == "several cards"),
    ("a detector, which cannot be installed here", lambda row: re.search("rcnn|retinanet", row.model)),
    ("LoRA adapters are not planned for", lambda row: "LoRA" in row.built_from),
    ("decoding is not planned for", lambda row: "decode" in row.input),
    ("the length or size of the input is not published", lambda row: re.search("not stated|binned", row.input)),
    ("sizes of the model are not published", lambda row: "not on the page" in row.built_from),
    ("accumulation of gradients is not planned for", lambda row: "accumulation" in row.caveat),
    (
        "the way the optimizer runs is not planned for",
        lambda row: (
            re.search("8bit|4bit|8-bit|Adafactor|LAMB", row.optimizer)
            or re.search("offloading|fused into backward", row.caveat)
        ),
    ),
    ("needs timm, which cannot be installed here", lambda row: source_of(row) is None),
)
"""Why a row is not computed; the first that holds."""


def source_of(row: Published) -> str | None:
    """What the planner builds for it; None where it has nothing."""
    if row.model.startswith("bert-"):
        head = next(head for words, head in HEADS.items() if words in row.built_from)
        source = f"transformers:bert?head={head}&max_position_embeddings=1024"
        source += f"&{LARGE_BERT}" if "large" in row.model else ""
    else:
        found = next((source for pattern, source in SOURCES.items() if re.search(pattern, row.model)), None)
        if found is None:
            return None
        if "efficientnet" in found and "pytorch-image-models" in row.source:
            found += "&drop_connect_rate=0.0"  # timm's default
        if not row.attention:
            return found
        source = found
    return f"{source}{'&' if '?' in source else '?'}attn_implementation={row.attention}"


def inputs_of(row: Published) -> str:
    """The planner's `--input`."""
    length = re.match(r"seq (\d+)", row.input)
    if length:
        return f"1x{length[1]}:int64"
    size = re.match(r"3x\d+x\d+", row.input)
    assert size, row.input
    return f"1x{size[0]}"


def reason_of(row: Published) -> str:
    """Why it is not computed; empty where it is."""
    return next((words for words, holds in REASONS if holds(row)), "")


def traced_rows(
    rows: Iterable[Published], file: Path | None = None, progress: Callable[[str], None] = lambda text: None
) -> list[TracedRow]:
    """The steps of those that can be computed. It replaces this process's virtual GPUs. `file`: where the traces are
    kept; what is there already is not traced again."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    known: dict[str, TracedStep] = {}
    if file is not None and file.exists():
        known = msgspec.json.decode(file.read_bytes(), type=dict[str, TracedStep])
    result, count = [], len(known)
    for row in rows:
        if reason_of(row):
            continue
        key = str((source_of(row), inputs_of(row), row.batch, row.task, row.computed_in, row.tf32 == "all",
               row.optimizer, row.checkpointing, row.channels_last, row.zeroed_gradients))  # fmt: skip
        if key not in known:
            progress(f"{len(known)}: {row.model}, batch {row.batch}, {row.precision}, {row.task}")
            trace = _traced(row)
            known[key] = TracedStep(list(trace.work.items()), list(trace.calls.items()))
        result.append(TracedRow(row, known[key].work, known[key].calls))
    if file is not None and len(known) > count:
        file.write_bytes(msgspec.json.encode(known))
    return result


def compare(rows: Sequence[Published], traced: Sequence[TracedRow]) -> list[Compared]:
    """Predict what can be predicted: with the parameters as they are, and with fits that have not seen the model, or
    the card."""
    from fit_cost_model import steps_without

    predicted = {id(each.row): speed_of(each) for each in traced}
    judged = [each for each in traced if not each.apart]
    unseen = {id(each.row): pair for each, pair in zip(judged, zip(*steps_without(judged), strict=True), strict=True)}
    result = []
    for row in rows:
        if id(row) not in predicted:
            result.append(Compared(row, None, reason_of(row)))
            continue
        speed, factor = predicted[id(row)]
        models = [int(row.batch) / seconds for seconds in unseen.get(id(row), ())]
        without_model, without_card = models or (None, None)
        result.append(Compared(row, speed, "", without_model, without_card, factor))
    return result


def _traced(row: Published) -> Trace:
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
        zeroed_gradients=row.zeroed_gradients,
    )
    device_map = DeviceMap((load_profiles()[row.profile],))
    return run_step(subject, config, int(row.batch), device_map)[0]


def pageable_bytes(row: Published) -> int:
    """What the timed step copies to the card, from pageable memory."""
    if not row.copies_input:
        return 0
    elements = np.prod([int(size) for size in inputs_of(row).split("x")[1:]])
    return int(elements) * int(row.batch) * (2 if row.dtype == "float16" else 4)


def speed_of(traced: TracedRow) -> tuple[float, float]:
    """Samples per second, and the factor of its range."""
    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.virtual.device.cost import Roofline, host_seconds, overlapped, spread

    roofline = Roofline(load_profiles()[traced.row.profile])
    device = sum(roofline.seconds(work) * times for work, times in traced.work)
    host = host_seconds(traced.calls)
    seconds = overlapped(device, host) + pageable_bytes(traced.row) / PAGEABLE_RATE
    return int(traced.row.batch) / seconds, spread(device, host)


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
            writer.writerow((row.model, row.card, row.profile, row.precision, row.task, row.batch, row.input,
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


def architecture(row: Published) -> str:
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
        *_groups("model", judged, lambda each: each.row.family, _without_card),
        "",
        "Set apart before any fitting, because something else than the card or eager PyTorch set their speed or batch:",
        "",
        *_groups("reason", [each for each in computed if each.row.apart], lambda each: each.row.apart, _as_fitted),
        "",
        "Not computed:",
        "",
        "| reason | rows |",
        "|---|---|",
        *(f"| {reason} | {sum(each.reason == reason for each in found)} |"
          for reason, _ in REASONS if any(each.reason == reason for each in found)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


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
