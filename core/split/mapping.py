"""What a device map means for a model: checked, and turned into parts to be moved. Reads only. Runs on the jobs thread.

A path means everything below it that no longer path names; `""` is the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from devexplorer.core.base import BadInput, Findings, count_text, python_names
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.split.blocks import own_tensors, tensors_below
from devexplorer.core.workspace import Target, named_tensors

FEW = 3
"""Findings of one kind that are reported."""


class Placed:
    """Parts of a model and the device of each, all tensors covered once."""

    def __init__(self, name: str, model: nn.Module, device_of: Mapping[int, str]) -> None:
        self._name, self._device_of = name, device_of
        self.targets: list[Target] = []
        """Modules whose tensors all go to one device, as high up as possible; stand-ins for what a mixed module holds
        directly."""
        self.devices: dict[str, str] = {}
        """Title of a target -> device."""
        self.direct: set[str] = set()
        """Titles of the stand-ins."""
        self._visited: set[int] = set()
        self._walk("", model)

    def _walk(self, path: str, module: nn.Module) -> None:
        if id(module) in self._visited:
            return
        self._visited.add(id(module))
        below = {self._device_of[id(tensor)] for tensor in tensors_below(module)}
        if len(below) == 1:
            self._target(path, module, below.pop())
            return
        own = {self._device_of[id(tensor)] for tensor in own_tensors(module)}
        if len(own) > 1:
            held = ", ".join([*module._parameters, *module._buffers])
            raise BadInput(
                f"'{path or self._name}' computes with all that it holds itself ({held}): put that on one device"
            )
        if own:
            direct = nn.Module()  # has nothing but the tensors, so that moving it leaves the children where they are
            direct._parameters, direct._buffers = module._parameters, module._buffers
            self.direct.add(self._target(path, direct, own.pop()))
        for key, child in module._modules.items():
            if child is not None:
                self._walk(f"{path}.{key}" if path else key, child)

    def _target(self, path: str, module: nn.Module, device: str) -> str:
        target = Target(self._name, path, module)
        self.targets.append(target)
        self.devices[target.title] = device
        return target.title


def placed(name: str, model: nn.Module, device_map: Mapping[str, str], registry: DeviceRegistry) -> Placed:
    """What to move where; `BadInput` with everything that is wrong with the map."""
    findings = Findings()
    chosen = {path: findings.checked(partial(registry.choose, text), "") for path, text in device_map.items()}
    tensors = named_tensors(model)
    if not tensors:
        raise BadInput("a model without parameters and buffers has nothing to split")
    modules = [path for path, _ in model.named_modules(remove_duplicate=False)]
    known = {*modules, *tensors}
    for path in device_map:
        if path not in known:
            findings.add(
                f"'{name}' has no part '{path}'; {python_names.suggestion(path, [item for item in known if item])}"
            )
    findings.demand_none()
    return Placed(name, model, _devices(name, tensors, chosen))


def _devices(name: str, tensors: Mapping[str, Tensor], chosen: Mapping[str, str]) -> dict[int, str]:
    """Device by `id()` of the tensor."""
    device_of: dict[int, str] = {}
    first_path: dict[int, str] = {}
    torn: list[str] = []
    for path, tensor in tensors.items():
        device = _longest(path, chosen)
        known = device_of.get(id(tensor))
        if device is None:
            continue  # a name more of a tensor that another path covers, or else it is missed below
        if known is None:
            device_of[id(tensor)], first_path[id(tensor)] = device, path
        elif known != device:
            first = first_path[id(tensor)]
            torn.append(f"'{first}' and '{path}' are two names of one tensor: it cannot be on {known} and on {device}")
    uncovered: dict[int, str] = {}
    for path, tensor in tensors.items():
        if id(tensor) not in device_of:
            uncovered.setdefault(id(tensor), path)
    missing = list(uncovered.values())
    findings = torn[:FEW]
    if missing:
        said = ", ".join(f"'{path}'" for path in missing[:FEW]) + (" and others" if len(missing) > FEW else "")
        findings.append(
            f"the map leaves {count_text(len(missing), 'tensor')} of '{name}' without a device: {said}; name their"
            " blocks too"
        )
    if findings:
        raise BadInput(*findings)
    return device_of


def _longest(path: str, chosen: Mapping[str, str]) -> str | None:
    """The device of the longest path in the map that this one is or lies below."""
    while path not in chosen and path:
        path = path.rpartition(".")[0]
    return chosen.get(path)
