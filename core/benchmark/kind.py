"""What a kind of benchmark is: everything the engine, the command line, the history and the window ask about one; what
the kind of a benchmark says of its records; results as the JSON documents of the command line, the clipboard and
exports, and back.

A kind is stateless, any thread may ask it; no torch is imported before a run is checked or made. To add one, write a
feature whose `FEATURE` names its `BenchmarkKind`, and a page in the window, which the kind names.

`Entry` describes what is in an entry of a document. A sweep and a bandwidth run have an entry for each shape and each
copy; entries that follow each other and belong together are read as one run. What a document does not hold (what was
asked for but not measured) is not made up.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import msgspec

from devexplorer.core.base import MISSING, BadInput, Clock, Findings, number_text
from devexplorer.core.benchmark.published import best
from devexplorer.core.benchmark.statistics import noise_of_spread
from devexplorer.core.feature import benchmark_kinds
from devexplorer.core.records import BenchPoint, BenchResult, BenchSpec, Conditions, DeviceInfo, Spread
from devexplorer.core.records.base import plain

if TYPE_CHECKING:
    from torch import nn

    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry


# --- entries of the JSON documents of `bench --json`: one description of the fields, for writing and for reading
#
# A field of an entry has the name of a field of the result, of its specification or of the part that it describes, so
# that most of them are taken over by name. Keys may be added; none changes its meaning. What is unknown is null, and
# the key is there all the same.

T = TypeVar("T", bound=msgspec.Struct)
E = TypeVar("E", bound="Entry")
Document = dict[str, Any]
Shape = tuple[int, int, int]


class Entry(msgspec.Struct, kw_only=True):
    """Fields of every entry."""

    device: str
    simulated: bool = False
    iterations: int = 0
    seconds: float | None = None
    verified: bool | msgspec.UnsetType | None = None
    stopped: bool = False
    failure: str | None = None
    threads: int | None = None
    torch: str | None = None
    conditions: Conditions | None = None


def write(entry: type[E], *sources: object, **fields: Any) -> E:
    """An entry with these fields, the others from the first of the sources that has them."""
    values = {
        name: next(getattr(source, name) for source in sources if hasattr(source, name))
        for name in entry.__struct_fields__
        if name not in fields and any(hasattr(source, name) for source in sources)
    }
    return entry(**values | fields)


def read(entry: Entry, record: type[T], *, without: Sequence[str] = (), **fields: Any) -> T:
    """A record with these fields, the others of that name from the entry, `without` some; null leaves the record's
    default."""
    optional = {field.name for field in msgspec.structs.fields(record) if not field.required}
    values = {
        name: value
        for name in record.__struct_fields__
        if name not in without
        and hasattr(entry, name)
        and ((value := getattr(entry, name)) is not None or name not in optional)
    }
    return record(**values | fields)


def read_spec(entry: Entry, spec: type[T], **fields: Any) -> T:
    """A specification; seconds and iterations of an entry are what was measured, not what was asked for."""
    return read(entry, spec, without=("seconds", "iterations"), **fields)


def read_result(entries: Sequence[Entry], result: type[T], **fields: Any) -> T:
    """A result with these fields and what every result has, over all entries of the run."""
    first = entries[0]
    compared = [entry.verified for entry in entries if entry.verified is not None]
    shared = {
        "run": 0,
        "seconds": sum(entry.seconds or 0.0 for entry in entries),
        "iterations": sum(entry.iterations for entry in entries),
        "verified": all(compared) if compared else None,
        "torch_version": first.torch or "",
    }
    return read(first, result, **shared | fields)


def published_tflops(conditions: Conditions | None, dtype: str) -> float | None:
    """The best published figure for the card and dtype."""
    row = None if conditions is None else best(conditions.device_name, dtype)
    return None if row is None else row.peak_burst


# --- the figures of a run in one form, whatever kind it was: comparisons, exports and reports read these

UNITS = {
    "tflops": "TFLOP/s",
    "gb_per_s": "GB/s",
    "samples_per_s": "samples/s",
    "seconds": "s",
    "speedup": "times",
    "mib": "MiB",
}
"""Quantity -> unit."""


class Figure(NamedTuple):
    """One quantity that a run measured."""

    key: tuple[str, ...]
    """What was measured; equal keys of two runs are the same thing."""
    quantity: str
    """A key of `UNITS`."""
    spread: Spread
    samples: tuple[float, ...] = ()
    """In the order of measurement; empty where only the spread is known."""
    noise: float | None = None
    """Interquartile range over median; None as well where it is simulated: what is computed has no noise."""
    simulated: bool = False
    place: float | None = None
    """Its position on the axis of a plot: the cube root of M·N·K, bytes of a copy."""
    verified: bool | None = None
    """Whether the values behind this very figure were compared and right; None: not compared."""
    iterations: int = 0
    seconds: float | None = None
    """How long this very figure was measured; None: unknown."""
    whole: bool = False
    """The others are parts of it: whether it differs is judged by itself."""

    @property
    def label(self) -> str:
        """What was measured, as one text; empty where the run measured one thing only."""
        return ", ".join(part for part in self.key if part)

    @property
    def unit(self) -> str:
        """Unit of the number."""
        return UNITS[self.quantity]

    @property
    def is_computed(self) -> bool:
        """Simulated and without noise: samples say no more than the median. Steps of a script differ."""
        return self.simulated and self.noise is None


class Headline(NamedTuple):
    """The one figure that a run is known by."""

    spread: Spread | None
    unit: str
    noise: float | None = None
    datasheet: float | None = None
    """TFLOP/s of the datasheet, where the figure is comparable with it."""
    is_sustained: bool | None = None
    """Whether it compares with a published sustained figure (True) or burst figure (False); None: with neither."""


def figure(
    key: tuple[str, ...], quantity: str, known: Spread, measured: Any, simulated: bool, place: float | None = None
) -> Figure:
    """A figure of which only the spread is known; `measured` is the result, or the part of it, that it belongs to."""
    noise = None if simulated else noise_of_spread(known)
    how = measured.verified, measured.iterations, measured.seconds
    return Figure(key, quantity, known, (), noise, simulated, place, *how)


def simulated_text(known: Sequence[Figure]) -> str:
    """What to write beside the device of a simulated run of these figures. Of copies between a virtual GPU and devices
    that exist some can be real."""
    marks = {figure.simulated for figure in known}
    if len(marks) > 1:
        return "partly simulated"
    return "" if marks == {False} else "simulated"


def exact(value: float) -> Spread:
    """A quantity that was measured once."""
    return Spread(median=value, p20=value, p80=value)


# --- the kind

S = TypeVar("S", bound=Any)
"""The specification of a kind."""
R = TypeVar("R", bound=Any)
"""Its result."""


class Option(NamedTuple):
    """One option of `bench KIND`. There are no defaults: the kind fills in what was not given."""

    flag: str
    help: str
    metavar: str | None = None
    """None: it takes no value."""
    dest: str = ""
    several: bool = False
    """Whether it takes several values, and may be given again."""

    @property
    def name(self) -> str:
        """Of the argument in the namespace."""
        return self.dest or self.flag.removeprefix("--").replace("-", "_")

    def add(self, parser: Any, text: str = "") -> None:
        """Add it to a parser; `text` replaces its help."""
        text = text or self.help
        if self.metavar is None:
            parser.add_argument(self.flag, dest=self.name, action="store_true", default=None, help=text)
        elif self.several:
            parser.add_argument(self.flag, dest=self.name, metavar=self.metavar, action="append", nargs="+", help=text)
        else:
            parser.add_argument(self.flag, dest=self.name, metavar=self.metavar, help=text)


class RunInputs(NamedTuple):
    """What a runner is made of, beside its specification."""

    run: int
    registry: DeviceRegistry
    stop: threading.Event
    clock: Clock
    resolve: Callable[[str], nn.Module]
    """A model by its name, for the benchmark to do with as it likes. Only on the jobs thread."""


class BenchmarkKind(Generic[S, R]):
    """One kind of benchmark. `name` is the tag of its records."""

    spec: type[S]
    result: type[R]
    entry: type[Entry]
    """An entry of its JSON documents."""
    part: ClassVar[type[msgspec.Struct] | None] = None
    """A part of the result that a point says is finished."""
    page: ClassVar[str] = ""
    """Its page of the Benchmark tab, `package.module:class`; empty: its runs are kept and not started here."""
    title: ClassVar[str]
    """Heading in reports: `Matrix products`."""
    about: ClassVar[str]
    """What it does, for the command line: `measure matrix products`."""
    meaning: ClassVar[str]
    """The same for the window's tooltip."""
    brief: ClassVar[str] = ""
    """What it is called in the window; empty: the name."""
    running: ClassVar[str] = ""
    """Stands before the devices in the status bar while it runs; empty: the name."""
    options: ClassVar[tuple[Option, ...]] = ()
    takes_target: ClassVar[bool] = False
    """Whether the command line takes a model after the name."""
    columns: ClassVar[tuple[str, ...]]
    """Of the table on a terminal; `>` before numbers."""
    one_table: ClassVar[bool] = False
    """Whether all runs share one table on a terminal."""
    across: ClassVar[str] = ""
    """What `Figure.place` is, where a report draws curves; empty: it draws bars."""
    measures_throughput: ClassVar[bool] = False
    """Whether every point has TFLOP/s, which the plot of throughput shows."""
    rate_name: ClassVar[str] = "median"
    """What the throughput of a finished run is."""
    datasheet_note: ClassVar[str] = ""
    """How its figures are compared with the datasheet, where that has to be said."""
    wrong_values: ClassVar[str] = "they do not agree with a product in higher precision"
    not_compared: ClassVar[frozenset[str]] = frozenset({"device"})
    """Fields of the specification that are not listed as differences between runs."""

    @property
    def name(self) -> str:
        """`matmul`, `sweep`, …"""
        return cast(str, self.spec.__struct_config__.tag)

    # --- asking for a run

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[S]:
        """What a command line asks for, one specification per run; harmless values where something is wrong."""
        raise NotImplementedError

    def on_devices(self, spec: S, devices: Sequence[DeviceInfo]) -> S:
        """With devices filled in where none was named and several are needed."""
        return spec

    def devices(self, spec: S) -> tuple[str, ...]:
        """Every device that the run keeps busy, each once."""
        return (spec.device,)

    def with_inputs(self, spec: S, inputs_of: Callable[[str], str]) -> S:
        """With the shapes that were given earlier for a model."""
        return spec

    def canonical(self, spec: S) -> S:
        """With a model's canonical name. Raises `BadInput`."""
        return spec

    def runs_own_code(self, spec: S) -> bool:
        """Whether it runs code of the user's."""
        return False

    # --- running

    def check(self, spec: S, registry: DeviceRegistry) -> S:
        """The specification as it can run, with canonical names of devices. Raises `BadInput` with everything that is
        wrong; allocates nothing."""
        raise NotImplementedError

    def runner(self, spec: S, inputs: RunInputs) -> Runner[Any]:
        """The run of a checked specification. On the jobs thread."""
        raise NotImplementedError

    def float32_mode(self, spec: S) -> str | None:
        """`float32` or `tf32`, where the run needs one of the two meanings of float32 products: a setting of the
        process."""
        dtype = self.dtype(spec)
        return dtype if dtype in ("float32", "tf32") else None

    def datasheet_tflops(self, spec: S, info: DeviceInfo) -> float | None:
        """The device's datasheet figure, where the run's throughput can be compared with it."""
        return None

    def duration(self, spec: S) -> float | None:
        """Measured seconds, where the specification says so."""
        return None

    def ends(self, spec: S) -> bool:
        """Whether the run ends by itself."""
        return True

    # --- in words

    def dtype(self, spec: S) -> str | None:
        """The dtype of the run; None where it has none or keeps that of a model."""
        return getattr(spec, "dtype", None)

    def caption(self, spec: S) -> str:
        """What is measured, in a few words that begin with the name: `matmul 4096×4096×4096 bfloat16 burst`."""
        raise NotImplementedError

    def choice_text(self, spec: S, where: str) -> str:
        """A run in a list of runs of its kind; `where` names its devices."""
        return f"{self.name} on {where}"

    def curve_texts(self, spec: S) -> tuple[str, ...]:
        """What the curve of its throughput is, the longest text first."""
        return (self.name,)

    # --- what was measured

    def figures(self, result: R) -> tuple[Figure, ...]:
        """Everything that the run measured, in its order; what has a reason instead of a figure is left out."""
        raise NotImplementedError

    def headline(self, result: R) -> Headline:
        """The one figure that a run is known by."""
        raise NotImplementedError

    def datasheet(self, result: R, conditions: Conditions, of: Figure | None = None) -> float | None:
        """What the datasheet of the card says of a figure, or of the headline, in its unit; None: nothing."""
        return self.headline(result).datasheet if of is None or of.quantity == "tflops" else None

    def subject(self, result: R) -> str:
        """What was measured, without kind and dtype: the shape, the pair, the model."""
        raise NotImplementedError

    def subject_tip(self, result: R) -> str:
        """More about it."""
        return self.subject(result)

    def remark(self, result: R) -> str:
        """What is said of it in a list of runs; empty: nothing."""
        return ""

    def throughput(self, result: R) -> Spread | None:
        """The TFLOP/s of a finished run."""
        return None

    def rows(self, result: R, conditions: Conditions) -> list[tuple[str, ...]]:
        """Rows of the table on a terminal, as `columns`."""
        raise NotImplementedError

    def summary(self, result: R, conditions: Conditions) -> str:
        """A line below the table; empty: none."""
        return ""

    def is_curve(self, result: R) -> bool:
        """Whether a report joins its points by a line."""
        return True

    # --- documents and comparisons

    def entries(self, result: R, conditions: Conditions | None) -> list[Entry]:
        """The entries of `"runs"` in a JSON document, without what all kinds share."""
        raise NotImplementedError

    def read(self, entries: Sequence[Any]) -> R:
        """A result of the entries of one run, the reverse of `entries`."""
        raise NotImplementedError

    def belong_together(self, first: Any, other: Any) -> bool:
        """Whether two entries that follow each other are parts of one run."""
        return False

    def check_imported(self, result: R) -> R:
        """An imported result whose numbers are possible. Raises `BadInput`."""
        return result

    def incomparable(self, results: Sequence[R]) -> str:
        """Why runs of this kind cannot be compared; empty: they can."""
        return ""

    def roles(self, result: R) -> dict[str, str]:
        """Device -> what it is in the run, where figures of different devices are compared by their roles."""
        return {}


