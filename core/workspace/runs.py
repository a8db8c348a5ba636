"""Runs models forward and backward, times them on the clock of their device, keeps what Undo needs to take back what a
run leaves, and says how they are called in Python. Runs on the jobs thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import NO_PROGRESS, BadInput, Clock, ProgressMonitor, expression, quoted, variable
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import (
    Operand,
    device_id,
    is_uninitialised,
    operand,
    parameters_and_buffers,
    run,
    sampled,
    samples,
    settings_kept,
)
from devexplorer.core.models.class_source import NOTHING_MISSING, WithoutGradient, no_backward, without_gradient
from devexplorer.core.records import Backward, Forward
from devexplorer.core.virtual.backend import backward_guard
from devexplorer.core.workspace.changes import CreateChange, ObjectMemento, before_leaves
from devexplorer.core.workspace.placement import Target

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class Timing:
    """A running measurement of work that ends on `destinations`; where none of those is simulated, the clocks of
    simulated sources count.

    It starts once the devices have finished pending work, which is no part of it, and stops once the work has ended. A
    simulated clock counts what the calling thread does, so stop it on the same thread.
    """

    def __init__(
        self,
        registry: DeviceRegistry,
        destinations: Iterable[str],
        sources: Iterable[str] = (),
        wall: Clock = time.perf_counter,
    ) -> None:
        self._registry, self._wall = registry, wall
        ends, starts = set(destinations), set(sources)
        infos = [info for info in registry.infos() if info.id in ends | starts]
        usable = sorted(info.id for info in infos if info.usable)  # a source may be gone by now
        self._ends = [device for device in usable if device in ends]
        simulated = {info.id for info in infos if info.simulated}
        self._simulated = sorted(simulated & ends) or sorted(simulated & starts)
        self._synchronize(usable)
        self._clocks = self._read()
        self._started = wall()

    @property
    def simulated(self) -> bool:
        """Whether the seconds are those of a simulated clock."""
        return bool(self._simulated)

    def stop(self) -> tuple[float, float]:
        """Seconds on the device's clock, and seconds on the wall; the two are the same thing on real devices."""
        self._synchronize(self._ends)
        wall = self._wall() - self._started
        return self._read() - self._clocks if self._simulated else wall, wall

    def _synchronize(self, devices: Iterable[str]) -> None:
        for device in devices:
            self._registry.backend(device).synchronize(device)

    def _read(self) -> float:
        return sum(self._registry.backend(device).clock_seconds(device) for device in self._simulated)


LAZY_SEED = 0
"""Of the values that lazy parameters get."""


class Ran(NamedTuple):
    """A forward (and backward) that worked."""

    target: str
    inputs: tuple[Operand, ...]
    given: tuple[str, ...]
    """Names of the workspace tensors that were fed; empty: a sample input."""
    output: Operand | None
    """None when the model returned no tensor."""
    kept_as: str | None
    grad_fn: str | None
    seconds: float
    """On the device's clock."""
    wall_seconds: float
    simulated: bool
    gradients: int = 0
    """Backward: parameters that have a gradient now."""
    accumulated: bool = False
    """Backward: some had one before, and the new one was added."""
    changed_buffers: bool = False
    """The forward wrote into buffers: running statistics of batch norm in training mode, and whatever else a model
    keeps there."""
    initialised: bool = False
    """The forward gave lazy parameters their shape and first values."""
    bare: bool = True
    """The model returned one tensor and nothing around it."""
    missing: WithoutGradient = NOTHING_MISSING
    """Backward: what it did not reach."""
    reached: tuple[str, ...] = ()
    """Backward: objects other than the model that received a gradient, because they are inputs or led to one."""
    retained: bool = False
    """Backward: an input has its own graph, which was kept, so that another backward can go through it."""


