"""Where an optimizer's state is, and how it follows its parameters after a move. Runs on the jobs thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from devexplorer.core.base import (
    DevExplorerError,
    MoveFailed,
    ProgressMonitor,
    bytes_by_device_text,
    bytes_text,
    first_line,
    variable,
)
from devexplorer.core.models import device_id, dtype_name, loses, state_tensors
from devexplorer.core.records import MoveOptimizer, Offer
from devexplorer.core.workspace.changes import ObjectChange, Undone
from devexplorer.core.workspace.plan import check_sizes
from devexplorer.core.workspace.workspace import Workspace


def optimizer_variable(name: str) -> str:
    """The Python variable of a model's optimizer; names of objects never begin with an underscore, so it is free."""
    return f"_optimizer_{variable(name)}"


def state_bytes(optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Bytes of the state by device."""
    totals = Counter[str]()
    for _, _, value in state_tensors(optimizer):
        totals[device_id(value.device)] += value.nbytes
    return dict(sorted(totals.items()))


def state_text(optimizer: torch.optim.Optimizer) -> str:
    """`2.4 MiB on vgpu:0, 32 B on cpu`."""
    return bytes_by_device_text(state_bytes(optimizer)) or "none yet"


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


class StateMoved(ObjectChange):
    """The state of an optimizer that followed its parameters."""

    def __init__(self, name: str, optimizer: torch.optim.Optimizer, slots: tuple[Slot, ...]) -> None:
        self.name = name
        self._optimizer, self._slots = optimizer, slots

    @property
    def kept_bytes(self) -> int:
        """Of the originals."""
        return sum(slot.original.nbytes for slot in self._slots if slot.original is not None)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Put every tensor back where it was."""
        now = [self._optimizer.state[slot.parameter][slot.key] for slot in self._slots]
        old = [
            value.to(slot.device, slot.dtype) if slot.original is None else slot.original.to(slot.device)
            for slot, value in zip(self._slots, now, strict=True)
        ]
        self._put(workspace, old)
        return Undone(touched=self.names, back=lambda: self._put(workspace, now))

    def _put(self, workspace: Workspace, values: Sequence[Tensor]) -> None:
        for slot, value in zip(self._slots, values, strict=True):
            self._optimizer.state[slot.parameter][slot.key] = value
        workspace.publish(self.name)

    def hosted(self, name: str) -> StateMoved:
        """With the originals on the CPU, when that object is removed."""
        if name != self.name:
            return self
        return StateMoved(name, self._optimizer, tuple(slot.hosted() for slot in self._slots))


class Stray(NamedTuple):
    """A tensor of the state that is not where, or not what, its parameter is."""

    parameter: Tensor
    key: str
    value: Tensor
    dtype: torch.dtype
    """What it should be."""


def strays(optimizer: torch.optim.Optimizer) -> list[Stray]:
    """State elsewhere than its parameter, or in another dtype. The count of steps may stay on the CPU: PyTorch reads it
    there."""
    found = []
    for parameter, key, value in state_tensors(optimizer):
        if value.dim() == 0 and (key == "step" or value.shape != parameter.shape):
            continue
        dtype = parameter.dtype if value.is_floating_point() and parameter.is_floating_point() else value.dtype
        if value.device != parameter.device or value.dtype != dtype:
            found.append(Stray(parameter, key, value, dtype))
    return found


def follow(workspace: Workspace, name: str, found: Sequence[Stray], progress: ProgressMonitor) -> int:
    """Move these; returns their bytes. Raises `DoesNotFit` before, or `MoveFailed` with everything where it was."""
    optimizer = workspace.extras(name).optimizer
    assert optimizer is not None
    sizes: dict[str, list[int]] = {}
    for stray in found:
        sizes.setdefault(device_id(stray.parameter.device), []).append(stray.value.numel() * stray.dtype.itemsize)
    for device, needed in sizes.items():
        check_sizes(needed, device, workspace.registry, "the optimizer's state")
    new: list[Tensor] = []
    try:
        with torch.no_grad():
            for index, stray in enumerate(found):
                progress.stop_if_cancelled("the optimizer's state is where it was before")
                progress.report(index / len(found), "optimizer state")
                new.append(stray.value.to(stray.parameter.device, stray.dtype))
    except DevExplorerError:
        raise
    except Exception as error:
        raise MoveFailed(f"the optimizer's state did not move: {first_line(error)}; nothing has changed") from error
    slots = [
        Slot(s.parameter, s.key, s.value.device, s.value.dtype, s.value if loses(s.value.dtype, s.dtype) else None)
        for s in found
    ]
    workspace.changed(f"the move of the optimizer state of {name}", StateMoved(name, optimizer, tuple(slots)))
    for stray, value in zip(found, new, strict=True):
        optimizer.state[stray.parameter][stray.key] = value
    workspace.publish(name)
    return sum(value.nbytes for value in new)


def following_code(name: str) -> str:
    """The Python of `follow`."""
    return (
        f"for _p, _state in {optimizer_variable(name)}.state.items():\n"
        "    for _key, _value in _state.items():\n"
        '        if hasattr(_value, "to") and _key != "step" and _value.dim() > 0:\n'
        "            _state[_key] = _value.to(_p.device, _p.dtype)"
    )


class AfterMove(NamedTuple):
    """What a move has to say about optimizers."""

    words: str = ""
    offers: tuple[Offer, ...] = ()
    code: str = ""
    """Of what followed; empty: nothing has moved."""


def after_move(workspace: Workspace, names: Sequence[str], progress: ProgressMonitor, *, follows: bool) -> AfterMove:
    """After a move of these objects: let their optimizers' state follow where that was asked for, or say that it stayed
    behind."""
    words: list[str] = []
    code: list[str] = []
    offers: list[Offer] = []
    for name in names:
        optimizer = workspace.extras(name).optimizer
        found = [] if optimizer is None else strays(optimizer)
        if optimizer is None or not found:
            continue
        if follows:
            size = follow(workspace, name, found, progress)
            words.append(f"The state of its optimizer followed, {bytes_text(size)}: {state_text(optimizer)}.")
            code.append(following_code(name))
            continue
        stray = found[0]
        if stray.value.device != stray.parameter.device:
            left = sum(item.value.nbytes for item in found)
            how = (
                f"stayed behind, {bytes_text(left)} on {device_id(stray.value.device)}: .to() moves what is in a model"
            )
        else:
            how = f"is {dtype_name(stray.value.dtype)} still: .to() casts what is in a model"
        words.append(
            f"The state of the optimizer of {name} {how}, and the optimizer is not in it. The next step fails until the"
            " state follows."
        )
        offers.append(Offer(f"Let the optimizer state of {name} follow", MoveOptimizer(target=name)))
    return AfterMove(" ".join(words), tuple(offers), "\n".join(code))
