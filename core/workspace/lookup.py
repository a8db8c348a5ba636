"""What a target means: `name`, or `name:path` for a module, parameter or buffer. Reads only. Runs on the jobs
thread."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.models.walk import is_uninitialised
from devexplorer.core.workspace.plan import MoveTarget

Objects = Mapping[str, nn.Module | Tensor]


def lookup(objects: Objects, name: str) -> nn.Module | Tensor:
    """The live object behind a name."""
    if name not in objects:
        raise BadInput(f"there is no object '{name}'; {python_names.suggestion(name, objects)}")
    return objects[name]


def resolve_target(objects: Objects, target: str) -> MoveTarget:
    """An object, or a module inside a model; `BadInput` suggests the nearest names."""
    name, _, path = target.partition(":")
    thing = lookup(objects, name.strip())
    if not path:
        return MoveTarget(name.strip(), "", thing)
    if isinstance(thing, Tensor):
        raise BadInput(f"'{name}' is a tensor and has no part '{path}'")
    parts = dict(thing.named_modules(remove_duplicate=False))
    if path in parts:
        return MoveTarget(name.strip(), path, parts[path])
    holder, _, last = path.rpartition(".")
    own = parts.get(holder)
    if last == "grad" or (own is not None and last in {*own._parameters, *own._buffers}):
        raise BadInput(f"'{path}' is a tensor inside '{name}'; move the module that holds it")
    if "[" in path:
        raise BadInput(
            f"'{path}' is not registered in '{name}' and cannot be reached by PyTorch; hold it in an nn.ModuleList"
            " instead"
        )
    raise BadInput(f"'{name}' has no part '{path}'; {python_names.suggestion(path, [p for p in parts if p])}")


def leaf(objects: Objects, target: str) -> tuple[Tensor, tuple[str, ...]]:
    """The tensor, parameter or buffer that a target means, and the other paths of the same one."""
    name, _, path = target.partition(":")
    thing = lookup(objects, name)
    if isinstance(thing, Tensor):
        if path:
            raise BadInput(f"'{name}' is a tensor and has no part '{path}'")
        return thing, ()
    inside = dict(thing.named_parameters(remove_duplicate=False)) | dict(thing.named_buffers(remove_duplicate=False))
    if path not in inside:
        raise BadInput(f"'{name}' has no parameter or buffer '{path}'; {python_names.suggestion(path, inside)}")
    return inside[path], tuple(other for other, tensor in inside.items() if tensor is inside[path] and other != path)


def checked_index(target: str, tensor: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    """The index of one element; `BadInput` when there is none."""
    if is_uninitialised(tensor):
        raise BadInput(f"'{target}' has no elements before its first forward")
    if len(index) != tensor.dim():
        raise BadInput(
            f"'{target}' has {tensor.dim()} dimensions, so an element has {tensor.dim()} indices, not {len(index)}"
        )
    for axis, (position, size) in enumerate(zip(index, tensor.shape, strict=True)):
        if not -size <= position < size:
            raise BadInput(
                f"index {position} is out of range for dimension {axis} of '{target}', which goes from 0 to {size - 1}"
            )
    return index
