"""Carries out the commands about splitting: plan, split, join, hops. Runs on the jobs thread."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Findings, ProgressMonitor, Unavailable, bytes_text, count_text, python_names
from devexplorer.core.commands.refusals import VIRTUAL_SPEC
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import bytes_of, device_id, dispatched, is_uninitialised, named_modules, refuse_dispatched
from devexplorer.core.records import AddVirtual, Answer, MoveReport, ObjectSnapshot, Offer
from devexplorer.core.split import messages
from devexplorer.core.split.crossings import CrossingsChange, DeviceCrossings
from devexplorer.core.split.draft import even_budget
from devexplorer.core.split.planner import Groups, ModelBlock, blocks_of, own_tensors, propose, tensors_below, ties
from devexplorer.core.split.records import (
    InsertHops,
    Join,
    PlanSplit,
    Split,
    SplitBlock,
    SplitPlan,
    SplitPlanned,
    SplitShare,
)
from devexplorer.core.workspace import CommandResult, ObjectChange, Target, Workspace, named_tensors
from devexplorer.core.workspace.tensors import accelerators

# Models that accelerate has dispatched: takes its hooks away, so that the model can be moved again.

_KEYS = (
    "_hf_hook",
    "_old_forward",
    "forward",
    "hf_device_map",
    "to",
    "cuda",
    "npu",
    "xpu",
    "mlu",
    "sdaa",
    "musa",
    "neuron",
)
"""What `dispatch_model` sets on instances: hooks, the forward around the model's own, the map, and methods that
warn."""


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate's hooks are on this model."""
    return dispatched(named_modules(model)) is not None


def take_hooks(name: str, model: nn.Module) -> HooksRemoved | None:
    """Remove them, with the map; what was offloaded comes back to the host. None: that cannot be undone, because values
    were loaded."""
    if importlib.util.find_spec("accelerate") is None:
        raise Unavailable(
            "this model has hooks of accelerate, and that package, which knows how to remove them, is not installed"
        )
    hooks: Any = importlib.import_module("accelerate.hooks")
    modules = [module for _, module in named_modules(model)]
    offloaded = any(parameter.is_meta for parameter in model.parameters())
    before = [(module, _attributes(module)) for module in modules]
    hooks.remove_hook_from_submodules(model)
    vars(model).pop("hf_device_map", None)
    for module in modules:
        own = vars(module).get("forward")
        if (
            getattr(own, "__func__", None) is type(module).forward
        ):  # accelerate leaves the class's own method on the instance
            del vars(module)["forward"]
    changed = [(module, previous) for module, previous in before if previous != _attributes(module)]
    return None if offloaded else HooksRemoved(name, changed)


State = Sequence[tuple[nn.Module, dict[str, Any]]]
"""What accelerate's hooks are to each module: attributes of the instance."""


class HooksRemoved(ObjectChange):
    """Hooks of accelerate that were removed from a model."""

    def exchange(self, workspace: Workspace, state: State) -> State:
        """Give the modules these attributes."""
        now = [(module, _attributes(module)) for module, _ in state]
        for module, own in state:
            for key in _KEYS:
                vars(module).pop(key, None)
            vars(module).update(own)
        return now


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {key: vars(module)[key] for key in _KEYS if key in vars(module)}


# How many bytes of a model each device may hold in a plan: what the user said, or what is free less a tenth.

KEPT_FREE = 10
"""One part in so many stays free for activations and for what the allocator rounds up."""


def budgets_of(registry: DeviceRegistry, blocks: Sequence[ModelBlock], given: Mapping[str, int]) -> dict[str, int]:
    """Bytes by device, those without any left out; `BadInput` for devices that are not there and for numbers that are
    no budgets."""
    if not given:
        return _what_is_free(registry, blocks)
    findings = Findings()
    chosen: dict[str, int] = {}
    for text, budget in given.items():
        device = findings.checked(partial(registry.choose, text))
        if device is not None and budget < 0:
            findings.add(f"a budget of {budget:,} bytes for {device} is negative; 0 excludes the device")
        elif device is not None and budget:
            chosen[device] = chosen.get(device, 0) + budget
    findings.demand_none()
    if not chosen:
        raise BadInput("every budget is 0; give at least one device some bytes")
    return chosen


