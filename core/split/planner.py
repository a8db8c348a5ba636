"""Cuts a model into blocks that had better stay together, and plans on which device each of them could be: accelerate
proposes, what it proposes is checked and repaired. Jobs thread.

What a module adds up in its own forward, outside of its parts, is on one device only when the module is: so a module is
cut where that is known to be harmless, at containers and at stacks of layers, and a layer of a stack stays whole.
`_no_split_modules` of transformers models is obeyed. Together the blocks hold every registered parameter and buffer
once.

accelerate (`infer_auto_device_map`) sees a skeleton of the model whose children are the blocks, so that it cuts nowhere
else, and numbers instead of devices: it knows no virtual GPUs. Number 0 means no device and has no room, because
accelerate keeps room for the largest layer free on the first device (and on `cpu`), where it would put layers that it
brings back from the host; here nothing is brought back. What is known of its planner: it leaves blocks over (issue
3041), overfills (608), and splits what is tied (4014).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from devexplorer.core.base import BadInput, Unavailable, bytes_by_device_text, bytes_text, count_text
from devexplorer.core.models import bytes_of, device_id, is_uninitialised, named_modules, type_name

_LISTS = (nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class ModelBlock:
    """A part of a model that stays together."""

    path: str
    module: nn.Module
    tensors: tuple[Tensor, ...]
    """Each once; of those that several blocks share, the first block counts the bytes."""
    own_bytes: int
    """Without what an earlier block has counted."""
    whole: bool = True
    """False: what the module holds directly, its children are separate blocks."""

    @property
    def type(self) -> str:
        """Class name of the module."""
        return type_name(self.module)

    @property
    def devices(self) -> tuple[str, ...]:
        """Where it is, sorted."""
        return tuple(sorted({device_id(tensor.device) for tensor in self.tensors}))


def blocks_of(model: nn.Module, largest_bytes: int | None = None) -> tuple[list[ModelBlock], list[str]]:
    """The blocks in the order of `named_modules`, and the paths of modules that had to be cut although they are one
    layer.

    `largest_bytes` is the most that a block may have: a larger one is cut where its module holds nothing directly.
    """
    cutter = _Cutter(_kept_types(model), largest_bytes)
    cutter.walk("", model, root=True, in_stack=False)
    return cutter.blocks, cutter.forced


def ties(blocks: list[ModelBlock]) -> list[tuple[int, ...]]:
    """Groups of indexes of blocks that share a tensor, those that share none left out."""
    group = list(range(len(blocks)))
    holder: dict[int, int] = {}

    def first(index: int) -> int:
        while group[index] != index:
            index = group[index]
        return index

    for index, block in enumerate(blocks):
        for tensor in block.tensors:
            other = first(holder.setdefault(id(tensor), index))
            group[max(other, first(index))] = min(other, first(index))
    members: dict[int, list[int]] = {}
    for index in range(len(blocks)):
        members.setdefault(first(index), []).append(index)
    return [tuple(indexes) for indexes in members.values() if len(indexes) > 1]


def own_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters, then buffers, that the module holds directly."""
    yield from (parameter for parameter in module._parameters.values() if parameter is not None)
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)


def tensors_below(module: nn.Module) -> Iterator[Tensor]:
    """Every registered parameter and buffer, a shared one as often as modules hold it."""
    for _, part in named_modules(module):
        yield from own_tensors(part)


def holds_tensors(module: nn.Module) -> bool:
    """Whether there is any registered tensor below."""
    return next(tensors_below(module), None) is not None


