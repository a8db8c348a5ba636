"""What the commands of this package changed, kept so that Undo can take it back. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.workspace.changes import ObjectChange, Undone

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class Flags(ObjectChange):
    """Which tensors of an object required a gradient; None stands for the object itself, a tensor, which a move may
    have replaced."""

    def __init__(self, name: str, were: Sequence[tuple[Tensor | None, bool]]) -> None:
        self.name, self._previous = name, tuple(were)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Let each require what it did."""
        tensors = [
            (workspace.tensor_named(self.name) if tensor is None else tensor, previous)
            for tensor, previous in self._previous
        ]
        now = [(tensor, tensor.requires_grad) for tensor, _ in tensors]
        _set_flags(tensors)
        return Undone(touched=self.names, back=lambda: _set_flags(now))


def _set_flags(flags: Sequence[tuple[Tensor, bool]]) -> None:
    for tensor, flag in flags:
        tensor.requires_grad = flag


class Gradients(ObjectChange):
    """Gradients that were cleared, kept in the host's memory so that the device's is free."""

    def __init__(self, name: str, holders: Sequence[tuple[Tensor | None, Tensor]]) -> None:
        self.name = name
        self._kept = [(tensor, gradient.device, gradient.detach().to("cpu", copy=True)) for tensor, gradient in holders]
        self.kept_bytes = sum(values.nbytes for _, _, values in self._kept)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Put them back where they were."""
        found = [
            (workspace.tensor_named(self.name) if t is None else t, values.to(device))
            for t, device, values in self._kept
        ]
        for tensor, gradient in found:
            tensor.grad = gradient
        workspace.publish(self.name)

        def back() -> None:
            for tensor, _ in found:
                tensor.grad = None
            workspace.publish(self.name)

        return Undone(touched=self.names, back=back)


class FlatWeights(ObjectChange):
    """The second list that LSTM, GRU and the like keep of their parameters has to be renewed when a Parameter is
    exchanged.

    Told before the change that exchanges it, so that its undo comes after that one's.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Make the lists anew."""
        thing = workspace.get(self.name)
        assert isinstance(thing, nn.Module)
        renew_flat_weights(thing)
        return Undone(touched=self.names, back=lambda: renew_flat_weights(thing))


def renew_flat_weights(model: nn.Module) -> None:
    """Let every recurrent layer look its parameters up again."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module._init_flat_weights()


class Slot(NamedTuple):
    """One tensor of an optimizer's state, and where it was."""

    parameter: Tensor
    key: str
    device: torch.device
    dtype: torch.dtype
    original: Tensor | None
    """Itself, where moving back would not restore its bits."""

    def hosted(self) -> Slot:
        """With the original on the CPU."""
        return self if self.original is None else self._replace(original=self.original.to("cpu"))


@dataclass
class StateMoved(ObjectChange):
    """The state of an optimizer that followed its parameters."""

    name: str
    optimizer: torch.optim.Optimizer
    slots: tuple[Slot, ...]

    def __post_init__(self) -> None:
        """Count what is kept."""
        self.kept_bytes = sum(slot.original.nbytes for slot in self.slots if slot.original is not None)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Put every tensor back where it was."""
        now = [self.optimizer.state[slot.parameter][slot.key] for slot in self.slots]
        old = [
            value.to(slot.device, slot.dtype) if slot.original is None else slot.original.to(slot.device)
            for slot, value in zip(self.slots, now, strict=True)
        ]
        self._put(workspace, old)
        return Undone(touched=self.names, back=lambda: self._put(workspace, now))

    def hosted(self, name: str) -> StateMoved:
        """With the originals on the CPU, when that object is removed."""
        if name != self.name:
            return self
        return StateMoved(name, self.optimizer, tuple(slot.hosted() for slot in self.slots))

    def _put(self, workspace: Workspace, values: Sequence[Tensor]) -> None:
        for slot, value in zip(self.slots, values, strict=True):
            self.optimizer.state[slot.parameter][slot.key] = value
        workspace.publish(self.name)
