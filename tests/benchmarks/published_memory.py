"""The planner's memory against published figures, and the tables of docs/planner.md: peaks that PyTorch's allocator
reported (`max_allocated` in resources/published_steps.csv), and batches that ran, or ran out of memory
(resources/published_oom.csv).

    python tests/benchmarks/published_memory.py --transformers FOLDER [--write]

What a model keeps for backward is in its code, which transformers has changed since: `FOLDER` has a version of the time
of the published figures, installed with

    pip install --no-deps --target FOLDER transformers==4.42.4 tokenizers==0.19.1 huggingface-hub==0.23.5

Without it the installed version is used, and nothing can be written. No device is needed; it takes some minutes.
`--write` replaces the lists and the tables."""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import published_steps

DOCS = published_steps.DOCS
PEAKS, PAIRS = (DOCS.with_name(f"published_{name}.csv") for name in ("memory", "oom"))
BEGIN, END = "<!-- written by tests/benchmarks/published_memory.py -->\n", "<!-- end of published memory -->"
NEAR, FAR, RIGHT = 0.05, 0.10, 0.85
"""Targets: the median of the peaks' errors, the largest of them, the share of pairs that are told right."""
TABLES = ("bert-base", "gpt2-large", "pythia-410m")
"""The models of transformers' tables."""
LAPTOP = "rtx3080ti-16GB"
"""As the source prints it; we have no profile of that card. For memory its capability, 8.6, and its size are enough."""
LAPTOP_BYTES = 16110 << 20
"""What the driver leaves of 16 GiB on an RTX 3080 Laptop GPU, by a public log of 2024 (torch 2.3): of that year as the
table, and with memory as large. Newer drivers leave 15,993 MiB."""
STAND_IN = "NVIDIA A10"


class Pair(msgspec.Struct, frozen=True):
    """A row of `resources/published_oom.csv`, as text."""

    model: str
    source_model_spec: str
    task: str
    precision: str
    optimizer: str
    gpu: str
    gpu_memory: str
    input: str
    ran_batch: str
    failed_batch: str
    basis: str
    note: str
    source: str

    @property
    def printed(self) -> bool:
        """Whether the source says that it ran out of memory."""
        return self.basis == "printed OOM"


class Peak(NamedTuple):
    """A published peak."""

    row: published_steps.Published
    predicted: int
    """In bytes."""

    @property
    def published(self) -> int:
        """Bytes."""
        return int(self.row.peak_memory_bytes)


class Told(NamedTuple):
    """A pair and whether each batch was said to fit; None: there is none, or it is not computed."""

    pair: Pair
    ran: bool | None
    failed: bool | None
    reason: str
    """Why it is not computed; else empty."""

    @property
    def right(self) -> bool:
        """What ran fits, what did not does not."""
        return self.ran is not False and self.failed is False


REASONS: tuple[tuple[str, Callable[[Pair], object]], ...] = (
    ("LoRA adapters are not planned for", lambda pair: "LoRA" in pair.model),
    ("the size of the input is not published", lambda pair: re.search("not stated|COCO", pair.input)),
    ("the failing batch is an inference", lambda pair: not pair.printed),
)
"""Why a pair is not computed; the first that holds."""


def pairs() -> list[Pair]:
    """Every pair, in the file's order."""
    from devexplorer.core.devices.profiles import resource_rows

    return msgspec.convert(resource_rows("published_oom.csv"), list[Pair])


def peaks() -> list[published_steps.Published]:
    """The rows of transformers' tables, in the file's order."""
    return [row for row in published_steps.published() if row.memory_kind == "max_allocated" and row.model in TABLES]


# --- predictions


def predicted_peak(row: published_steps.Published) -> int:
    """What `max_memory_allocated` would have said, in bytes."""
    from benchmarks import published_training

    profile = row.profile or STAND_IN
    trace = published_training.trained(row.model, row.attention, int(row.batch), _length(row.input), profile)
    return trace.without_end.peak + _workspaces(profile, train=True)


def fits(pair: Pair, batch: int) -> bool:
    """Whether the planner says that this batch has room on the card."""
    from benchmarks import published_training

    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.virtual.device.machine import CONTEXT_BYTES

    profile = _profile(pair)
    if pair.model == "bert-base":
        trace = published_training.encoded(batch, _length(pair.input), profile)
    elif "decode" in pair.input:
        trace = published_training.decoded(pair.model, batch, profile)
    else:
        trace = published_training.trained(pair.model, "eager", batch, _length(pair.input), profile)
    taken = CONTEXT_BYTES + _workspaces(profile, train=pair.task == "train")
    capacity = LAPTOP_BYTES if LAPTOP in pair.gpu else load_profiles()[profile].usable_bytes
    return trace.replay(capacity, taken).fits


def _workspaces(profile: str, *, train: bool) -> int:
    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.planner.trace import library_bytes

    capability = load_profiles()[profile].compute_capability
    return library_bytes(capability, products=True, convolutions=False, train=train)


def _profile(pair: Pair) -> str:
    from devexplorer.core.devices.profiles import load_profiles

    if LAPTOP in pair.gpu:
        return STAND_IN
    name = pair.gpu.removeprefix("NVIDIA ").replace("A100-40GB", "A100-SXM4-40GB")
    return next(profile for profile in load_profiles() if profile.removeprefix("NVIDIA ") == name)


