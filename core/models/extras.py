"""What the workspace knows about an object beside the object itself, such as its optimizer, and how optimizers are
made. Jobs thread, or that of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from devexplorer.core.base import OPTIMIZERS
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models.loading import Stamp, changed
from devexplorer.core.records import Answer, BaseEvent, Diagnosis, Hop


def make_optimizer(kind: str, parameters: Iterable[Tensor], **options: Any) -> torch.optim.Optimizer:
    """An optimizer of this kind over the parameters; `options` are those of its class, `lr` among them."""
    known = OPTIMIZERS[kind]
    made: torch.optim.Optimizer = getattr(torch.optim, known.class_name)(parameters, **known.options, **options)
    return made


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """The kind of an optimizer; `adam` for a class that is not in the table."""
    momentum = bool(optimizer.param_groups[0].get("momentum"))
    for kind, known in OPTIMIZERS.items():
        if type(optimizer) is getattr(torch.optim, known.class_name) and momentum == ("momentum" in known.options):
            return kind
    return "adam"


def held_by(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Every parameter that it changes."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def left_behind(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], torch.device | None]:
    """The state that is on another device than its parameter, and the device of the last such parameter. A step counter
    may stay on the CPU."""
    behind, device = [], None
    for parameter, name, value in state_tensors(optimizer):
        if not (name == "step" and value.dim() == 0) and value.device != parameter.device:
            behind.append(value)
            device = parameter.device
    return behind, device


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[Tensor, str, Tensor]]:
    """Its state: (parameter, key, tensor), counters of steps included."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                yield parameter, key, value


class CrossingHooks(Protocol):
    """Hooks that let activations follow the parts of a split model; the feature that splits models has them."""

    @property
    def latest(self) -> tuple[Hop, ...]:
        """The hops of the latest forward, in their order."""
        ...

    def attach(self) -> None:
        """Put the hooks on."""
        ...

    def remove(self) -> None:
        """Take the hooks away."""
        ...

    def told(self, name: str, answer: Answer) -> tuple[Answer, BaseEvent]:
        """The answer of a forward with the hops in it, and the event that says them."""
        ...

    def python(self, name: str) -> str:
        """What puts them on the model of this name."""
        ...

    def python_of_opened(self, name: str) -> str:
        """What gives those of a model that came with a workspace file (`_opened`) their variable."""
        ...


class FetchHook:
    """Any forward pre-hook that brings its module's inputs to where the module is."""


def fetches_inputs(module: nn.Module) -> bool:
    """Whether this module has one."""
    return any(isinstance(hook, FetchHook) for hook in module._forward_pre_hooks.values())


@dataclass(slots=True)
class Extras:
    """All of it; everything may be missing."""

    recipe: str | None = None
    """The sample model it was built from."""
    source: str | None = None
    """What it was opened from, as `OpenModel.source`."""
    folder: str = ""
    """The folder that was importable then, absolute; empty where there is no source."""
    files: dict[str, Stamp] = field(default_factory=dict)
    """The user's files that it was made of, as they were then."""
    inputs: str = ""
    """Shapes of what its forward gets, as the user gave them."""
    guessed: str = ""
    """The same, found by trying; so that it is not tried again at every run."""
    optimizer: torch.optim.Optimizer | None = None
    optimizer_text: str | None = None
    """`Adam, lr 0.001`."""
    seed: int = 0
    """Of the sample model's initial values."""
    checked: Diagnosis | None = None
    """What the doctor said last of code of the user's."""
    checked_files: dict[str, Stamp] = field(default_factory=dict)
    """The files as they were then."""
    hops: CrossingHooks | None = None
    """Not None: activations follow its parts."""

    @property
    def own_code(self) -> bool:
        """Whether the user's own code made it."""
        known = self.source if self.recipe is None else None
        return known is not None and ":" in known and parse(known).own_code

    @property
    def outdated(self) -> tuple[str, ...]:
        """Those of the files that have changed since."""
        return changed(self.files) if self.files else ()

    def tensors(self) -> Iterator[Tensor]:
        """Tensors that belong to the object without being in it: the optimizer's state."""
        if self.optimizer is not None:
            yield from (value for _, _, value in state_tensors(self.optimizer))