def _what_is_free(registry: DeviceRegistry, blocks: Sequence[ModelBlock]) -> dict[str, int]:
    """Accelerators first, then the CPU; what the blocks hold there now counts as free, since it can go."""
    held: dict[str, int] = {}
    for tensor in {id(tensor): tensor for block in blocks for tensor in block.tensors}.values():
        where = device_id(tensor.device)
        held[where] = held.get(where, 0) + bytes_of((tensor,))
    infos = [info for info in registry.infos() if info.usable]
    order = [info.id for info in infos if info.kind != "cpu"] + [info.id for info in infos if info.kind == "cpu"]
    budgets: dict[str, int] = {}
    for device in order:
        free = registry.backend(device).free_bytes(device)
        if free is not None:
            room = free + held.get(device, 0)
            budgets[device] = room - room // KEPT_FREE
    known = {device: budget for device, budget in budgets.items() if budget > 0}
    if not known:
        raise BadInput(
            f"the free memory of {', '.join(order)} is unknown; give budgets in bytes, for example"
            f" {bytes_text(1 << 30)}"
        )
    return known


def plan_split(workspace: Workspace, command: PlanSplit, progress: ProgressMonitor) -> CommandResult:
    """How the model could be split; changes nothing."""
    target = workspace.model(command.target)
    name, model = target.name, target.module
    blocks, _ = blocks_of(model)
    if not blocks:
        raise BadInput(f"'{name}' has no parameters and buffers, so there is nothing to split")
    budgets = budgets_of(workspace.registry, blocks, command.budgets)
    blocks, forced = blocks_of(model, max(budgets.values()))
    progress.report(0.0, "asking accelerate")
    proposal = propose(name, blocks, _equal_parts(blocks, budgets) if command.even else budgets)
    warnings = [
        f"'{path}' ({type(model.get_submodule(path)).__name__}) is larger than every budget and was cut: a forward"
        " fails there if it adds up what is on different devices."
        for path in forced
    ]
    plan = _as_plan(name, blocks, budgets, proposal.devices, (*warnings, *proposal.warnings, *_lazy_warning(blocks)))
    offers: tuple[Offer, ...] = ()  # the plan itself can be edited where it is shown, and is carried out there
    if not accelerators(workspace.registry):
        offers = (Offer(f"Add virtual GPUs ({VIRTUAL_SPEC})", AddVirtual(spec=VIRTUAL_SPEC)),)
        warning = (
            "There is only the CPU; virtual GPUs, which are simulated, would give the plan devices to choose from."
        )
        plan = msgspec.structs.replace(plan, warnings=(*plan.warnings, warning))
    return CommandResult(messages.planned(plan, messages.plan(plan), offers), events=(SplitPlanned(plan=plan),))


def _equal_parts(blocks: Sequence[ModelBlock], budgets: Mapping[str, int]) -> dict[str, int]:
    """The smallest equal budgets of the accelerators that hold the blocks. They are for the planner only: what may be
    moved there afterwards is what the budgets of the plan say."""
    devices = [device for device in budgets if device != "cpu"] or list(budgets)
    return dict.fromkeys(devices, even_budget(Groups(blocks).bytes, len(devices)))


def _as_plan(
    name: str, blocks: list[ModelBlock], budgets: dict[str, int], devices: list[str], warnings: tuple[str, ...]
) -> SplitPlan:
    tied = {index: group for group in ties(blocks) for index in group}
    rows = tuple(
        SplitBlock(
            path=block.path,
            type=block.type,
            bytes=block.own_bytes,
            device=device,
            now=block.devices,
            tied_with=tuple(blocks[other].path for other in tied.get(index, ()) if other != index),
        )
        for index, (block, device) in enumerate(zip(blocks, devices, strict=True))
    )
    shares = tuple(
        SplitShare(
            device=device, budget_bytes=budget, used_bytes=sum(row.bytes for row in rows if row.device == device)
        )
        for device, budget in budgets.items()
    )
    hops = sum(row.device != following.device for row, following in itertools.pairwise(rows))
    return SplitPlan(target=name, blocks=rows, shares=shares, hops=hops, warnings=warnings)


