"""Weights that hooks of torch's compute at every forward from what is registered: of `weight_norm`, `spectral_norm` and
pruning. Any thread."""

from __future__ import annotations

from torch import Tensor, nn

from devexplorer.core.models.walk import named_modules


def computed_by_torch(module: nn.Module) -> set[str]:
    """Names of the attributes of a module that are such weights."""
    held = object.__getattribute__(module, "__dict__")
    names: set[str] = set()
    for hook in dict.values(held.get("_forward_pre_hooks") or {}):
        if type(hook).__module__.startswith("torch.nn.utils"):
            kept = vars(hook)
            names.update(name for name in (kept.get("name"), kept.get("_tensor_name")) if isinstance(name, str))
    return names


def computed(model: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """All of a model: the module, the attribute, and what the latest call computed."""
    held = [
        (module, name, vars(module).get(name))
        for _, module in named_modules(model)
        for name in computed_by_torch(module)
    ]
    return [(module, name, value) for module, name, value in held if isinstance(value, Tensor)]


def cut_computed(model: nn.Module) -> None:
    """Take their history: a Parameter in one cannot be swapped. The next call computes them again."""
    for module, name, value in computed(model):
        vars(module)[name] = value.detach()