@settings_kept()  # around the timing: it takes longer than a small layer
def run_model(
    workspace: Workspace,
    target: Target,
    inputs: Sequence[Tensor],
    given: Sequence[str],
    progress: ProgressMonitor,
    *,
    backward: bool,
) -> tuple[Ran, Tensor | None]:
    """Forward, and with `backward` the backward of the output's sum; returns what happened and the first tensor of
    the output.

    `given` are the names of the inputs, none for a sample. Raises `RunFailed`, or `BadInput` where there is no
    backward. Settings of the process that the model's code changes are put back.
    """
    model = target.module
    had_gradients = any(p.grad is not None for p in model.parameters() if not is_uninitialised(p))
    waiting, buffers = _waiting(model), _buffers(model)
    devices = sorted({device_id(t.device) for t in (*inputs, *parameters_and_buffers(model))})
    timing = Timing(workspace.registry, devices, wall=workspace.wall)
    entered: set[int] = set()
    count = len(list(model.modules())) * (1 + backward)  # the backward is taken to be as long as the forward

    def enter(module: nn.Module, path: str) -> None:
        entered.add(id(module))
        progress.report(len(entered) / count, path, f"{target.name}:{path}" if path else target.name)

    with _seeded(devices) if waiting else nullcontext():
        output = run.run(model, target.path, inputs, enter, workspace.explain)
    retained = backward and any(item.grad_fn is not None for item in inputs)
    if backward:
        _backward(workspace, target, output, entered, retain_graph=retained)
    seconds, wall = timing.stop()
    first = run.first_tensor(output)
    ran = Ran(
        target=target.title,
        inputs=tuple(operand(f"input {index}", tensor) for index, tensor in enumerate(inputs)),
        given=tuple(given),
        output=None if first is None else operand("output", first),
        kept_as=None,
        grad_fn=None if first is None or first.grad_fn is None else first.grad_fn.name(),
        seconds=seconds,
        wall_seconds=wall,
        simulated=timing.simulated,
        gradients=sum(p.grad is not None for p in model.parameters() if not is_uninitialised(p)),
        accumulated=backward and had_gradients,
        changed_buffers=_keeps_statistics(model) or _buffers(model) != buffers,
        initialised=_waiting(model) < waiting,
        bare=isinstance(output, Tensor),
        missing=without_gradient(model, entered, path=target.path) if backward else NOTHING_MISSING,
        retained=retained,
    )
    return ran, first


def _backward(workspace: Workspace, target: Target, output: Any, entered: set[int], *, retain_graph: bool) -> None:
    loss = run.total(output)
    if loss is None:
        why = no_backward(without_gradient(target.module, entered, path=target.path))
        raise BadInput(
            f"the output of '{target.title}' does not depend on anything that requires a gradient, so there is no"
            f" backward{why}"
        )
    # The loss can be on the CPU and a layer on a virtual GPU.
    virtual = any(info.simulated for info in workspace.registry.infos())
    try:
        with backward_guard() if virtual else nullcontext():
            loss.backward(retain_graph=retain_graph)
    except Exception as error:
        raise run.failed_backward(error) from error


@contextmanager
def _seeded(devices: Sequence[str]) -> Iterator[None]:
    """Draw the first values of lazy parameters from a seed: Redo and a script give the same. Generators are left as
    they were."""
    cards = [int(device.partition(":")[2]) for device in devices if device.startswith("cuda:")]
    with torch.random.fork_rng(devices=cards):
        torch.default_generator.manual_seed(LAZY_SEED)
        for card in cards:
            with torch.cuda.device(card):
                torch.cuda.manual_seed(LAZY_SEED)
        yield


def _waiting(model: nn.Module) -> int:
    """How many lazy parameters and buffers have no shape yet."""
    return sum(is_uninitialised(tensor) for tensor in parameters_and_buffers(model))


def _buffers(model: nn.Module) -> list[tuple[int, int]]:
    """Identity of each buffer, and how often it was changed in place; inference tensors do not count that."""
    held = [buffer for buffer in model.buffers() if not is_uninitialised(buffer)]
    return [(id(buffer), 0 if buffer.is_inference() else buffer._version) for buffer in held]


def _keeps_statistics(model: nn.Module) -> bool:
    """Whether a forward of this model updates running statistics: batch norm writes them without counting it."""
    return any(module.training and module._buffers.get("running_mean") is not None for module in model.modules())


# --- commands


def given_names(text: str | None) -> tuple[str, ...]:
    """`x, y` -> the names of two tensors."""
    return () if text is None else tuple(part.strip() for part in text.split(","))


def inputs_of(workspace: Workspace, target: Target, given: Sequence[str]) -> list[Tensor]:
    """The named tensors; or else what the model takes as far as it is known or can be guessed, on its device and in its
    dtype."""
    if given:
        return [workspace.tensor_named(name) for name in given]
    model = target.module
    if target.path:
        raise BadInput(f"'{target.title}' needs an input; create a tensor and choose it")
    return sampled(model, target.name, workspace.extras(target.name))


