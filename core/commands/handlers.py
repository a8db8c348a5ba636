"""Carries out the kernel's commands: about objects of the workspace, about the devices themselves, and several commands
as one, all or none. Runs on the jobs thread."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import torch

from devexplorer.core.base import (
    BadInput,
    DevExplorerError,
    Findings,
    ProgressMonitor,
    RollbackFailed,
    count_text,
    first_line,
    object_name,
    objects_text,
    sentence,
)
from devexplorer.core.commands import messages
from devexplorer.core.commands.registry import spec_of
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.models import Extras, dtype_name, is_uninitialised, model_dtype, operand, refuse_value, samples
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    Backward,
    BuildModel,
    Combine,
    Command,
    EditElement,
    Fact,
    Forward,
    Move,
    MoveReport,
    NewTensor,
    ObjectSnapshot,
    Remove,
    SetThreads,
    Steps,
    Undo,
)
from devexplorer.core.virtual import backend
from devexplorer.core.workspace import (
    CommandResult,
    CreateChange,
    ElementChange,
    MoveChange,
    StepFailed,
    Target,
    Workspace,
    check_new_model,
    model_sizes,
    tensors,
)
from devexplorer.core.workspace.history import Removed, offload, offloaded_bytes
from devexplorer.core.workspace.optimizer_state import after_move
from devexplorer.core.workspace.runs import Ran, run_command


def build(workspace: Workspace, command: BuildModel, progress: ProgressMonitor) -> CommandResult:
    """A new sample model: built on the CPU, then moved to its device."""
    findings = Findings()
    recipe = findings.checked(lambda: samples.find(command.recipe))
    device = findings.checked(lambda: workspace.registry.choose(command.device))
    dtype = findings.checked(lambda: None if command.dtype is None else model_dtype(command.dtype))
    name = findings.checked(lambda: workspace.new_name(command.name, "" if recipe is None else recipe.name))
    findings.demand_none()
    assert recipe is not None
    assert device is not None
    assert name is not None
    check_new_model(model_sizes(samples.meta(recipe.name)), device, dtype, workspace.registry)
    started = workspace.wall()
    progress.report(0.0, f"building {recipe.name}")
    model = samples.build(recipe.name, command.seed)
    dtype_text = None if dtype is None else dtype_name(dtype)
    workspace.mover.move([Target(name, "", model)], device, dtype_text, progress=progress)
    workspace.add(name, model, Extras(recipe=recipe.name, source=recipe.name, seed=command.seed))
    workspace.changed(f"the new model {name}", CreateChange(name))
    seconds = workspace.wall() - started
    snapshot = workspace.snapshot(name)
    return CommandResult(messages.built(command, recipe, snapshot, device, dtype_text, seconds), (snapshot,))


def new_tensor(workspace: Workspace, command: NewTensor, progress: ProgressMonitor) -> CommandResult:
    """A new tensor."""
    name = workspace.new_name(command.name, "x")
    tensor, device, fell_back = tensors.make(command, workspace.registry)
    workspace.add(name, tensor)
    workspace.changed(f"the new tensor {name}", CreateChange(name))
    snapshot = workspace.snapshot(name)
    return CommandResult(messages.created(command, snapshot, device, fell_back), (snapshot,))


def combine(workspace: Workspace, command: Combine, progress: ProgressMonitor) -> CommandResult:
    """`name = left operator right`."""
    if command.operator not in tensors.OPERATORS:
        raise BadInput(f"there is no operator '{command.operator}'; there are {' '.join(tensors.OPERATORS)}")
    left, right = workspace.tensor_named(command.left), workspace.tensor_named(command.right)
    name = workspace.new_name(command.name, "result")
    result = tensors.applied(command.operator, (command.left, left), (command.right, right))
    workspace.add(name, result)
    workspace.changed(f"the new tensor {name}", CreateChange(name))
    changed = workspace.snapshots([name])
    return CommandResult(messages.combined(name, command, operand(name, result)), changed)


def edit(workspace: Workspace, command: EditElement, progress: ProgressMonitor) -> CommandResult:
    """One element, set in place; all names of a tied tensor see it."""
    target = workspace.find(command.target)
    tensor, index = target.tensor, command.index
    _check_index(command.target, tensor, index)
    refuse_value(tensor.dtype, command.value)
    try:
        with torch.no_grad():
            change = ElementChange(command.target, index, tensor[index].detach().to("cpu", copy=True))
            before = tensor[index].item()
            tensor[index] = command.value
            after = tensor[index].item()
    # sparse, without values, made in inference mode
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise BadInput(f"an element of '{command.target}' cannot be set: {first_line(error)}") from error
    workspace.changed(f"the change of {command.target}", change)
    return CommandResult(messages.edited(target, index, before, after), workspace.snapshots([target.name]))


def _check_index(title: str, tensor: torch.Tensor, index: tuple[int, ...]) -> None:
    if is_uninitialised(tensor):
        raise BadInput(f"'{title}' has no elements before its first forward")
    if len(index) != tensor.dim():
        raise BadInput(
            f"'{title}' has {tensor.dim()} dimensions, so an element has {tensor.dim()} indices, not {len(index)}"
        )
    for axis, (position, size) in enumerate(zip(index, tensor.shape, strict=True)):
        if not -size <= position < size:
            raise BadInput(
                f"index {position} is out of range for dimension {axis} of '{title}', which goes from 0 to {size - 1}"
            )


def remove(workspace: Workspace, command: Remove, progress: ProgressMonitor) -> CommandResult:
    """Remove objects and free their memory; within the budget they are kept in host memory for Undo."""
    names = tuple(dict.fromkeys(command.names))
    held = workspace.held_bytes_by_device()
    removed: list[Removed] = []
    why = ""
    if workspace.history.fits(sum(offloaded_bytes(workspace.get(name), workspace.extras(name)) for name in names)):
        try:
            removed = [offload(workspace, name) for name in names]
        except (DevExplorerError, RuntimeError, MemoryError) as error:
            why = first_line(error)
    if removed:
        for name in names:
            workspace.history.host(name)
        workspace.changed(f"the removal of {objects_text(names)}", *removed)
    else:
        workspace.history.deleted(names, why)
    workspace.drop(names)
    gc.collect()  # a model can be part of a reference cycle, and its memory must be free now
    left = workspace.held_bytes_by_device()
    freed = {device: size - left.get(device, 0) for device, size in held.items()}
    kept_bytes = sum(item.kept_bytes for item in removed)
    return CommandResult(messages.removed(command.names, freed, kept_bytes), removed=names)


def move(workspace: Workspace, command: Move, progress: ProgressMonitor) -> CommandResult:
    """Move, cast or copy objects and parts of models, all or none."""
    findings = Findings()
    found = [findings.checked(partial(workspace.target, title)) for title in dict.fromkeys(command.targets)]
    if not found:
        findings.add("nothing is selected; choose one or more objects to move")
    stays = not command.device and command.dtype is not None and not command.copy
    device = "" if stays else findings.checked(partial(workspace.registry.choose, command.device), "")
    findings.demand_none()
    targets = [target for target in found if target is not None]
    names = tuple(dict.fromkeys(target.name for target in targets))
    sharing = workspace.sharing(names)
    before, beside = tuple(map(workspace.seen, names)), tuple(map(workspace.seen, sharing))
    try:
        report = (_copied if command.copy else _moved)(workspace, targets, device, command.dtype, progress)
    finally:
        workspace.publish(*names)
    report = msgspec.structs.replace(report, kept_for_undo_bytes=workspace.history.kept_bytes)
    after, beside_now = workspace.snapshots(names), workspace.snapshots(sharing)
    separated = messages.separated((*before, *beside), (*after, *beside_now))
    answer = messages.moved(report, before, after, separated=separated)
    if report.copied:
        return CommandResult(answer, workspace.snapshots(report.created), report=report)
    state = after_move(workspace, names, progress, follows=command.optimizer)
    if state.code:
        after = workspace.snapshots(names)
    touched = (*after, *(now for now in beside_now if now not in beside))
    unchanged = report.already_there and not state.code
    answer = msgspec.structs.replace(
        answer,
        words=f"{answer.words} {state.words}".rstrip(),
        code=f"{answer.code}\n{state.code}".strip(),
        offers=(*answer.offers, *state.offers),
    )
    return CommandResult(answer, () if unchanged else touched, report=report)


def _moved(
    workspace: Workspace, targets: Sequence[Target], device: str, dtype: str | None, progress: ProgressMonitor
) -> MoveReport:
    around = workspace.around(list(dict.fromkeys(target.name for target in targets)))
    result = workspace.mover.move(targets, device, dtype, workspace.bind, progress, around)
    report = result.report
    if not report.already_there:
        title = f"the move of {objects_text(report.objects)} to {device}{f' as {report.dtype}' if report.dtype else ''}"
        if report.kind == "cast":
            title = f"the cast of {objects_text(report.objects)} to {report.dtype}"
        workspace.changed(title, MoveChange(result.origins))
    return report


def _copied(
    workspace: Workspace, targets: Sequence[Target], device: str, dtype: str | None, progress: ProgressMonitor
) -> MoveReport:
    report, things = workspace.mover.duplicate(targets, device, dtype, progress)
    created = []
    for target, thing in zip(targets, things, strict=True):
        name = workspace.new_name(None, f"{target.name}-{target.key}" if target.path else target.name)
        created.append(workspace.add(name, thing, workspace.extras_of_copy(target)))
    workspace.changed(f"the copy of {objects_text(report.objects)} to {device}", CreateChange(*created))
    return msgspec.structs.replace(report, created=tuple(created))


def run(workspace: Workspace, command: Forward | Backward, progress: ProgressMonitor) -> CommandResult:
    """A forward, or a forward and a backward."""
    name = object_name(command.target)
    waiting = {row.path for row in workspace.seen(name).rows if not row.initialised}
    backward = isinstance(command, Backward)
    ran = run_command(workspace, command, progress)
    after = workspace.snapshot(name)
    appeared = [row for row in after.rows if row.path in waiting and row.initialised]
    answer = messages.ran(ran, after, backward=backward, appeared=appeared)
    changed = (after, *workspace.snapshots(ran.reached if ran.kept_as is None else (ran.kept_as,)))
    effects = _side_effects(ran, backward)
    hops = workspace.extras(name).hops
    if hops is None:
        return CommandResult(answer, changed, side_effects=effects)
    answer, event = hops.told(name, answer)
    return CommandResult(answer, changed, side_effects=effects, events=(event,))


def _side_effects(ran: Ran, backward: bool) -> tuple[str, ...]:
    left = (
        (ran.changed_buffers, "running statistics changed by a forward pass"),
        (ran.initialised, "lazy parameters initialised by a forward pass"),
        (backward, "gradients of a backward pass"),
    )
    return tuple(phrase for happened, phrase in left if happened)


def undo(workspace: Workspace, command: Undo, progress: ProgressMonitor) -> CommandResult:
    """Take back the newest change."""
    title = workspace.history.state().title or ""
    undid, undone = workspace.history.undo(progress)
    after = workspace.snapshots(undone.touched)
    changed = (*after, *workspace.snapshots(workspace.sharing(undone.touched)))
    if undone.report is not None and isinstance(undid, Move):
        answer = messages.undone(undone.report, after)
    elif undone.removed and isinstance(undid, Move):
        answer = messages.uncopied(undone.removed)
    else:
        answer = messages.taken_back(title, undone.removed)
    return CommandResult(answer, changed, removed=undone.removed, report=undone.report, undid=undid)


class Blueprint(NamedTuple):
    """What makes a model of the workspace again in another process."""

    source: str
    folder: str
    inputs: str
    dtype: str | None
    """None: that of its source."""


def blueprint(target: Target, extras: Extras) -> Blueprint | None:
    """That of a model; None where its source is unknown. `BadInput` for a tensor."""
    dtypes = {dtype_name(item.dtype) for item in target.module.parameters() if item.is_floating_point()}
    source = extras.recipe or extras.source
    if source is None:
        return None
    own_code = extras.recipe is None
    return Blueprint(
        source=source,
        folder=extras.folder if own_code else "",
        inputs=extras.inputs or (extras.guessed if own_code else ""),
        dtype=dtypes.pop() if len(dtypes) == 1 and dtypes != {"float32"} else None,
    )


def add_gpus(registry: DeviceRegistry, spec: str) -> list[str]:
    """Add virtual GPUs to those that there are; returns the ids of the visible ones. Raises `Unavailable` beside usable
    CUDA cards."""
    names = backend.add_virtual_gpus(spec, registry.visible_devices)
    registry.add(backend.install())
    return names


def add_virtual(workspace: Workspace, command: AddVirtual, progress: ProgressMonitor) -> CommandResult:
    """Add virtual GPUs; raises `BadInput` for a profile that does not exist, `Unavailable` where this process
    cannot have any."""
    names = add_gpus(workspace.registry, command.spec)
    return CommandResult(_added(workspace.registry, command.spec, names), devices_changed=True)


def set_threads(workspace: Workspace, command: SetThreads, progress: ProgressMonitor) -> CommandResult:
    """Set how many CPU threads one operation uses; raises `BadInput` for a number that is not possible."""
    cpu = workspace.registry.backend("cpu")
    assert isinstance(cpu, TorchBackend)
    before = cpu.threads
    cpu.set_threads(command.threads)
    threads = count_text(command.threads, "thread")
    if command.threads == before:
        words = f"An operation on the CPU uses {threads}, as before."
    else:
        words = f"An operation on the CPU now uses {threads} instead of {before}."
    words += " The device cpu is all cores and all memory at once; there is no cpu:1."
    title = f"{command.threads} CPU {'thread' if command.threads == 1 else 'threads'}"
    code = f"import torch\n\ntorch.set_num_threads({command.threads})"
    return CommandResult(Answer(title=title, words=words, code=code), devices_changed=True)


def _added(registry: DeviceRegistry, spec: str, names: list[str]) -> Answer:
    visible = "" if registry.visible_devices is None else f", visible={json.dumps(registry.visible_devices)}"
    added = f"add_virtual_gpus({json.dumps(spec, ensure_ascii=False)}{visible})"
    code = f"from devexplorer import add_virtual_gpus\n\n{added}"
    hidden = [info for info in registry.infos() if info.simulated and not info.usable]
    facts = [Fact(name, f"{registry.info(name).name}, simulated") for name in names]
    facts += [Fact(info.id, f"{info.name}, simulated, hidden") for info in hidden]
    if not names:
        title = "The GPUs were added, but the engine does not see them"
        words = f"{sentence(hidden[-1].reason or '')} Choose the visible devices again to use them."
    else:
        joins = "and" if len(names) == 2 else "to"
        title = f"{names[0]} {'is' if len(names) == 1 else f'{joins} {names[-1]} are'} here"
        words = (
            "Values are real: the CPU computes them. Memory is counted as CUDA's caching allocator would count it. Time"
            " is modelled from the datasheet, on a simulated clock. Everything about these devices is marked simulated."
        )
    return Answer(title=title, words=words, facts=tuple(facts), code=code)


def steps(workspace: Workspace, command: Steps, progress: ProgressMonitor) -> CommandResult:
    """One after the other; the answer is that of the last, with what the others did before it."""
    results: list[CommandResult] = []
    copies: dict[str, str] = {}
    count = len(command.commands)
    for index, given in enumerate(command.commands):
        step = _on_copies(given, copies)
        share = ProgressMonitor(
            lambda done, text, part="", index=index: progress.report((index + done) / count, text, part),
            progress.cancelled,
        )
        try:
            progress.stop_if_cancelled("nothing has changed")
            results.append(spec_of(step).resolve()(workspace, step, share))
        except RollbackFailed:
            raise
        except DevExplorerError as error:
            raise StepFailed(error, step, command.commands[:index]) from error
        report = results[-1].report
        if isinstance(step, Move) and report is not None:
            copies.update(zip(dict.fromkeys(step.targets), report.created, strict=False))
    return _joined(results, command.title)


def _on_copies(command: Command, copies: dict[str, str]) -> Command:
    if not isinstance(command, Combine):
        return command
    left, right = (copies.get(name, name) for name in (command.left, command.right))
    return msgspec.structs.replace(command, left=left, right=right)


def _joined(results: list[CommandResult], title: str) -> CommandResult:
    *before, last = results
    alive: dict[str, ObjectSnapshot] = {}
    gone: dict[str, None] = {}
    for item in results:
        for snapshot in item.changed:
            alive[snapshot.name] = snapshot
            gone.pop(snapshot.name, None)
        for name in item.removed:
            alive.pop(name, None)
            gone[name] = None
    titles = (f"{item.answer.title}." for item in before)
    answer = msgspec.structs.replace(
        last.answer,
        title=f"{title[:1].upper()}{title[1:]} is repeated" if title else last.answer.title,
        words=f"{len(results)} steps, one step of Undo." if title else " ".join((*titles, last.answer.words)),
        facts=() if title else last.answer.facts,
        code="\n".join(filter(None, (item.answer.code for item in results))),
        offers=tuple(offer for item in results[::-1] for offer in item.answer.offers),
    )
    return CommandResult(
        answer,
        tuple(alive.values()),
        tuple(gone),
        next((item.report for item in results[::-1] if item.report and not item.report.already_there), None),
        tuple(effect for item in results for effect in item.side_effects),
        tuple(event for item in results for event in item.events),
        any(item.devices_changed for item in results),
    )