def _lazy_warning(blocks: list[ModelBlock]) -> tuple[str, ...]:
    waiting = sum(any(map(is_uninitialised, block.tensors)) for block in blocks)
    return (
        (f"{count_text(waiting, 'block')} have parameters without a shape yet, which count as 0 bytes.",)
        if waiting
        else ()
    )


def split(workspace: Workspace, command: Split, progress: ProgressMonitor) -> CommandResult:
    """Move the blocks to their devices, all or none, and insert hops."""
    target = workspace.model(command.target)
    name, model = target.name, target.module
    refuse_dispatched(name, named_modules(model))
    parts = placed(name, model, command.device_map, workspace.registry)
    reports = workspace.place(parts.targets, parts.devices, f"the split of {name}", progress)
    extras = workspace.extras(name)
    hops_were_there = extras.hops is not None
    python = messages.place(parts.targets, parts.devices, parts.direct)
    if not hops_were_there:
        crossings = DeviceCrossings(model, workspace.registry)
        workspace.changed(f"the split of {name}", CrossingsChange(workspace, name, crossings))
        python = f"{messages.follow(name)}\n{python}"
    snapshot = workspace.snapshot(name)
    answer = messages.split(
        name,
        _held(snapshot),
        _bytes(reports),
        python,
        hops_were_there=hops_were_there,
        optimizer=extras.optimizer is not None and bool(_bytes(reports)),
        waiting=sum(report.uninitialised for report in reports),
    )
    return CommandResult(answer, (snapshot, *workspace.snapshots(workspace.sharing((name,)))))


def join(workspace: Workspace, command: Join, progress: ProgressMonitor) -> CommandResult:
    """Bring the model to one device, without hops."""
    target = workspace.model(command.target)
    name, model = target.name, target.module
    device = workspace.registry.choose(command.device)
    title = f"the joining of {name}"
    hops, hooks = workspace.extras(name).hops is not None, is_dispatched(model)
    python = messages.join(name, model, device, hops=hops, hooks=hooks)
    if hops:
        workspace.changed(title, CrossingsChange(workspace, name, None))
    if hooks:
        taken = take_hooks(name, model)
        if taken is None:
            workspace.history.cannot_undo()
        else:
            workspace.changed(title, taken)
    reports = workspace.place([Target(name, "", model)], {name: device}, title, progress)
    answer = messages.joined(name, device, _bytes(reports), python, hops=hops, hooks=hooks)
    return CommandResult(answer, workspace.snapshots((name, *workspace.sharing((name,)))))


def insert_hops(workspace: Workspace, command: InsertHops, progress: ProgressMonitor) -> CommandResult:
    """Insert hops, or remove them."""
    target = workspace.model(command.target)
    name, model = target.name, target.module
    refuse_dispatched(name, named_modules(model))
    held = _held(workspace.snapshot(name))
    there = workspace.extras(name).hops is not None
    if command.on == there:
        if not command.on:
            raise BadInput(f"'{name}' has no hops that could be removed")
        words = "Nothing was changed: each part already moves its inputs to its own device."
        return CommandResult(Answer(title=f"Activations follow the parts of {name} already", words=words, subject=name))
    hops = DeviceCrossings(model, workspace.registry) if command.on else None
    title = f"the hops of {name}" if command.on else f"the removal of the hops of {name}"
    workspace.changed(title, CrossingsChange(workspace, name, hops))
    python = messages.follow(name) if command.on else messages.unfollow(name)
    return CommandResult(messages.followed(name, held, python, on=command.on), (workspace.snapshot(name),))


def _held(snapshot: ObjectSnapshot) -> dict[str, int]:
    """Bytes by device; 0 where there are lazy parameters alone."""
    return {device: snapshot.bytes_by_device.get(device, 0) for device in snapshot.rows[0].devices}


def _bytes(reports: list[MoveReport]) -> int:
    return sum(report.bytes for report in reports)


# What a device map means for a model: checked, and turned into parts to be moved. Reads only. Runs on the jobs
# thread.
#
# A path means everything below it that no longer path names; `""` is the model itself.

