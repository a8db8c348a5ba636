"""What the doctor lets a model do: a forward, and for training a backward and a step. The main thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from devexplorer.core.isolation.child import Progress, no_progress
from devexplorer.core.models.run import total
from devexplorer.core.virtual.backend import backward_guard

FORWARD, BACKWARD, STEP = "the forward", "the backward", "the step of the optimizer"
RATE = 1e-3
"""Of the step; small, so that values stay finite."""


class Work:
    """One forward, in evaluation mode without gradients; or in training mode with the backward of the sum of its
    output, and a step."""

    def __init__(self, model: nn.Module, train: bool, device: str, progress: Progress = no_progress) -> None:
        self._model, self._train, self._device, self._progress = model, train, device, progress
        self.stage = FORWARD
        """What is being done."""
        self.without_gradient = False
        """Whether there is something to train, and nothing in the output leads back to it."""
        self.went_back = False
        """Whether a backward was run to its end."""
        self.modules: set[int] = set()
        """`id()` of those that took part."""

    @property
    def is_over(self) -> bool:
        """Whether it is known which parameters get a gradient."""
        return self.went_back or self.without_gradient

    def run(self, inputs: Sequence[Tensor]) -> None:
        """Forward, and backward for training. Raises whatever the model's code raises."""
        self._model.train(self._train)
        hook = register_module_forward_pre_hook(lambda module, given: self.modules.add(id(module)))
        try:
            with nullcontext() if self._train else torch.no_grad():
                loss = total(self._model(*inputs))
        finally:
            hook.remove()
        if not self._train:
            return
        if loss is None:
            self.without_gradient = any(item.requires_grad for item in self._model.parameters())
            return
        self.stage = BACKWARD
        self._progress(0.6, f"backward on {self._device}")
        with backward_guard() if self._device.startswith("vgpu") else nullcontext():
            loss.backward()
        self.went_back = True

    def step(self) -> None:
        """A step of SGD with the gradients there are; none after a forward without."""
        trained = [item for item in self._model.parameters() if item.requires_grad and item.grad is not None]
        if self._train and trained:
            self.stage = STEP
            torch.optim.SGD(trained, lr=RATE).step()
