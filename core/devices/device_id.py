"""Device ids as people write them: `cpu`, `cuda`, `cuda:1`, `vgpu:0`. No torch, no thread."""

from __future__ import annotations

import re

from devexplorer.core.base import BadInput

_PATTERN = re.compile(r"([a-z]+)(?::(\d{1,9}))?", re.ASCII)
_SINGLE = {"cpu", "mps"}
"""Kinds of which there is one; torch accepts `cpu:1` and means `cpu`."""

_OWN_MODULE = {"cuda", "xpu", "mps", "vgpu"}
"""Kinds whose module has what `torch.cuda` has."""


def torch_module(kind: str) -> str:
    """Where a person finds torch's functions for a kind: in its own module, or in the generic one where that may lack
    them.

    >>> torch_module("cuda"), torch_module("npu")
    ('torch.cuda', 'torch.accelerator')
    """
    return f"torch.{kind}" if kind in _OWN_MODULE else "torch.accelerator"


def parse_device(text: str) -> str:
    """Return the canonical id for what a person typed, without asking whether there is such a device.

    `cuda` without a number is the first device of that kind.

    >>> parse_device("CUDA"), parse_device("cpu")
    ('cuda:0', 'cpu')
    """
    match = _PATTERN.fullmatch(text.strip().lower())
    if match is None:
        raise BadInput(f"'{text}' is no device; devices are written like cpu, cuda:0 or vgpu:1")
    kind, number = match.groups()
    if kind in _SINGLE:
        if number not in (None, "0"):
            raise BadInput(f"there is only one {kind} (torch takes '{text}' for '{kind}'); write '{kind}'")
        return kind
    return f"{kind}:{int(number or 0)}"


def choose_device(text: str, available: list[str]) -> str:
    """Return the id of an available device, or raise `BadInput` that lists those there are."""
    device = parse_device(text)
    if device in available:
        return device
    raise BadInput(
        f"there is no device '{device}' here; there {'is' if len(available) == 1 else 'are'} {', '.join(available)}",
        virtual_helps=not any(name.startswith("vgpu") for name in available),
    )
