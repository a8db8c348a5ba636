"""What a target means: an object, or a module, parameter or buffer of a model; and how it is written in Python. Reads
only. Jobs thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn

from devexplorer.core.base import BadInput, expression, quoted, variable
from devexplorer.core.models import is_uninitialised


class Target(NamedTuple):
    """What `name` or `name:path` means."""

    name: str
    path: str
    thing: nn.Module | Tensor
    also: tuple[str, ...] = ()
    """Other paths of the very same tensor."""

    @property
    def title(self) -> str:
        """`mlp`, or `mlp:0` for a part."""
        return f"{self.name}:{self.path}" if self.path else self.name

    @property
    def holder(self) -> str:
        """The path of the module that holds the tensor."""
        return self.path.rpartition(".")[0]

    @property
    def key(self) -> str:
        """The name of the tensor in its holder."""
        return self.path.rpartition(".")[2]

    @property
    def tensor(self) -> Tensor:
        """The tensor; `BadInput` for a module."""
        if isinstance(self.thing, Tensor):
            return self.thing
        kind = "module" if self.path else "model"
        raise BadInput(f"'{self.title}' is a {kind}; choose one of its parameters or buffers")

    @property
    def module(self) -> nn.Module:
        """The model, or the part of one; `BadInput` for a tensor."""
        if isinstance(self.thing, Tensor):
            raise BadInput(f"'{self.title}' is a tensor; choose a model")
        return self.thing

    @property
    def is_buffer(self) -> bool:
        """Whether it is a tensor inside a model that is no parameter."""
        return bool(self.path) and isinstance(self.thing, Tensor) and not isinstance(self.thing, nn.Parameter)

    @property
    def changed_too(self) -> str:
        """A sentence, with a space before it, about the other names of a tensor that was changed; empty without any."""
        if not self.also:
            return ""
        verb = "is" if len(self.also) == 1 else "are"
        return f" {' and '.join(self.also)} {verb} the very same Parameter and changed with it."

    def code(self) -> str:
        """The target as Python."""
        if isinstance(self.thing, nn.Module) or not self.path:
            return expression(self.title)
        return f"{variable(self.name)}.get_{'buffer' if self.is_buffer else 'parameter'}({quoted(self.path)})"

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter once, by its path in the whole object."""
        if isinstance(self.thing, Tensor):
            yield self.path, self.thing
        else:
            yield from self.thing.named_parameters(prefix=self.path)

    def refuse_waiting(self, what: str) -> None:
        """Raise `BadInput` when a parameter has no shape before the first forward."""
        waiting = next((path for path, parameter in self.parameters() if is_uninitialised(parameter)), None)
        if waiting is not None:
            raise BadInput(
                f"'{waiting or self.title}' has no shape before the first forward, so {what}; run the model once first"
            )


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers, under each of their paths."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(model.named_buffers(remove_duplicate=False))}
