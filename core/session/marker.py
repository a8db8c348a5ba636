"""The lines that mark in the plots when something was done. Main thread; no Qt, no torch."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base import objects_text
from devexplorer.core.records import MoveReport


class Marker(NamedTuple):
    """A vertical line in both plots."""

    time_unix_s: float
    text: str
    device: str | None
    kind: str = ""
    """`move`, `cast`, `copy`; empty for anything else."""


def marker_text(report: MoveReport) -> str:
    """`mlp → vgpu:0`, `mlp copied to vgpu:0`, `x cast to float16`; a cast that was undone is `x cast back`."""
    names = objects_text(report.objects)
    if report.kind == "cast":
        return f"{names} cast {f'to {report.dtype}' if report.dtype else 'back'}"
    there = f"copied to {report.destination}" if report.kind == "copy" else f"→ {report.destination}"
    return f"{names} {there}{f', {report.dtype}' if report.dtype else ''}"