class _Cutter:
    """One walk over a model."""

    def __init__(self, kept: Collection[str], largest_bytes: int | None) -> None:
        self.blocks: list[ModelBlock] = []
        self.forced: list[str] = []
        self._kept, self._largest = kept, largest_bytes
        self._visited: set[int] = set()
        self._counted: set[int] = set()

    def walk(self, path: str, module: nn.Module, *, root: bool, in_stack: bool) -> None:
        if id(module) in self._visited:  # one layer in two places is one block
            return
        self._visited.add(id(module))
        held = _each_once(tensors_below(module))
        if not held:
            return
        children = [
            (key, child) for key, child in module._modules.items() if child is not None and holds_tensors(child)
        ]
        own = _each_once(own_tensors(module))
        cut = root or self._may_be_cut(module, in_stack)
        if not cut and children and not own and self._too_large(held):
            self.forced.append(path)
            cut = True
        if not cut or not children:
            self._add(path, module, held, whole=True)
            return
        if own:
            self._add(path, module, own, whole=False)
        only = (
            root and len(children) == 1 and not own and next(own_tensors(children[0][1]), None) is None
        )  # what it wraps is the model
        stack = is_stack(module)
        for key, child in children:
            self.walk(f"{path}.{key}" if path else key, child, root=only, in_stack=stack or (in_stack and not root))

    def _add(self, path: str, module: nn.Module, tensors: tuple[Tensor, ...], *, whole: bool) -> None:
        new = [tensor for tensor in tensors if id(tensor) not in self._counted]
        self._counted.update(map(id, new))
        self.blocks.append(ModelBlock(path, module, tensors, bytes_of(new), whole))

    def _may_be_cut(self, module: nn.Module, in_stack: bool) -> bool:
        if type(module).__name__ in self._kept:
            return False
        return _is_container(module) or (not in_stack and any(map(is_stack, self._inside(module))))

    def _inside(self, module: nn.Module) -> Iterator[nn.Module]:
        """Modules below, but for what is inside of those that are kept whole."""
        for child in module.children():
            if type(child).__name__ not in self._kept:
                yield child
                yield from self._inside(child)

    def _too_large(self, held: tuple[Tensor, ...]) -> bool:
        return self._largest is not None and bytes_of(held) > self._largest


def _kept_types(model: nn.Module) -> set[str]:
    """Class names that models of transformers want to have whole."""
    kept: set[str] = set()
    for module in model.modules():
        kept.update(getattr(module, "_no_split_modules", None) or ())
    return kept


def _is_container(module: nn.Module) -> bool:
    """It holds or runs layers one after the other and adds nothing itself."""
    return isinstance(module, _LISTS) or (
        isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    )


def is_stack(module: nn.Module) -> bool:
    """A container of layers of one kind: of anything in a ModuleList, of blocks with parts of their own in a
    Sequential."""
    if not _is_container(module):
        return False
    layers = [layer for layer in module._modules.values() if layer is not None and holds_tensors(layer)]
    if isinstance(module, _LISTS):
        return len(layers) > 1
    composite = [
        type(layer) for layer in layers if any(map(holds_tensors, layer.children())) and not _is_container(layer)
    ]
    return len(composite) > len(set(composite))


def _each_once(tensors: Iterator[Tensor]) -> tuple[Tensor, ...]:
    return tuple({id(tensor): tensor for tensor in tensors}.values())


INSTALL = 'pip install "devexplorer[split]"'
NO_DEVICE = -1
"""The budget of accelerate's number 0."""


class Proposal(NamedTuple):
    """Where each block would be, by its index, and what had to be repaired."""

    devices: list[str]
    warnings: list[str]


def propose(name: str, blocks: Sequence[ModelBlock], budgets: Mapping[str, int]) -> Proposal:
    """A device for each block within these bytes; `BadInput` with the bytes where they do not suffice, `Unavailable`
    without accelerate."""
    _check_total(name, blocks, budgets)
    groups = Groups(blocks)
    wanted = _ask_accelerate(blocks, list(budgets), budgets)
    warnings: list[str] = []
    missing = sum(device is None for device in wanted)
    if missing:
        warnings.append(
            f"accelerate's planner found no room for {count_text(missing, 'block')}; they were put where there is some."
        )
    chosen, parted = groups.together(wanted)
    if parted:
        warnings.append("accelerate's planner would have parted tied blocks; they were put together.")
    overfull = groups.shrink(chosen, budgets)
    if overfull:
        warnings.append(
            f"accelerate's planner would have put too much on {' and '.join(overfull)}; it was taken down to the"
            " budget."
        )
    if not groups.fill(chosen, budgets):
        chosen = groups.from_scratch(name, budgets)
    return Proposal(groups.spread(chosen), warnings)


def _check_total(name: str, blocks: Sequence[ModelBlock], budgets: Mapping[str, int]) -> None:
    total, room = sum(block.own_bytes for block in blocks), sum(budgets.values())
    if total > room:
        each = bytes_by_device_text(budgets)
        raise BadInput(f"'{name}' needs {bytes_text(total)} and the budgets together are {bytes_text(room)}: {each}")


