"""What a target of this package means: a tensor, a parameter, a buffer, a module; and how it is written in Python. Jobs
thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.python_names import expression, quoted, variable
from devexplorer.core.models.walk import is_uninitialised

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class Target(NamedTuple):
    """What `name` or `name:path` means."""

    title: str
    name: str
    path: str
    thing: nn.Module | Tensor
    also: tuple[str, ...] = ()
    """Other paths of the very same tensor."""

    @property
    def holder(self) -> str:
        """The path of the module that holds the tensor."""
        return self.path.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Under which it is held there."""
        return self.path.rpartition(".")[2]

    @property
    def is_buffer(self) -> bool:
        """Whether it is a tensor inside a model that is no parameter."""
        return bool(self.path) and isinstance(self.thing, Tensor) and not isinstance(self.thing, nn.Parameter)

    def code(self) -> str:
        """The target as Python."""
        if isinstance(self.thing, nn.Module) or not self.path:
            return expression(self.title)
        return f"{variable(self.name)}.get_{'buffer' if self.is_buffer else 'parameter'}({quoted(self.path)})"


def resolve(workspace: Workspace, title: str) -> Target:
    """A whole object, a module, or a parameter or buffer; `BadInput` says what is near where there is none."""
    name, _, path = (part.strip() for part in title.partition(":"))
    thing = workspace.get(name)
    if path and isinstance(thing, nn.Module) and path not in dict(thing.named_modules(remove_duplicate=False)):
        return resolve_tensor(workspace, title)
    target = workspace.target(f"{name}:{path}" if path else name)
    return Target(target.title, target.name, target.path, target.thing)


def resolve_tensor(workspace: Workspace, title: str) -> Target:
    """The same, when it has to be a tensor."""
    name, _, path = (part.strip() for part in title.partition(":"))
    if not path:
        return Target(name, name, "", workspace.tensor_named(name))
    tensor, also = workspace.leaf(f"{name}:{path}")
    return Target(f"{name}:{path}", name, path, tensor, also)


def resolve_module(workspace: Workspace, title: str) -> Target:
    """The same, when it has to be a model or a part of one."""
    target = workspace.target(title)
    if isinstance(target.thing, Tensor):
        raise BadInput(f"'{title}' is a tensor; choose a model")
    return Target(target.title, target.name, target.path, target.thing)


def model_of(workspace: Workspace, title: str) -> nn.Module:
    """The model behind a name that has to mean a whole one."""
    if ":" in title:
        raise BadInput(
            f"'{title}' is a part of a model; an optimizer belongs to the whole one, '{title.partition(':')[0]}'"
        )
    thing = workspace.get(title)
    if isinstance(thing, Tensor):
        raise BadInput(f"'{title}' is a tensor; choose a model")
    return thing


def parameters_below(target: Target) -> Iterator[tuple[str, Tensor]]:
    """Every parameter once, by its path in the whole model."""
    if isinstance(target.thing, Tensor):
        yield target.path, target.thing
        return
    prefix = f"{target.path}." if target.path else ""
    for path, parameter in target.thing.named_parameters():
        yield prefix + path, parameter


def refuse_waiting(target: Target, what: str) -> None:
    """Raise `BadInput` when a parameter has no shape before the first forward."""
    waiting = next((path for path, parameter in parameters_below(target) if is_uninitialised(parameter)), None)
    if waiting is not None:
        raise BadInput(
            f"'{waiting or target.title}' has no shape before the first forward, so {what}; run the model once first"
        )
