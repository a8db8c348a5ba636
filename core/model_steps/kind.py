"""The kind `model`: steps of a model. Any thread; no torch until a run is checked."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import (
    AUTOCAST,
    OPTIMIZERS,
    Findings,
    bytes_text,
    number_text,
    parse_dtype,
    parse_input_shapes,
    seconds_text,
)
from devexplorer.core.benchmark.kind import (
    DEVICE,
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    figure,
    joined,
    named_devices,
    read_result,
    read_spec,
    spread_texts,
    write,
)
from devexplorer.core.benchmark.statistics import noise_of_spread
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.records import BaseResult, BaseSpec, Conditions, Spread

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry


class ModelSpec(BaseSpec, tag="model"):
    """Steps of a model: forward, or forward, backward and optimizer."""

    target: str
    """An object of the workspace, a sample model, or `OpenModel.source`; the user's own code only where the engine may
    run it."""
    device: str
    batch: int = 8
    train: bool = False
    optimizer: str = "sgd"
    """`sgd`, `adam` or `adamw`; only with `train`."""
    autocast: str | None = None
    """`float16` or `bfloat16`; None: as the parameters are."""
    compiled: bool = False
    """Through `torch.compile`."""
    seconds: float = 5.0
    inputs: str = ""
    """Shapes of what forward gets, as `OpenModel.inputs`, each with the batch first; empty: known, or guessed."""


class ModelResult(BaseResult, tag="model"):
    """A finished (or stopped) run of model steps."""

    spec: ModelSpec
    samples_per_s: Spread
    step_seconds: Spread
    flop_per_step: int | None = None
    """Counted by torch.utils.flop_counter; None where it cannot count."""
    tflops: Spread | None = None
    peak_memory_bytes: int | None = None
    """The most that was allocated on the device during the steps; None where it is not counted."""


class ModelEntry(Entry, kw_only=True):
    """A run."""

    verified: bool | msgspec.UnsetType | None = None
    """Not written: nothing is compared."""
    target: str
    inputs: str | None = None
    batch: int
    train: bool = False
    optimizer: str | None = None
    autocast: str | None = None
    compiled: bool = False
    samples_per_s: Spread
    step_seconds: Spread
    tflops: Spread | None = None
    flop_per_step: int | None = None
    peak_memory_bytes: int | None = None


class ModelKind(BenchmarkKind[ModelSpec, ModelResult]):
    """Steps of a model on one device."""

    spec, result, entry = ModelSpec, ModelResult, ModelEntry
    page = "devexplorer.gui.model_steps.page:ModelPage"
    title, about = "Model steps", "measure the steps of a model"
    meaning = "Steps of a model: samples per second"
    running = "model steps"
    columns = (
        "device", "model", "step", ">samples/s median", ">p20", ">p80", ">one step", ">TFLOP/s", ">peak memory", "",
    )  # fmt: skip
    one_table = takes_target = measures_throughput = True
    options = (
        DEVICE,
        Option("--seconds", "how long to measure (default 5)", "S"),
        Option("--batch-size", "samples per step (default 8)", "N"),
        Option("--input", "what forward gets: 4x12, 8x16:int64, several with commas (default: inferred)", "SHAPES"),
        Option("--train", "forward, backward and optimizer step; otherwise forward"),
        Option("--optimizer", "with --train: sgd, momentum, adam or adamw (default sgd)", "NAME"),
        Option("--autocast", "float16 or bfloat16", "T"),
        Option("--compile", "through torch.compile"),
    )

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[ModelSpec]:
        if arguments.optimizer is not None and not arguments.train:
            findings.add("--optimizer says how to train; give --train as well")
        autocast = arguments.autocast and findings.checked(partial(parse_dtype, arguments.autocast))
        shapes = findings.checked(partial(parse_input_shapes, arguments.input), ()) if arguments.input else ()
        batch = shapes[0][0][0] if shapes and shapes[0][0] else 8
        optimizer = arguments.optimizer and arguments.optimizer.casefold()
        spec = ModelSpec(
            target=arguments.target or "mlp",
            device="cpu",
            batch=findings.count(arguments.batch_size, "--batch-size") or batch,
            train=bool(arguments.train),
            optimizer=findings.one_of(optimizer, tuple(OPTIMIZERS), "--optimizer") or "sgd",
            autocast=findings.one_of(autocast, AUTOCAST, "--autocast"),
            compiled=bool(arguments.compile),
            seconds=findings.seconds(arguments.seconds, "--seconds") or 5.0,
            inputs=arguments.input if shapes else "",
        )
        return [replace(spec, device=name) for name in named_devices(arguments)]

    def with_inputs(self, spec: ModelSpec, inputs_of: Callable[[str], str]) -> ModelSpec:
        return spec if spec.inputs else replace(spec, inputs=inputs_of(spec.target))

    def canonical(self, spec: ModelSpec) -> ModelSpec:
        if self.runs_own_code(spec):
            parse(spec.target)  # a source is examined when it is built
            return spec
        from devexplorer.core.models import builder_of  # torch

        return replace(spec, target=builder_of(spec.target, "").title)

    def runs_own_code(self, spec: ModelSpec) -> bool:
        return ":" in spec.target

    def check(self, spec: ModelSpec, registry: DeviceRegistry) -> ModelSpec:
        from devexplorer.core.model_steps.run import check_model  # torch

        return check_model(spec, registry)

    def runner(self, spec: ModelSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.model_steps.run import ModelRun  # torch

        model = inputs.resolve(spec.target)  # now: the bench thread must not read the workspace
        return ModelRun(spec, inputs.run, inputs.registry, inputs.stop, inputs.clock, lambda _name: model)

    def float32_mode(self, spec: ModelSpec) -> str | None:
        return "float32"  # its parameters can be

    def duration(self, spec: ModelSpec) -> float | None:
        return spec.seconds

    def dtype(self, spec: ModelSpec) -> str | None:
        return spec.autocast

    def caption(self, spec: ModelSpec) -> str:
        step = f"training with {spec.optimizer}" if spec.train else "forward"
        more = (f" autocast {spec.autocast}" if spec.autocast else "") + (" compiled" if spec.compiled else "")
        inputs = f" of {spec.inputs}" if spec.inputs else ""
        return f"model {spec.target} {step}, batch {spec.batch}{inputs}{more}"

    def figures(self, result: ModelResult) -> tuple[Figure, ...]:
        known = (("samples_per_s", result.samples_per_s), ("tflops", result.tflops))
        return tuple(
            figure((), quantity, spread, result, result.simulated) for quantity, spread in known if spread is not None
        )

    def headline(self, result: ModelResult) -> Headline:
        rate = result.samples_per_s
        return Headline(rate, UNITS["samples_per_s"], None if result.simulated else noise_of_spread(rate))

    def subject(self, result: ModelResult) -> str:
        return f"{result.spec.target}, {step_text(result.spec)}"

    def throughput(self, result: ModelResult) -> Spread | None:
        return result.tflops

    def rows(self, result: ModelResult, conditions: Conditions) -> list[tuple[str, ...]]:
        spec = result.spec
        step = f"training with {spec.optimizer}" if spec.train else "forward"
        how = joined(step, f"batch {spec.batch}", spec.autocast or "", "compiled" if spec.compiled else "")
        return [
            (
                spec.device, spec.target, how, *spread_texts(result.samples_per_s),
                seconds_text(result.step_seconds.median),
                number_text(result.tflops.median if result.tflops is not None else None),
                bytes_text(result.peak_memory_bytes), joined(simulated=result.simulated, stopped=result.stopped),
            )
        ]  # fmt: skip

    def entries(self, result: ModelResult, conditions: Conditions | None) -> list[Entry]:
        spec = result.spec
        optimizer = spec.optimizer if spec.train else None
        inputs = spec.inputs or None
        return [write(ModelEntry, result, spec, inputs=inputs, optimizer=optimizer, verified=msgspec.UNSET)]

    def read(self, entries: Sequence[Any]) -> ModelResult:
        (entry,) = entries
        return read_result(entries, ModelResult, spec=read_spec(entry, ModelSpec))

    def incomparable(self, results: Sequence[ModelResult]) -> str:
        models = dict.fromkeys(result.spec.target for result in results)
        if len(models) == 1:
            return ""
        return f"{' and '.join(models)} are different models, so their samples per second cannot be compared"


def step_text(spec: ModelSpec) -> str:
    """`train with adamw, batch 8, autocast bfloat16, compiled`."""
    step, autocast = f"train with {spec.optimizer}" if spec.train else "forward", f"autocast {spec.autocast}"
    return joined(step, f"batch {spec.batch}", autocast if spec.autocast else "", "compiled" if spec.compiled else "")