# --- texts of tables on a terminal


def spread_texts(spread: Spread | None) -> tuple[str, str, str]:
    """Median, p20 and p80."""
    if spread is None:
        return (MISSING,) * 3
    return number_text(spread.median), number_text(spread.p20), number_text(spread.p80)


def verified_text(verified: bool | None, wrong: str) -> str:
    """Whether the values were right; `wrong` where they were not."""
    if verified is None:
        return MISSING
    return "yes" if verified else wrong


def joined(*texts: str, simulated: bool = False, stopped: bool = False) -> str:
    """Remarks about a row, separated by commas."""
    return ", ".join(filter(None, ("simulated" if simulated else "", *texts, "stopped" if stopped else "")))


def point_rate(point: BenchPoint) -> tuple[float, str] | None:
    """The rate of one block with its unit; None where it has none."""
    rates = ((point.tflops, "TFLOP/s"), (point.gb_per_s, "GB/s"), (point.samples_per_s, "samples/s"))
    return next(((value, unit) for value, unit in rates if value is not None), None)


# --- arguments that several kinds take

DEVICE = Option("--device", "devices to measure (default cpu)", "D", several=True)
ALL_DEVICES = DEVICE._replace(help="devices to measure (default all)")
DTYPE = Option("--dtype", "as torch writes it, or fp16, bf16, tf32, … (default float32)", "T")


