"""One tensor on its way to another device or dtype: `copy`, then `commit`, and `rollback` from anywhere. Runs on the jobs thread.

Every part keeps its originals until it is dropped, so rolling back restores the very same tensors: identity, bits, device, gradient, ties.
Nothing here decides what to move; `core.workspace.moves` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from devexplorer.core.errors import MoveFailed

Copy = Callable[[Tensor, torch.device, torch.dtype], Tensor]
"""How one tensor is copied; tests put one in that fails."""


def plain_copy(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """What `tensor.to(device, dtype)` does; the same tensor when it is there already."""
    return tensor.to(device=device, dtype=dtype)


class Part(Protocol):
    """One step of a move. `copy` allocates, `commit` only rebinds; `rollback` may be called at any time, also twice."""

    path: str

    def copy(self, copy: Copy) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class ParameterPart:
    """A parameter and its gradient. The Parameter object stays the same one, with new contents.

    Between tensors of one kind (CPU, CUDA, …) `parameter.data = new` does that; a virtual GPU's tensors are of another Python class, so there
    the two objects swap contents (`torch.utils.swap_tensors`), as PyTorch itself does for such classes.
    """

    def __init__(
        self, path: str, parameter: Tensor, device: torch.device, dtype: torch.dtype, ready: Tensor | None = None
    ) -> None:
        self.path = path
        self.parameter = parameter
        self.gradient = parameter.grad
        self.device, self.dtype = device, dtype
        self.ready = ready
        """Contents that need no copy: an original that was kept for undo."""
        self.new: Tensor | None = None
        self.new_gradient: Tensor | None = None
        self.old = parameter.data
        self.old_gradient = None if self.gradient is None else self.gradient.data
        self._partner: nn.Parameter | None = None
        """What holds the original contents while the two are swapped."""

    def copy(self, copy: Copy) -> None:
        """Make the new contents, and the new gradient."""
        self.new = copy(self.old, self.device, self.dtype) if self.ready is None else self.ready
        if self.old_gradient is not None:
            self.new_gradient = copy(self.old_gradient, self.device, self.dtype)

    def commit(self) -> None:
        """Put the new contents into the Parameter object."""
        assert self.new is not None
        if not is_swapped(self.old, self.new):
            self.parameter.data = self.new
            if self.gradient is not None and self.new_gradient is not None:
                self.gradient.data = self.new_gradient
            return
        refuse_live_graph(self.path, self.parameter)
        partner = nn.Parameter(self.new, requires_grad=self.parameter.requires_grad)
        partner.grad = self.new_gradient
        torch.utils.swap_tensors(self.parameter, partner)
        self._partner = partner

    def rollback(self) -> None:
        """Put the originals back."""
        if self._partner is not None:
            torch.utils.swap_tensors(self.parameter, self._partner)
            self._partner = None
        elif self.new is not None and not is_swapped(self.old, self.new):
            self.parameter.data = self.old
            if self.gradient is not None and self.old_gradient is not None:
                self.gradient.data = self.old_gradient


class BufferPart:
    """A buffer, under each name that it has: replaced by a new tensor, as `Module.to` does."""

    def __init__(
        self,
        path: str,
        holders: list[tuple[nn.Module, str]],
        device: torch.device,
        dtype: torch.dtype,
        ready: Tensor | None = None,
    ) -> None:
        module, key = holders[0]
        original = module._buffers[key]
        assert original is not None
        self.path, self.holders, self.original = path, holders, original
        self.device, self.dtype, self.ready = device, dtype, ready
        self.new: Tensor | None = None

    def copy(self, copy: Copy) -> None:
        """Make the new buffer."""
        self.new = copy(self.original.detach(), self.device, self.dtype) if self.ready is None else self.ready

    def commit(self) -> None:
        """Put it in place of the old one, everywhere at once."""
        for module, key in self.holders:
            module._buffers[key] = self.new

    def rollback(self) -> None:
        """Put the original object back."""
        for module, key in self.holders:
            module._buffers[key] = self.original


class LazyPart:
    """A parameter or buffer without a shape yet: nothing to copy; it will be created on the new device at the first forward."""

    def __init__(
        self,
        path: str,
        tensor: Tensor,
        device: torch.device,
        dtype: torch.dtype,
        place: Callable[[Tensor, torch.device, torch.dtype], None],
    ) -> None:
        self.path, self.tensor, self.device, self.dtype = path, tensor, device, dtype
        self._place = place
        self._was = (tensor.device, tensor.dtype)

    def copy(self, copy: Copy) -> None:
        """Nothing to copy."""

    def commit(self) -> None:
        """Note the new device."""
        self._place(self.tensor, self.device, self.dtype)

    def rollback(self) -> None:
        """Note the old one again."""
        if (self.tensor.device, self.tensor.dtype) != self._was:
            self._place(self.tensor, *self._was)


class NamePart:
    """A tensor of the workspace: its name is bound to the result, as `x = x.to(device)` does."""

    def __init__(
        self,
        path: str,
        tensor: Tensor,
        device: torch.device,
        dtype: torch.dtype,
        bind: Callable[[str, Tensor], None],
        ready: Tensor | None = None,
    ) -> None:
        self.path, self.original = path, tensor
        self.device, self.dtype, self.ready = device, dtype, ready
        self.new: Tensor | None = None
        self._bind = bind

    def copy(self, copy: Copy) -> None:
        """Make the result; a tensor that requires grad stays connected to it."""
        self.new = copy(self.original, self.device, self.dtype) if self.ready is None else self.ready

    def commit(self) -> None:
        """Bind the name to the result."""
        assert self.new is not None
        self._bind(self.path, self.new)

    def rollback(self) -> None:
        """Bind the name to the original again."""
        self._bind(self.path, self.original)


def is_swapped(old: Tensor, new: Tensor) -> bool:
    """Whether a parameter has to swap contents, because `parameter.data = new` cannot change its Python class."""
    return type(old) is not torch.Tensor or type(new) is not torch.Tensor or not torch._has_compatible_shallow_copy_type(old, new)


def refuse_live_graph(path: str, parameter: Tensor) -> None:
    """A swap needs to be the only user of the tensor; a result that still waits for its backward is another one."""
    if parameter._use_count() > 1:  # type: ignore[attr-defined]
        raise MoveFailed(f"'{path}' is still part of a result that waits for its backward; remove that result first")
