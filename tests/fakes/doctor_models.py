"""Models with defects: reads the files of `tests/doctor_models`, the options for examining each and the defects of its
lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from devexplorer.core.records import DoctorRequest

FOLDER = Path(__file__).parents[1] / "doctor_models"
PLAIN_TENSOR = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.scale = torch.ones(4)

    def forward(self, x):
        return self.layer(x) * self.scale
"""
"""A file whose model keeps a tensor as a plain attribute, which stays behind when the model moves."""


@dataclass(frozen=True)
class Case:
    """One parsed file."""

    file: Path
    directives: dict[str, str]
    defects: frozenset[tuple[str, int]]
    """Rule and line."""

    @property
    def request(self) -> DoctorRequest:
        """Its options."""
        factory = "make" if re.search(r"(?m)^def make\(", self.file.read_text()) else "Net"
        given = self.directives
        return DoctorRequest(
            source=f"{self.file.name}:{factory}",
            folder=str(self.file.parent),
            device=given.get("device", "vgpu:0"),
            virtual=given.get("virtual", "2x Tesla T4"),
            train="train" in given,
            inputs=given.get("input", ""),
            dtype=given.get("dtype"),
        )


def read(file: Path) -> Case:
    """Its first lines and the marks at the ends of its lines."""
    lines = file.read_text().splitlines()
    directives: dict[str, str] = {}
    for line in lines[1:]:
        found = re.fullmatch(r"# (\w+)(?:: (.+))?", line)
        if found is None:
            break
        directives[found[1]] = found[2] or ""
    marked = ((number, re.search(r"# defect: ([\w-]+)$", line)) for number, line in enumerate(lines, 1))
    return Case(file, directives, frozenset((mark[1], number) for number, mark in marked if mark))


def files(kind: str) -> list[Path]:
    """Those that are `broken` or `clean`, in order."""
    return sorted((FOLDER / kind).glob("*.py"))
