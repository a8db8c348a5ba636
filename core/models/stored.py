"""A model whose tensors came from a workspace file, while the code that makes it has not run. Jobs thread.

It has the modules, parameters and buffers under their paths, so it can be looked at, moved, trained values kept and
saved again. `adopt` gives its very tensors to a model that was built since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.models.walk import is_uninitialised
from devexplorer.core.records import Record


class ModelOrigin(Record, omit_defaults=True):
    """Where a model comes from."""

    type: str = ""
    """Its class, for a reader."""
    recipe: str | None = None
    """The sample model."""
    source: str | None = None
    """As `OpenModel.source`."""
    folder: str = ""
    seed: int = 0
    inputs: str = ""
    guessed: str = ""
    hops: bool = False
    """Its parts fetch their inputs."""


class StoredModule(nn.Module):
    """A module of such a model."""

    origin: ModelOrigin | None = None
    """Of the model as a whole; None in its parts."""

    def forward(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuses: there is no code."""
        raise BadInput(
            "only the tensors of this model are here, without the code that runs it; choose Run its code in the menu"
            " File"
        )


def every_slot(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """`(path, part, name in it, tensor)` of every parameter and buffer, those included that no state dict has."""
    for path, part in module.named_modules(remove_duplicate=False):
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                yield f"{path}.{name}" if path else name, part, name, tensor


def adopt(model: nn.Module, stored: nn.Module) -> str | None:
    """Let a model that was just built have the tensors and modes of the stored one; ties, gradients and optimizers
    come along, because the tensors stay the same objects.

    Returns why that is impossible, as a clause, and then has changed nothing.
    """
    own = {path: (part, name, tensor) for path, part, name, tensor in every_slot(model)}
    kept = {path: tensor for path, _, _, tensor in every_slot(stored)}
    if differing := sorted(own.keys() ^ kept.keys()):
        path = differing[0]
        return f"{'it has' if path in own else 'it no longer has'} '{path}', and the file has {_other(path, kept)}"
    for path, tensor in kept.items():
        mine = own[path][2]
        if isinstance(mine, nn.Parameter) != isinstance(tensor, nn.Parameter):
            return f"'{path}' is no longer a {'parameter' if isinstance(tensor, nn.Parameter) else 'buffer'}"
        if is_uninitialised(tensor) and not is_uninitialised(mine):
            return f"'{path}' has a shape now, and none in the file"
        if not is_uninitialised(mine) and mine.shape != tensor.shape:
            return f"'{path}' is {list(mine.shape)} now, and {list(tensor.shape)} in the file"
    for path, tensor in kept.items():
        part, name, _ = own[path]
        setattr(part, name, tensor)  # a module's own __setattr__ does more: an LSTM lists its weights
    modes = {path: part.training for path, part in stored.named_modules(remove_duplicate=False)}
    for path, part in model.named_modules(remove_duplicate=False):
        part.training = modes.get(path, part.training)
    return None


def _other(path: str, kept: dict[str, Tensor]) -> str:
    return "it" if path in kept else "not"