def _length(text: str) -> int:
    return int(text.removeprefix("seq "))


def predict() -> tuple[list[Peak], list[Told]]:
    """All that can be computed, with the transformers that is imported."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from devexplorer.core.planner.run import warm

    warm()
    found, told = [], []
    for row in peaks():
        _say(f"{row.model} {row.attention}, batch {row.batch}, {row.input}")
        found.append(Peak(row, predicted_peak(row)))
    for pair in pairs():
        reason = next((words for words, holds in REASONS if holds(pair)), "")
        if reason:
            told.append(Told(pair, None, None, reason))
            continue
        _say(f"{pair.model}, {pair.input}, batches {pair.ran_batch or '-'} and {pair.failed_batch}")
        ran, failed = (fits(pair, int(batch)) if batch else None for batch in (pair.ran_batch, pair.failed_batch))
        told.append(Told(pair, ran, failed, ""))
    return found, told


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _use_transformers(folder: str) -> None:
    """Import transformers from there. Its check of the versions of other packages is of its time, too."""
    sys.path.insert(0, folder)
    check = types.ModuleType("transformers.dependency_versions_check")
    check.dep_version_check = lambda *_: None  # type: ignore[attr-defined]
    sys.modules[check.__name__] = check


# --- lists and tables


def read_peaks() -> list[Peak]:
    """What `write_lists` wrote."""
    with PEAKS.open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    return [Peak(row, int(each["predicted_bytes"])) for row, each in zip(peaks(), listed, strict=True)]


def read_pairs() -> list[Told]:
    """What `write_lists` wrote."""
    words = {"yes": True, "no": False, "": None}
    with PAIRS.open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    return [
        Told(pair, words[found["ran_fits"]], words[found["failed_fits"]], found["not_computed"])
        for pair, found in zip(pairs(), listed, strict=True)
    ]


def write_lists(found: Sequence[Peak], told: Sequence[Told]) -> None:
    """Every row with its predictions, or the reason why there is none."""
    with PEAKS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "attention", "batch", "input", "published_bytes", "predicted_bytes", "source"))
        for peak in found:
            row = peak.row
            writer.writerow(
                (row.model, row.attention, row.batch, row.input, peak.published, peak.predicted, row.source)
            )
    words = {True: "yes", False: "no", None: ""}
    with PAIRS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "card", "precision", "task", "input", "ran_batch", "failed_batch", "printed",
                         "ran_fits", "failed_fits", "not_computed", "source"))  # fmt: skip
        for pair, ran, failed, reason in told:
            writer.writerow((pair.model, pair.gpu, pair.precision, pair.task, pair.input, pair.ran_batch,
                             pair.failed_batch, words[pair.printed], words[ran], words[failed], reason,
                             pair.source))  # fmt: skip


def errors(found: Sequence[Peak]) -> list[float]:
    """Of the peaks, relative to what was published."""
    return [abs(peak.predicted - peak.published) / peak.published for peak in found]


def share_right(found: Sequence[Told]) -> float:
    """Of the pairs that are computed and no inference."""
    judged = [told for told in found if told.pair.printed and not told.reason]
    return sum(told.right for told in judged) / len(judged)


def table(found: Sequence[Peak], told: Sequence[Told]) -> str:
    """Both tables, as in the docs."""
    off = errors(found)
    lines = [
        f"{len(off)} peaks: median error {100 * statistics.median(off):.1f} %, largest {100 * max(off):.1f} %.",
        "",
        "| model | attention | batch | input | published MB | predicted MB | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for peak in found:
        row = peak.row
        lines.append(
            f"| {row.model} | {row.attention} | {row.batch} | {row.input} | {peak.published / 1e6:,.1f}"
            f" | {peak.predicted / 1e6:,.1f} | {peak.predicted / peak.published:.3f} |"
        )
    printed = [each for each in told if each.pair.printed]
    judged = [each for each in printed if not each.reason]
    lines += [
        "",
        f"{len(judged)} of {len(printed)} printed pairs are computed; {sum(each.right for each in judged)} are told"
        f" right ({100 * share_right(told):.0f} %; wanted: {100 * RIGHT:.0f} %)."
        f" The other {len(told) - len(printed)} pairs are inferences.",
        "",
        "| model | card | input | ran | fits | ran out | fits | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    words = {True: "yes", False: "no", None: "—"}
    for each in printed:
        pair = each.pair
        verdict = each.reason or ("right" if each.right else "**wrong**")
        lines.append(
            f"| {pair.model} | {pair.gpu} | {pair.input} | {pair.ran_batch or '—'} | {words[each.ran]}"
            f" | {pair.failed_batch} | {words[each.failed]} | {verdict} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Predict and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", metavar="FOLDER", help="a version of the time of the published figures")
    parser.add_argument("--write", action="store_true", help="replace the lists and the tables")
    given = parser.parse_args()
    if given.transformers:
        _use_transformers(given.transformers)
    elif given.write:
        parser.error("--write needs --transformers: today's models keep other tensors")
    found, told = predict()
    if not given.write:
        print(table(found, told), end="")
        return
    write_lists(found, told)
    text = DOCS.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{DOCS} has no place for the tables"
    DOCS.write_text(before + begin + table(read_peaks(), read_pairs()) + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