def named_devices(arguments: argparse.Namespace, default: tuple[str, ...] = ("cpu",)) -> tuple[str, ...]:
    """The devices of `--device`, each once."""
    return flat(arguments.device) or default


def flat(groups: list[list[str]] | None) -> tuple[str, ...]:
    """The values of an option that takes several, each once."""
    return tuple(dict.fromkeys(name for group in groups or () for name in group))


def kind_of(record: BenchSpec | BenchResult) -> BenchmarkKind[Any, Any]:
    """The kind of a specification or a result."""
    return benchmark_kinds()[kind_name(record)]


def kind_name(record: BenchSpec | BenchResult) -> str:
    """`matmul`, `sweep`, …"""
    return str(type(record).__struct_config__.tag)


def devices_of(spec: BenchSpec) -> tuple[str, ...]:
    """Every device that the run keeps busy, each once."""
    return kind_of(spec).devices(spec)


def figures(result: BenchResult) -> tuple[Figure, ...]:
    """Everything that the run measured, in its order; what has a reason instead of a figure is left out."""
    return kind_of(result).figures(result)


def dtype(spec: BenchSpec) -> str | None:
    """The dtype of the run; None where it has none (copies) or keeps that of the model."""
    return kind_of(spec).dtype(spec)


def title(spec: BenchSpec) -> str:
    """What was measured, in a few words: `matmul 4096×4096×4096 bfloat16 burst`."""
    return kind_of(spec).caption(spec)


