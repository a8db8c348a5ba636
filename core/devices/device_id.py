"""Device ids as people write them: `cpu`, `cuda`, `cuda:1`, `vgpu:0`. No torch, no thread."""

from __future__ import annotations

import re

from devexplorer.core.errors import BadInput

_PATTERN = re.compile(r"([a-z]+)(?::(\d{1,9}))?", re.ASCII)
_SINGLE = {"cpu", "mps"}
"""Kinds of which there is one; torch accepts `cpu:1` and means `cpu`, which is no second device."""


def parse_device(text: str, *, current: dict[str, int] | None = None) -> str:
    """Return the canonical id for what a person typed, without asking whether there is such a device.

    `cuda` without a number is the current device of that kind (`current["cuda"]`, else 0).

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
    return f"{kind}:{int(number) if number is not None else (current or {}).get(kind, 0)}"


def choose_device(text: str, available: list[str], *, current: dict[str, int] | None = None) -> str:
    """Return the id of an available device, or raise `BadInput` that lists those there are."""
    device = parse_device(text, current=current)
    if device in available:
        return device
    raise BadInput(
        f"there is no device '{device}' here; there {'is' if len(available) == 1 else 'are'} {', '.join(available)}",
        virtual_helps=not any(name.startswith("vgpu") for name in available),
    )
