"""Cuts a model into blocks that had better stay together, and finds out which of them share tensors. Reads only. Runs
on the jobs thread.

What a module adds up in its own forward, outside of its parts, is on one device only when the module is: so a module is
cut where that is known to be harmless, at containers and at stacks of layers, and a layer of a stack stays whole.
`_no_split_modules` of transformers models is obeyed. Together the blocks hold every registered parameter and buffer
once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from devexplorer.core.models import bytes_of, device_id, named_modules, type_name

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