def _ask_accelerate(
    blocks: Sequence[ModelBlock], devices: Sequence[str], budgets: Mapping[str, int]
) -> list[str | None]:
    """accelerate's own answer; None where it would leave a block on disk, which is no device here, or forgets it."""
    accelerate = _accelerate()
    skeleton = nn.Module()
    for index, block in enumerate(blocks):
        part = nn.Module()
        known = [tensor for tensor in block.tensors if not is_uninitialised(tensor)]
        for place, tensor in enumerate(known):
            (part._parameters if isinstance(tensor, nn.Parameter) else part._buffers)[f"t{place}"] = tensor  # type: ignore[assignment]
        skeleton.add_module(f"block{index}", part)
    room = {0: NO_DEVICE} | {number: budgets[device] for number, device in enumerate(devices, start=1)}
    with _quiet():
        found = accelerate.infer_auto_device_map(skeleton, max_memory=room, clean_result=False, offload_buffers=True)
    names = dict(enumerate(devices, start=1))
    return [names.get(found.get(f"block{index}")) for index in range(len(blocks))]


def _accelerate() -> Any:
    if importlib.util.find_spec("accelerate") is None:
        raise Unavailable(
            f"planning needs the package accelerate, which is not installed here: {INSTALL}. Splitting by hand works"
            " without it: give each block its device, or move submodules one by one and insert hops"
        )
    return importlib.import_module("accelerate")


@contextmanager
def _quiet() -> Iterator[None]:
    """It warns that torch has no devices of these numbers, and it is right."""
    logger = logging.getLogger("accelerate.utils.modeling")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


Chosen = list[str | None]
"""A device per group, None: none yet."""


class Groups:
    """Blocks that are tied count as one; in the order of their first block."""

    def __init__(self, blocks: Sequence[ModelBlock]) -> None:
        self._blocks = blocks
        tied = ties(list(blocks))
        alone = set(range(len(blocks))).difference(*tied) if tied else set(range(len(blocks)))
        self.members = sorted([*tied, *((index,) for index in alone)])
        self.bytes = [sum(blocks[index].own_bytes for index in group) for group in self.members]

    def together(self, wanted: Sequence[str | None]) -> tuple[Chosen, bool]:
        """The device of each group, that of its first block, and whether any would have been parted."""
        chosen, parted = [], False
        for group in self.members:
            places = dict.fromkeys(wanted[index] for index in group)
            parted = parted or len(places) > 1
            chosen.append(next((place for place in places if place is not None), None))
        return chosen, parted

    def shrink(self, chosen: Chosen, budgets: Mapping[str, int]) -> list[str]:
        """Take the last groups off devices that hold more than they may; returns those devices."""
        overfull = []
        for device, budget in budgets.items():
            here = [index for index, place in enumerate(chosen) if place == device]
            while here and sum(self.bytes[index] for index in here) > budget:
                chosen[here.pop()] = None
                overfull.append(device)
        return list(dict.fromkeys(overfull))

    def fill(self, chosen: Chosen, budgets: Mapping[str, int]) -> bool:
        """Put what has no device where there is room, the nearest following device first; False where something is left
        over."""
        devices = list(budgets)
        free = dict(budgets)
        for index, place in enumerate(chosen):
            if place is not None:
                free[place] -= self.bytes[index]
        previous = 0
        for index, place in enumerate(chosen):
            if place is None:
                order = [*devices[previous:], *devices[:previous]]
                place = next((device for device in order if self.bytes[index] <= free[device]), None)
                if place is None:
                    return False
                chosen[index] = place
                free[place] -= self.bytes[index]
            previous = devices.index(place)
        return True

    def from_scratch(self, name: str, budgets: Mapping[str, int]) -> Chosen:
        """The largest first, each where the least is left over; `BadInput` where even that leaves something without a
        device."""
        free = dict(budgets)
        chosen: Chosen = [None] * len(self.members)
        for index in sorted(range(len(self.members)), key=lambda index: -self.bytes[index]):
            device = min(
                (item for item in free if self.bytes[index] <= free[item]), key=lambda item: free[item], default=None
            )
            if device is None:
                what = " and ".join(f"'{self._blocks[i].path or name}'" for i in self.members[index])
                tied = ", which share a tensor and stay together," if len(self.members[index]) > 1 else ""
                raise BadInput(
                    f"{what}{tied} {'need' if tied else 'needs'} {bytes_text(self.bytes[index])}, and no device has"
                    f" more than {bytes_text(max(free.values()))} of its budget left"
                )
            chosen[index] = device
            free[device] -= self.bytes[index]
        return chosen

    def spread(self, chosen: Chosen) -> list[str]:
        """The device of each block."""
        devices = [""] * len(self._blocks)
        for group, device in zip(self.members, chosen, strict=True):
            assert device is not None
            for index in group:
                devices[index] = device
        return devices
