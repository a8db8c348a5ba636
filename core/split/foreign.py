"""Models that accelerate has dispatched: takes its hooks away, so that the model can be moved again. Runs on the jobs
thread."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from torch import nn

from devexplorer.core.base import Unavailable
from devexplorer.core.models import dispatched, named_modules
from devexplorer.core.workspace import ObjectChange, Workspace

_KEYS = (
    "_hf_hook",
    "_old_forward",
    "forward",
    "hf_device_map",
    "to",
    "cuda",
    "npu",
    "xpu",
    "mlu",
    "sdaa",
    "musa",
    "neuron",
)
"""What `dispatch_model` sets on instances: hooks, the forward around the model's own, the map, and methods that
warn."""


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate's hooks are on this model."""
    return dispatched(named_modules(model)) is not None


def take_hooks(name: str, model: nn.Module) -> HooksRemoved | None:
    """Remove them, with the map; what was offloaded comes back to the host. None: that cannot be undone, because values
    were loaded."""
    if importlib.util.find_spec("accelerate") is None:
        raise Unavailable(
            "this model has hooks of accelerate, and that package, which knows how to remove them, is not installed"
        )
    hooks: Any = importlib.import_module("accelerate.hooks")
    modules = [module for _, module in named_modules(model)]
    offloaded = any(parameter.is_meta for parameter in model.parameters())
    before = [(module, _attributes(module)) for module in modules]
    hooks.remove_hook_from_submodules(model)
    vars(model).pop("hf_device_map", None)
    for module in modules:
        own = vars(module).get("forward")
        if (
            getattr(own, "__func__", None) is type(module).forward
        ):  # accelerate leaves the class's own method on the instance
            del vars(module)["forward"]
    changed = [(module, previous) for module, previous in before if previous != _attributes(module)]
    return None if offloaded else HooksRemoved(name, changed)


State = Sequence[tuple[nn.Module, dict[str, Any]]]
"""What accelerate's hooks are to each module: attributes of the instance."""


class HooksRemoved(ObjectChange):
    """Hooks of accelerate that were removed from a model."""

    def exchange(self, workspace: Workspace, state: State) -> State:
        """Give the modules these attributes."""
        now = [(module, _attributes(module)) for module, _ in state]
        for module, own in state:
            for key in _KEYS:
                vars(module).pop(key, None)
            vars(module).update(own)
        return now


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {key: vars(module)[key] for key in _KEYS if key in vars(module)}
