"""PyTorch's features, one by one, on a virtual GPU against the CPU. The table in docs/virtual_gpus.md is generated from
them.

Each module of this package adds functions to `FEATURES`: they take a device and return tensors and plain values, which
must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

DEVICE = "vgpu:1"


class Feature(NamedTuple):
    topic: str
    name: str
    run: Callable[[str], Any]


FEATURES: dict[str, Feature] = {}


class Topic:
    """Collects the features of one module: `@topic("name")`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, name: str) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
        def add(run: Callable[[str], Any]) -> Callable[[str], Any]:
            assert name not in FEATURES, name
            FEATURES[name] = Feature(self.name, name, run)
            return run

        return add


class OnHost(NamedTuple):
    """A result that is on the CPU, whatever the device."""

    value: Any


def status(feature: Feature) -> str:
    """`equal`, `refused: …`, `not available: …`, or what is wrong (`different: …`)."""
    torch.manual_seed(0)
    try:
        expected = feature.run("cpu")
    except Exception as error:
        return f"not available: the CPU refuses too: {_line(error)}"
    torch.manual_seed(0)
    try:
        found = feature.run(DEVICE)
    except AssertionError:
        raise
    except Exception as error:
        line = str(error).strip()
        said = "refused" if line and "\n" not in line else f"different: {type(error).__name__}"
        return f"{said}: {_line(error)}"
    difference = differs(found, expected)
    return "equal" if difference is None else f"different: {difference}"


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def differs(found: Any, expected: Any, *, host: bool = False) -> str | None:
    """How two results differ; None if they are the same and each tensor is on the right device."""
    if isinstance(expected, OnHost):
        return differs(found.value, expected.value, host=True)
    if isinstance(expected, torch.Tensor):
        return _tensors_differ(found, expected, host)
    if isinstance(expected, dict):
        if list(found) != list(expected):
            return f"keys {list(found)} instead of {list(expected)}"
        return differs(list(found.values()), list(expected.values()), host=host)
    if isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{len(found)} results instead of {len(expected)}"
        return next(
            (one for one in (differs(*pair, host=host) for pair in zip(found, expected, strict=True)) if one), None
        )
    if isinstance(expected, float):
        return (
            None
            if found == expected or abs(found - expected) <= 1e-5 * max(1.0, abs(expected))
            else f"{found} instead of {expected}"
        )
    return None if found == expected else f"{found!r} instead of {expected!r}"


def _tensors_differ(found: Any, expected: torch.Tensor, host: bool) -> str | None:
    where = torch.device("cpu" if host else DEVICE)
    if found.device != where:
        return f"a result is on {found.device}"
    for name in ("dtype", "shape", "layout", "requires_grad", "is_leaf"):
        if getattr(found, name) != getattr(expected, name):
            return f"{name} {getattr(found, name)} instead of {getattr(expected, name)}"
    if expected.layout is torch.strided and found.stride() != expected.stride():
        return f"strides {found.stride()} instead of {expected.stride()}"
    try:
        torch.testing.assert_close(found.detach().cpu(), expected.detach(), equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return None
