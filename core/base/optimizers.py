"""The optimizers that can be chosen: one table for the engine, the command line and the window. No torch, no thread."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class OptimizerKind(NamedTuple):
    """An optimizer of PyTorch with its options."""

    title: str
    class_name: str
    """In `torch.optim`."""
    options: Mapping[str, float] = MappingProxyType({})
    state_per_value: int = 0
    """Values that it keeps for each parameter value."""


OPTIMIZERS: Mapping[str, OptimizerKind] = {
    "sgd": OptimizerKind("SGD", "SGD"),
    "momentum": OptimizerKind("SGD with momentum", "SGD", {"momentum": 0.9}, 1),
    "adam": OptimizerKind("Adam", "Adam", state_per_value=2),
    "adamw": OptimizerKind("AdamW", "AdamW", state_per_value=2),
}
