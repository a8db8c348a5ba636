"""All rules that look at a model without watching it run: before its move, after it, and after a forward. The main
thread."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.aliases import Tie, report_alias, report_tie, still_tied, ties
from devexplorer.core.doctor.static.attribute_refs import AttributeRef, moves_itself, place_of, slots
from devexplorer.core.doctor.static.buffers import Unsaved, report_unsaved
from devexplorer.core.doctor.static.gradients import report_cuts
from devexplorer.core.doctor.static.hidden import Hidden
from devexplorer.core.doctor.static.leaves import made_from_parameters, report_not_leaf, report_written_not_leaf
from devexplorer.core.doctor.static.model_context import ModelContext, is_same_device, joined
from devexplorer.core.doctor.static.modules import report_modules, report_parameters
from devexplorer.core.doctor.static.optimizers import optimizers, report_lazy, report_optimizer
from devexplorer.core.doctor.static.registry import Memory, Registry
from devexplorer.core.doctor.static.tensors import report_generators, report_tensors
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models.unmovable import dispatched
from devexplorer.core.models.walk import is_uninitialised

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
    """The static rules, in three steps around the move and the forward of one model. What is found goes into the
    book."""

    def __init__(self, model: nn.Module, origins: Origins, book: FindingCollector) -> None:
        self._scene = ModelContext(model, origins, book)
        self._watched: dict[_Key, _Watched] = {}
        self._ties: list[Tie] = []
        self._constant: list[tuple[Tie, dict[str, tuple[int, int]]]] = []
        self._memory: dict[str, Memory | None] = {}
        self._built: Unsaved | None = None
        self._values: Unsaved | None = None
        self._unfilled: set[str] = set()

    def before(self) -> None:
        """Look at the model as it was built."""
        scene = self._scene
        registry = Registry(scene.model)
        self._memory = registry.memory
        self._ties = ties(scene, registry)
        self._built = Unsaved(scene.model, scene)
        self._unfilled = {one.path for one in registry.tensors if one.is_buffer and _is_unfilled(scene, one.tensor)}
        names = {id(one.tensor): one.path for one in registry.tensors}
        for slot in slots(scene):
            aliases, computed = {}, {}
            for one in slot.attribute.things:
                if not isinstance(one.thing, Tensor):
                    continue
                owners = registry.sharing(one.thing)
                if owners:
                    aliases[one.path] = tuple(owner.path for owner in owners)
                leaves = made_from_parameters(one.thing)  # asked now: a move may exchange what stands in the history
                if leaves:
                    computed[one.path] = next((names[id(leaf)] for leaf in leaves if id(leaf) in names), "")
            self._watched[_key(slot)] = _Watched(aliases, computed)
            for optimizer in optimizers(slot):
                report_lazy(scene, slot, optimizer)
        self._report_hooks()

    def moved(self, device: torch.device | str | None) -> None:
        """Look at it after `model.to(device)`; None where that failed."""
        scene = self._scene
        where = None if device is None else torch.device(device)
        registry = Registry(scene.model)
        copied = where is not None and any(memory != self._memory.get(path) for path, memory in registry.memory.items())
        not_leaves: set[str] = set()
        known: set[int] = set()
        later: list[AttributeRef] = []
        for slot in sorted(slots(scene), key=lambda slot: slot.attribute.hook is not None):
            if not slot.attribute.complete:
                reason = "it holds more than is looked at"
                scene.book.not_checked(f"the rest of {slot.words}", reason, place_of(scene, slot))
            before = self._watched.get(_key(slot))
            if before is None:
                continue
            known |= report_modules(scene, slot, registry, known)
            known |= self._report_tensors(slot, before, registry, where, copied, not_leaves)
            if where is not None:
                report_generators(scene, slot, where)
            later.append(slot)
        for slot in later:
            for optimizer in optimizers(slot):
                report_optimizer(scene, slot, optimizer, registry, known, copied)
        report_written_not_leaf(scene, not_leaves)
        for tie in self._ties:
            if copied and still_tied(registry, tie):
                continue
            if tie.buffers and not tie.mixed:
                self._constant.append((tie, _versions(registry, tie)))
            else:
                report_tie(scene, tie)
        self._values = Unsaved(scene.model)

    def place(self, path: str) -> SourceLocation | None:
        """The line that set what stands at a path of the model."""
        return self._scene.place(path)

    def ran(self, train: bool, modules: Collection[int] | None = None, *, explained: bool = False) -> None:
        """Look at it after a forward (and with `train` a backward); `modules` are the ids of those that ran, where that
        is known.

        Where forward failed this is not called; where backward did, `train` is False. `explained`: it is known already
        which parameters get no gradient, and why.
        """
        scene = self._scene
        self._report_lazy()
        if self._constant:
            registry = Registry(scene.model)
            for tie, versions in self._constant:
                report_tie(scene, tie, constant=versions == _versions(registry, tie))
        if self._values is not None and train:
            for path in self._values.changed(Unsaved(scene.model)):
                report_unsaved(scene, path, drawn=False)
        if not explained:
            report_cuts(scene, modules)

    def compare(self, other: nn.Module) -> None:
        """Look at a second build with another seed: a non-persistent buffer that differs was drawn by chance, and no
        checkpoint has it."""
        if self._built is not None:
            for path in self._built.changed(Unsaved(other)):
                if path not in self._unfilled:
                    report_unsaved(self._scene, path, drawn=True)

    def _report_tensors(
        self,
        slot: AttributeRef,
        before: _Watched,
        registry: Registry,
        device: torch.device | None,
        copied: bool,
        not_leaves: set[str],
    ) -> set[int]:
        """Findings about the tensors of one attribute, each kind once; returns the ids of those that nobody else should
        speak of."""
        scene = self._scene
        tensors = [one for one in slot.attribute.things if isinstance(one.thing, Tensor)]
        aliases: list[Hidden] = []
        computed: list[Hidden] = []
        parameters: list[Hidden] = []
        plain: list[Hidden] = []
        followed = moves_itself(slot)
        for one in tensors:
            assert isinstance(one.thing, Tensor)
            if one.path in before.aliases:
                still = copied and {owner.path for owner in registry.sharing(one.thing)}.issuperset(
                    before.aliases[one.path]
                )
                if not still and not followed:
                    aliases.append(one)
            elif isinstance(one.thing, nn.Parameter):
                parameters.append(one)
            elif is_uninitialised(one.thing) or (not one.thing.is_nested and one.thing.numel() == 0):
                continue
            elif one.path in before.computed and one.thing.grad_fn is not None:
                computed.append(one)
            elif not (followed and (not copied or device is None or is_same_device(one.thing.device, device))):
                plain.append(one)
        if aliases:
            report_alias(scene, slot, aliases, [path for one in aliases for path in before.aliases[one.path]])
        if computed:
            not_leaves.add(slot.full)
            report_not_leaf(scene, slot, computed, before.computed[computed[0].path])
        if parameters:
            report_parameters(scene, slot, parameters)
        if plain:
            report_tensors(scene, slot, plain, device if copied else None)
        return {id(one.thing) for one in tensors}

    def _report_hooks(self) -> None:
        scene = self._scene
        modules = scene.modules
        if dispatched(modules) is None:
            return
        path, module, name = "", scene.model, "hf_device_map"
        if name not in vars(scene.model):
            path, module = next((path, module) for path, module in modules if "_hf_hook" in vars(module))
            name = "_hf_hook"
        scene.book.add(
            "offload-hooks",
            f"{path or 'The model'} has hooks of accelerate, which bring its inputs to where it was placed then; .to() "
            "moves the weights away from under them.",
            "Move the model without them: accelerate.hooks.remove_hook_from_submodules(model), or leave the placement"
            " to accelerate.",
            path=path,
            place=scene.origins.attribute(module, name) or scene.place(path),
        )

    def _report_lazy(self) -> None:
        scene = self._scene
        for path, module in scene.modules:
            held = {**module._parameters, **module._buffers}
            waiting = [name for name, tensor in held.items() if tensor is not None and is_uninitialised(tensor)]
            if waiting:
                what = " and ".join(waiting)
                scene.book.add(
                    "lazy-parameter",
                    f"forward did not reach {path or 'the model itself'} ({type(module).__name__}): {what} still"
                    f" {'has' if len(waiting) == 1 else 'have'} no shape, so that the parameters can be neither counted"
                    " nor trained.",
                    "Use it in forward, take it out, or give its input size: the class without Lazy.",
                    path=path,
                    place=scene.place(path if path else joined(path, waiting[0])),
                )


def _versions(registry: Registry, tie: Tie) -> dict[str, tuple[int, int]]:
    """Which tensors stand there, and how often each was written into."""
    held = [one for path in tie.paths if (one := registry.by_path.get(path)) is not None]
    return {one.path: (id(one.tensor), one.tensor._version) for one in held}


def _key(slot: AttributeRef) -> _Key:
    return id(slot.module), slot.attribute.name, slot.attribute.hook


def _is_unfilled(scene: ModelContext, tensor: Tensor) -> bool:
    """Whether nobody has written into it since `torch.empty` made it: its values are whatever lay there."""
    made = scene.origins.tensor(tensor)
    return made is not None and "empty" in made.op and tensor._version == 0
