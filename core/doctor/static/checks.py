"""All rules that look at a model without watching it run: before its move, after it, and after a forward. The main
thread."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.aliases import (
    ReachedMemory,
    Registry,
    TiedTensors,
    report_alias,
    report_tie,
    still_tied,
    ties,
)
from devexplorer.core.doctor.static.gradients import report_cuts
from devexplorer.core.doctor.static.model_context import (
    AttributeRef,
    Hidden,
    ModelContext,
    attribute_refs,
    bytes_of,
    inner,
    is_same_device,
    joined,
    moves_itself,
    tensors_of,
)
from devexplorer.core.doctor.static.unregistered import (
    report_generators,
    report_modules,
    report_parameters,
    report_tensors,
)
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import (
    device_id,
    dispatched,
    held_by,
    is_uninitialised,
    last_name,
    leaves_below,
    named_modules,
    size_of,
    state_tensors,
)
from devexplorer.core.models.class_source import assigned_in
from devexplorer.core.models.extras import left_behind

# Rule `parameter-not-leaf`: what a move or a product has made of a Parameter. The main thread.


def made_from_parameters(tensor: Tensor) -> list[Tensor]:
    """Parameters from which a tensor was computed; empty for a leaf."""
    return [] if tensor.grad_fn is None else [leaf for leaf in leaves_below(tensor) if isinstance(leaf, nn.Parameter)]


LAST = (
    "Leave moves to model.to(device), and make the Parameter last: nn.Parameter(x.to(device)), nn.Parameter(x * 0.02)."
)


def report_not_leaf(ref: AttributeRef, things: list[Hidden], source: str) -> None:
    """A finding about tensors that were computed from a Parameter when the model was built; `source`: its path, if it
    is registered."""
    tensors = tensors_of(things)
    made, place, how = ref.context.origins.tensor(tensors[0]), ref.place, "an operation"
    if made is not None:
        how = f"`{made.op.rpartition('.')[2]}`"
        if not made.place.library and (place is None or not place.library):
            place = made.place
    if source:
        message = (
            f"{ref.label} was computed from {source} when the model was built: it stays on its device with the values"
            " of that time, and its history can be used for one backward only."
        )
        fix = f"Compute it in forward from {source}."
    else:
        message = (
            f"{ref.label} is what {how} made of a Parameter: a plain tensor that is no leaf, so it is not registered,"
            " not moved, and gets no gradient."
        )
        fix = LAST
    ref.report("parameter-not-leaf", message, fix, place=place, bytes=bytes_of(tensors))


def report_written_not_leaf(context: ModelContext, done: set[str]) -> None:
    """What the source says and a run on the CPU does not show: there `nn.Parameter(x).to(device)` gives the Parameter
    itself."""
    read: dict[type, list[tuple[str, SourceLocation, ast.expr]]] = {}
    for path, module in context.modules:
        kind = type(module)
        if kind not in read:
            read[kind] = []
            for name, (place, value) in assigned_in(kind):
                if value is not None and _moves_parameter(value):
                    read[kind].append((name, place, value))
        for name, place, value in read[kind]:
            full = joined(path, name)
            held = name in module._parameters or name in vars(module)
            if held and full not in done:
                done.add(full)
                message = (
                    f"self.{name} is `{ast.unparse(value)}`: on another device than the CPU that is a plain tensor and"
                    " no Parameter, not registered, not moved, and without a gradient."
                )
                context.collector.add("parameter-not-leaf", message, LAST, path=full, place=place)


_CONVERSIONS = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "type_as")


def _moves_parameter(value: ast.expr, moved: bool = False) -> bool:
    """`nn.Parameter(…).to(…)`, `.cuda()`, `.half()`, also with more calls in between."""
    match value:
        case ast.Call(func=called) if last_name(called) == "Parameter":
            return moved
        case ast.Call(func=ast.Attribute(value=inner, attr=name)):
            return (name in _CONVERSIONS or name == "requires_grad_") and _moves_parameter(
                inner, moved or name in _CONVERSIONS
            )
    return False


_Key = tuple[int, str, int | None]
"""A module, an attribute of it, and the key of a hook."""


class _Watched(NamedTuple):
    """What an attribute held before the move, without holding it."""

    aliases: dict[str, tuple[str, ...]]
    """Paths of its tensors that shared memory, each with the registered ones that it shared it with."""
    computed: dict[str, str]
    """Paths of its tensors that were computed from a Parameter, each with the Parameter's own, or nothing where that is
    not registered."""


class StaticChecks:
    """The static rules, in three steps around the move and the forward of one model. What is found goes to the
    collector."""

    def __init__(self, model: nn.Module, origins: Origins, collector: FindingCollector) -> None:
        self._context = ModelContext(model, origins, collector)
        self._watched: dict[_Key, _Watched] = {}
        self._ties: list[TiedTensors] = []
        self._constant: list[tuple[TiedTensors, dict[str, tuple[int, int]]]] = []
        self._memory: dict[str, ReachedMemory | None] = {}
        self._built: Unsaved | None = None
        self._values: Unsaved | None = None
        self._unfilled: set[str] = set()

    def before(self) -> None:
        """Look at the model as it was built."""
        context = self._context
        registry = Registry(context.model)
        self._memory = registry.memory
        self._ties = ties(context, registry)
        self._built = Unsaved(context.model, context)
        names, wide = {id(item.tensor): item.path for item in registry.tensors}, []
        for one in registry.tensors:
            made = context.origins.tensor(one.tensor)
            if one.is_buffer and made is not None and "empty" in made.op and one.tensor._version == 0:
                self._unfilled.add(one.path)  # its values are whatever lay there
            if one.tensor.dtype in (torch.float64, torch.complex128):
                wide.append(one)
        for ref in attribute_refs(context):
            aliases, computed = {}, {}
            for item in ref.attribute.things:
                if not isinstance(item.thing, Tensor):
                    continue
                owners = registry.sharing(item.thing)
                if owners:
                    aliases[item.path] = tuple(owner.path for owner in owners)
                leaves = made_from_parameters(item.thing)  # asked now: a move may replace what is in the history
                if leaves:
                    computed[item.path] = next((names[id(leaf)] for leaf in leaves if id(leaf) in names), "")
            self._watched[_key(ref)] = _Watched(aliases, computed)
            for optimizer in optimizers(ref):
                report_lazy(ref, optimizer)
                report_state(ref, optimizer, left_behind(optimizer)[0])
        self._report_hooks()
        for one in wide if len(wide) < len(registry.tensors) else ():  # all of it: that was asked for
            context.collector.add(
                "dtype-promotion",
                f"{'Buffer' if one.is_buffer else 'Parameter'} {one.path} is float64, which MPS does not have: on a Mac"
                " the model cannot be moved there.",
                "Make it float32 where it need not be as exact: torch.tensor(…, dtype=torch.float32).",
                path=one.path,
                place=context.place(one.path),
                severity="note",
            )

    def moved(self, device: torch.device | str | None) -> None:
        """Look at it after `model.to(device)`; None where that failed."""
        context = self._context
        where = None if device is None else torch.device(device)
        registry = Registry(context.model)
        copied = where is not None and any(memory != self._memory.get(path) for path, memory in registry.memory.items())
        not_leaves: set[str] = set()
        known: set[int] = set()
        later: list[AttributeRef] = []
        for ref in sorted(attribute_refs(context), key=lambda ref: ref.attribute.hook is not None):
            if not ref.attribute.complete:
                reason = "it holds more than is looked at"
                context.collector.not_checked(f"the rest of {ref.label}", reason, ref.place)
            before = self._watched.get(_key(ref))
            if before is None:
                continue
            known |= report_modules(ref, registry, known)
            known |= self._report_tensors(ref, before, registry, where, copied, not_leaves)
            if where is not None:
                report_generators(ref, where)
            later.append(ref)
        for ref in later:
            for optimizer in optimizers(ref):
                report_optimizer(ref, optimizer, registry, known, copied)
        report_written_not_leaf(context, not_leaves)
        for tie in self._ties:
            if copied and still_tied(registry, tie):
                continue
            if tie.buffers and not tie.mixed:
                self._constant.append((tie, _versions(registry, tie)))
            else:
                report_tie(context, tie)
        self._values = Unsaved(context.model)

    def in_use(self) -> None:
        """Look at a model that a script uses: nothing is moved or run, and no value is read."""
        registry = Registry(self._context.model)
        known: set[int] = set()
        for ref in attribute_refs(self._context):
            known |= report_modules(ref, registry, known)
            parameters = [
                item
                for item in ref.attribute.things
                if isinstance(item.thing, nn.Parameter) and not registry.sharing(item.thing)
            ]
            if parameters:
                report_parameters(ref, parameters)
            for optimizer in optimizers(ref):
                report_state(ref, optimizer, left_behind(optimizer)[0])
        self._report_hooks()
        self._report_lazy()
        report_written_not_leaf(self._context, set())
        report_cuts(self._context, None)

    def place(self, path: str) -> SourceLocation | None:
        """The line of the user's that set what is at a path of the model, or what holds it; of a library where the
        whole model is."""
        place = self._context.place(path)
        while place is not None and place.library and "." in path:
            path = path.rpartition(".")[0]
            place = self._context.place(path)
        return place

    def ran(self, train: bool, modules: Collection[int] | None = None, *, explained: bool = False) -> None:
        """Look at it after a forward (and with `train` a backward); `modules` are the ids of those that ran, where that
        is known.

        Where forward failed this is not called; where backward did, `train` is False. `explained`: it is known already
        which parameters get no gradient, and why.
        """
        context = self._context
        self._report_lazy()
        if self._constant:
            registry = Registry(context.model)
            for tie, versions in self._constant:
                report_tie(context, tie, constant=versions == _versions(registry, tie))
        if self._values is not None and train:
            for path in self._values.changed(Unsaved(context.model)):
                report_unsaved(context, path, drawn=False)
        if not explained:
            report_cuts(context, modules)

    def compare(self, other: nn.Module) -> None:
        """Look at a second build with another seed: a non-persistent buffer that differs was drawn by chance, and no
        checkpoint has it."""
        if self._built is not None:
            for path in self._built.changed(Unsaved(other)):
                if path not in self._unfilled:
                    report_unsaved(self._context, path, drawn=True)

    def _report_tensors(
        self,
        ref: AttributeRef,
        before: _Watched,
        registry: Registry,
        device: torch.device | None,
        copied: bool,
        not_leaves: set[str],
    ) -> set[int]:
        """Findings about the tensors of one attribute, each kind once; returns the ids of those that no other rule
        should report."""
        aliases: list[Hidden] = []
        computed: list[Hidden] = []
        parameters: list[Hidden] = []
        plain: list[Hidden] = []
        followed = moves_itself(ref)
        for item in ref.attribute.things:
            tensor = item.thing
            if not isinstance(tensor, Tensor):
                continue
            if item.path in before.aliases:
                owners = {owner.path for owner in registry.sharing(tensor)}
                if not followed and not (copied and owners.issuperset(before.aliases[item.path])):
                    aliases.append(item)
            elif isinstance(tensor, nn.Parameter):
                parameters.append(item)
            elif is_uninitialised(tensor) or (not tensor.is_nested and tensor.numel() == 0):
                continue
            elif item.path in before.computed and tensor.grad_fn is not None:
                computed.append(item)
            elif not (followed and (not copied or device is None or is_same_device(tensor.device, device))):
                plain.append(item)
        if aliases:
            report_alias(ref, aliases, [path for item in aliases for path in before.aliases[item.path]])
        if computed:
            not_leaves.add(ref.full)
            report_not_leaf(ref, computed, before.computed[computed[0].path])
        if parameters:
            report_parameters(ref, parameters)
        if plain:
            report_tensors(ref, plain, device if copied else None)
        return set(map(id, tensors_of(ref.attribute.things)))

    def _report_hooks(self) -> None:
        context = self._context
        modules = context.modules
        if dispatched(modules) is None:
            return
        path, module, name = "", context.model, "hf_device_map"
        if name not in vars(context.model):
            path, module = next((path, module) for path, module in modules if "_hf_hook" in vars(module))
            name = "_hf_hook"
        context.collector.add(
            "offload-hooks",
            f"{path or 'The model'} has hooks of accelerate, which bring its inputs to where it was placed then; .to() "
            "moves the weights away from under them.",
            "Move the model without them: accelerate.hooks.remove_hook_from_submodules(model), or leave the placement"
            " to accelerate.",
            path=path,
            place=context.origins.attribute(module, name) or context.place(path),
        )

    def _report_lazy(self) -> None:
        context = self._context
        for path, module in context.modules:
            held = {**module._parameters, **module._buffers}
            waiting = [name for name, tensor in held.items() if tensor is not None and is_uninitialised(tensor)]
            if waiting:
                context.collector.add(
                    "lazy-parameter",
                    f"forward did not reach {path or 'the model itself'} ({type(module).__name__}): without a shape,"
                    f" {' and '.join(waiting)} can be neither counted nor trained.",
                    "Use it in forward, take it out, or give its input size: the class without Lazy.",
                    path=path,
                    place=context.place(path if path else joined(path, waiting[0])),
                )


def _versions(registry: Registry, tie: TiedTensors) -> dict[str, tuple[int, int]]:
    """Which tensors these are, and how often each was written into."""
    held = [item for path in tie.paths if (item := registry.by_path.get(path)) is not None]
    return {item.path: (id(item.tensor), item.tensor._version) for item in held}


def _key(ref: AttributeRef) -> _Key:
    return id(ref.module), ref.attribute.name, ref.attribute.hook


# Rules `unsaved-buffer`, buffers that no checkpoint has and no new build gives back, and `optimizer-before-move`,
# optimizers that the model itself holds.

LARGEST = 256 * 1024 * 1024
"""Bytes of one buffer that are still compared."""


class Unsaved:
    """The values of non-persistent buffers at one moment, on the CPU."""

    def __init__(self, model: nn.Module, context: ModelContext | None = None) -> None:
        self.values: dict[str, Tensor] = {}
        for path, module in named_modules(model):
            for name in module._non_persistent_buffers_set:
                buffer = module._buffers.get(name)
                if buffer is None or is_uninitialised(buffer) or buffer.layout is not torch.strided or buffer.is_nested:
                    continue
                full = joined(path, name)
                if size_of(buffer) <= LARGEST:
                    values = _values(buffer)
                    if values is not None:
                        self.values[full] = values
                elif context is not None:
                    context.collector.not_checked(
                        f"the values of {full}",
                        f"it has {bytes_text(size_of(buffer))}, too much to compare",
                        context.place(full),
                    )

    def changed(self, other: Unsaved) -> list[str]:
        """Paths whose values differ, where shape and dtype are the same."""
        found = []
        for path, values in self.values.items():
            there = other.values.get(path)
            if there is None or values.shape != there.shape or values.dtype != there.dtype:
                continue
            if not torch.equal(values.nan_to_num(), there.nan_to_num()):
                found.append(path)
        return found


def _values(tensor: Tensor) -> Tensor | None:
    """A copy that is no work of the device: what is inside a virtual tensor is taken from there."""
    held = inner(tensor)
    return None if held.is_meta else held.detach().cpu().clone()


def report_unsaved(context: ModelContext, path: str, drawn: bool) -> None:
    """A finding about one buffer: `drawn` by chance when the model was built, or else changed by a forward in
    training."""
    name = path.rpartition(".")[2]
    why = "is drawn at random in every build" if drawn else "is changed by forward in training"
    context.collector.add(
        "unsaved-buffer",
        f"self.{name} is a buffer with persistent=False and {why}: a checkpoint does not have it, and a model "
        "that is loaded computes something else.",
        f'Remove persistent=False: self.register_buffer("{name}", …).',
        path=path,
        place=context.place(path),
    )


def optimizers(ref: AttributeRef) -> list[Optimizer]:
    """Those that an attribute leads to."""
    return [item.thing for item in ref.attribute.things if isinstance(item.thing, Optimizer)]


def report_lazy(ref: AttributeRef, optimizer: Optimizer) -> None:
    """A finding where an optimizer was given parameters that have no shape yet."""
    waiting = [tensor for tensor in held_by(optimizer) if is_uninitialised(tensor)]
    if waiting:
        ref.report(
            "lazy-parameter",
            f"{ref.label} was given {count_text(len(waiting), 'lazy parameter')} before the first forward: without a"
            " shape there is nothing to optimise yet.",
            "Run the model once with a sample input, then make the optimizer.",
        )


def report_state(ref: AttributeRef, optimizer: Optimizer, behind: list[Tensor]) -> None:
    """A finding where some of an optimizer's state is, or will be, on another device than its parameter."""
    if behind:
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({type(optimizer).__name__}) was made before the move: {count_text(len(behind), 'tensor')} of"
            f" its state on {device_id(behind[0].device)}, which does not follow the parameters, so that the next step"
            " fails.",
            "Make the optimizer after the model has been moved; load_state_dict(old.state_dict()) gives the new one the"
            " old one's state.",
            bytes=bytes_of(behind),
        )


def report_optimizer(
    ref: AttributeRef, optimizer: Optimizer, registry: Registry, hidden: Collection[int], moved: bool
) -> None:
    """A finding where the optimizer's tensors are not the model's any more, or its state is on another device than its
    parameter.

    `hidden` are ids of tensors about which there is a finding already; `moved`: whether the move has copied anything.
    """
    known = registry.tensor_ids.union(hidden)
    lost = [tensor for tensor in held_by(optimizer) if id(tensor) not in known]
    if lost:
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({type(optimizer).__name__}) holds {count_text(len(lost), 'tensor')} that the model does not"
            " have as a parameter (any more): its steps change nothing there.",
            "Make the optimizer after the model has been moved, from model.parameters().",
            bytes=bytes_of(lost),
        )
    elif moved:
        report_state(ref, optimizer, left_behind(optimizer)[0])
    else:
        report_state(ref, optimizer, [value for _, name, value in state_tensors(optimizer) if name != "step"])