FEW = 3
"""Findings of one kind that are reported."""


class Placed:
    """Parts of a model and the device of each, all tensors covered once."""

    def __init__(self, name: str, model: nn.Module, device_of: Mapping[int, str]) -> None:
        self._name, self._device_of = name, device_of
        self.targets: list[Target] = []
        """Modules whose tensors all go to one device, as high up as possible; stand-ins for what a mixed module holds
        directly."""
        self.devices: dict[str, str] = {}
        """Title of a target -> device."""
        self.direct: set[str] = set()
        """Titles of the stand-ins."""
        self._visited: set[int] = set()
        self._walk("", model)

    def _walk(self, path: str, module: nn.Module) -> None:
        if id(module) in self._visited:
            return
        self._visited.add(id(module))
        below = {self._device_of[id(tensor)] for tensor in tensors_below(module)}
        if len(below) == 1:
            self._target(path, module, below.pop())
            return
        own = {self._device_of[id(tensor)] for tensor in own_tensors(module)}
        if len(own) > 1:
            held = ", ".join([*module._parameters, *module._buffers])
            raise BadInput(
                f"'{path or self._name}' computes with all that it holds itself ({held}): put that on one device"
            )
        if own:
            direct = nn.Module()  # has nothing but the tensors, so that moving it leaves the children where they are
            direct._parameters, direct._buffers = module._parameters, module._buffers
            self.direct.add(self._target(path, direct, own.pop()))
        for key, child in module._modules.items():
            if child is not None:
                self._walk(f"{path}.{key}" if path else key, child)

    def _target(self, path: str, module: nn.Module, device: str) -> str:
        target = Target(self._name, path, module)
        self.targets.append(target)
        self.devices[target.title] = device
        return target.title


def placed(name: str, model: nn.Module, device_map: Mapping[str, str], registry: DeviceRegistry) -> Placed:
    """What to move where; `BadInput` with everything that is wrong with the map."""
    findings = Findings()
    chosen = {path: findings.checked(partial(registry.choose, text), "") for path, text in device_map.items()}
    tensors = named_tensors(model)
    if not tensors:
        raise BadInput("a model without parameters and buffers has nothing to split")
    modules = [path for path, _ in model.named_modules(remove_duplicate=False)]
    known = {*modules, *tensors}
    for path in device_map:
        if path not in known:
            findings.add(
                f"'{name}' has no part '{path}'; {python_names.suggestion(path, [item for item in known if item])}"
            )
    findings.demand_none()
    return Placed(name, model, _devices(name, tensors, chosen))


def _devices(name: str, tensors: Mapping[str, Tensor], chosen: Mapping[str, str]) -> dict[int, str]:
    """Device by `id()` of the tensor."""
    device_of: dict[int, str] = {}
    first_path: dict[int, str] = {}
    torn: list[str] = []
    for path, tensor in tensors.items():
        device = _longest(path, chosen)
        known = device_of.get(id(tensor))
        if device is None:
            continue  # a name more of a tensor that another path covers, or else it is missed below
        if known is None:
            device_of[id(tensor)], first_path[id(tensor)] = device, path
        elif known != device:
            first = first_path[id(tensor)]
            torn.append(f"'{first}' and '{path}' are two names of one tensor: it cannot be on {known} and on {device}")
    uncovered: dict[int, str] = {}
    for path, tensor in tensors.items():
        if id(tensor) not in device_of:
            uncovered.setdefault(id(tensor), path)
    missing = list(uncovered.values())
    findings = torn[:FEW]
    if missing:
        said = ", ".join(f"'{path}'" for path in missing[:FEW]) + (" and others" if len(missing) > FEW else "")
        findings.append(
            f"the map leaves {count_text(len(missing), 'tensor')} of '{name}' without a device: {said}; name their"
            " blocks too"
        )
    if findings:
        raise BadInput(*findings)
    return device_of


def _longest(path: str, chosen: Mapping[str, str]) -> str | None:
    """The device of the longest path in the map that this one is or lies below."""
    while path not in chosen and path:
        path = path.rpartition(".")[0]
    return chosen.get(path)