def run_documents(result: BenchResult, conditions: Conditions | None = None) -> list[Document]:
    """The entries of `"runs"` of any result: one for each shape of a sweep and each copy of a bandwidth run, else
    one."""
    shared = {"torch": result.torch_version or None, "conditions": plain(conditions)}
    return [
        {name: value for name, value in plain(entry).items() if value is not msgspec.UNSET} | shared
        for entry in kind_of(result).entries(result, conditions)
    ]


def benchmark_document(results: Sequence[tuple[BenchResult, Conditions | None]]) -> Document:
    """The document without its schema for results of one kind: `benchmark` and `runs`."""
    names = {kind_name(result) for result, _ in results}
    if len(names) != 1:
        raise ValueError(f"a document holds results of one kind, not of {sorted(names) or 'none'}")
    return {
        "benchmark": names.pop(),
        "runs": [run for result, conditions in results for run in run_documents(result, conditions)],
    }


def read_results(
    benchmark: str, runs: Sequence[dict[str, Any]], left_out: list[str]
) -> Iterator[tuple[int, BenchResult, Conditions | None]]:
    """Every result with its conditions, after the number, from 1 on, of its first entry. Entries of kinds that are not
    here are added to `left_out` by their kind. Raises `BadInput` that names the entry that is wrong."""
    kinds = benchmark_kinds()
    entries: list[tuple[int, str, Entry]] = []
    for number, content in enumerate(runs, 1):
        name = content.get("benchmark", benchmark)
        if not isinstance(name, str) or not name:
            raise BadInput(f"run {number}: it does not say which benchmark it is")
        if name not in kinds:
            left_out.append(name[:40])
            continue
        try:
            entries.append((number, name, msgspec.convert(content, type=kinds[name].entry)))
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(f"run {number}: {error}") from None
    start = 0
    while start < len(entries):
        number, name, first = entries[start]
        stop = start + 1
        while stop < len(entries) and entries[stop][1] == name and kinds[name].belong_together(first, entries[stop][2]):
            stop += 1
        yield number, kinds[name].read([entry for _, _, entry in entries[start:stop]]), first.conditions
        start = stop