def before_inputs(workspace: Workspace, given: Sequence[str], inputs: Sequence[Tensor]) -> list[ObjectMemento]:
    """Images of the tensors that a backward from these inputs brings gradients to."""
    objects = {name: workspace.get(name) for name in workspace.names}
    return before_leaves(objects, dict(zip(given, inputs, strict=True))) if given else []


def reached(leaves: Sequence[ObjectMemento]) -> tuple[str, ...]:
    """The names of the objects that these are images of."""
    return tuple(dict.fromkeys(image.name for image in leaves))


def run_command(workspace: Workspace, command: Forward | Backward, progress: ProgressMonitor) -> Ran:
    """Run a model or a part of it. The output of a forward is kept, without its graph, only when it is given a name;
    gradients of a backward are added to those that are there."""
    kept_as = command.output if isinstance(command, Forward) else None
    if kept_as is not None:
        workspace.new_name(kept_as, "")
    target, backward = workspace.target(command.target), isinstance(command, Backward)
    given = given_names(command.input)
    inputs = inputs_of(workspace, target, given)
    image = workspace.image(target.name, gradients=backward, buffers=True, within=target.path)
    leaves = before_inputs(workspace, given, inputs) if backward else []
    try:
        ran, output = run_model(workspace, target, inputs, given, progress, backward=backward)
    except BaseException:  # it can have come far enough to change statistics, or to give lazy parameters their shape
        for memento in (*leaves, *((image,) if image else ())):
            memento.undo(workspace, NO_PROGRESS)
        raise
    finally:
        # the first forward of a lazy model makes its parameters; gradients arrive in each tensor that led to an input
        workspace.publish(target.name, *reached(leaves))
    if ran.changed_buffers or ran.initialised or backward:
        if image is None:
            workspace.history.cannot_undo()
        else:
            workspace.changed(f"the {'backward' if backward else 'forward'} of {target.title}", image, *leaves)
    ran = ran._replace(reached=reached(leaves))
    if kept_as is None:
        return ran
    if output is None:
        raise BadInput(f"'{command.target}' returned no tensor that could be named '{kept_as}'")
    name = workspace.add(kept_as, output.detach())
    workspace.changed(f"the new tensor {name}", CreateChange(name))
    return ran._replace(kept_as=name)


INPUTS = "_inputs"
"""What a sample input is called; no object can have this name."""


def _seed(report: Ran) -> list[str]:
    return [f"torch.manual_seed({LAZY_SEED})  # for the values of lazy parameters"] if report.initialised else []


def call(report: Ran, source: str | None) -> tuple[list[str], str]:
    """Lines that come first (imports, then a sample input where no tensors were named), and the call; `source` is the
    model's."""
    if report.given:
        return [], f"{expression(report.target)}({', '.join(map(variable, report.given))})"
    model = expression(report.target)
    return sample(model, report.inputs, source), f"{model}(*{INPUTS})"


def sample(model: str, inputs: Sequence[Operand], source: str | None) -> list[str]:
    """Lines that make the sample input again that such a model was given: the very same values."""
    if source in samples.recipes():
        return [
            "from devexplorer import samples",
            "",
            f"{INPUTS} = samples.sample_for({model}, {quoted(source or '')})",
        ]
    shapes = ",".join(f"{'x'.join(map(str, item.shape)) or 'scalar'}:{item.dtype}" for item in inputs)
    return [
        "from devexplorer import sample_inputs",
        "",
        f"{INPUTS} = sample_inputs({model}, {quoted(shapes)})",
    ]


def forward(report: Ran, source: str | None) -> str:
    """A forward; its output is printed in short where it was not kept."""
    before, called = call(report, source)
    if not report.bare:
        before = ["from devexplorer import first_tensor", *before]
        called = f"first_tensor({called})"
    last = f"print({called}.shape)" if report.kept_as is None else f"{variable(report.kept_as)} = {called}.detach()"
    return "\n".join([*before, *_seed(report), last])


def backward(report: Ran, source: str | None) -> str:
    """A backward of the sum of the output."""
    before, called = call(report, source)
    kept = "retain_graph=True" if report.retained else ""
    if not report.bare:
        return "\n".join(
            [
                "from devexplorer import total",
                *before,
                *_seed(report),
                f"total({called}).backward({kept})",
            ]
        )
    return "\n".join([*before, *_seed(report), f"{called}.sum().backward({kept})"])
