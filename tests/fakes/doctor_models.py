"""Small models for the doctor, from the tables in tests/doctor_models.

A section begins with `=== name`; comments say what its user sees and how to examine it (`# input: 4x12`, `# train`,
`# dtype: float16`, `# device: vgpu:1`, `# virtual: 2x Tesla T4`, `# needs: accelerate`). Then the code: what `__init__`
of `Net` does, `---` with the arguments of forward where there are others than `x`, what forward does; with `---` before
all of that for what stands above the class; or one of the two; or the whole file. A line with a defect ends in
`# defect: RULE`; `# also: RULE` names an error that the same model has besides. In the other tables,
`# finds: …` and what follows it are about the lines that end in `# <-`."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cached_property
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
HEAD = "import torch\nfrom torch import nn\n{}\n"
FRAME = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {given}):
{forward}
"""
DIRECTIVES = {
    "input", "train", "dtype", "device", "virtual", "needs", "also",
    "finds", "notes", "unchecked", "says", "fix", "count", "bytes", "hop", "on", "run", "again", "unrecorded",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One model."""

    name: str
    text: str
    """Its file."""
    directives: dict[str, str]

    @cached_property
    def defects(self) -> frozenset[tuple[str, int]]:
        """Rule and line."""
        marks = ((number, re.search(r"# defect: ([\w-]+)$", line)) for number, line in enumerate(self.lines, 1))
        return frozenset((mark[1], number) for number, mark in marks if mark)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def file(self) -> str:
        return re.sub(r"\W+", "_", self.name) + ".py"

    def request(self, folder: Path) -> DoctorRequest:
        """Its options; `file` is in that folder."""
        given = self.directives
        return DoctorRequest(
            source=f"{self.file}:{'make' if re.search(r'(?m)^def make', self.text) else 'Net'}",
            folder=str(folder),
            device=given.get("device", "vgpu:0"),
            virtual=given.get("virtual", "2x Tesla T4"),
            train="train" in given,
            inputs=given.get("input", ""),
            dtype=given.get("dtype"),
        )


def cases(kind: str, init: str = "", forward: str = "return x") -> list[Case]:
    """Those of a table: with what every `__init__` does first, and forward where a section says nothing about it."""
    sections = re.split(r"(?m)^=== ", (FOLDER / f"{kind}.txt").read_text())[1:]
    return [_read(section, init, forward) for section in sections]


def _read(section: str, init: str, forward: str) -> Case:
    name, *lines = section.rstrip().split("\n")
    directives: dict[str, str] = {}
    while lines[0].startswith("#"):
        key, _, value = lines.pop(0).removeprefix("# ").partition(": ")
        if key in DIRECTIVES:
            directives[key] = f"{directives[key]}\n{value}" if key in directives else value
    code = "\n".join(lines) + "\n"
    parts = re.split(r"(?m)^---(.*)\n", code)
    if len(parts) == 1 and re.search(r"(?m)^(class|def) ", code):
        return Case(name, HEAD.format(code), directives)
    head, given = "", ""
    if len(parts) == 1:
        own, run = ("", code) if re.search(r"(?m)^return ", code) else (code, "")
    elif len(parts) == 3:
        own, given, run = parts
    else:
        head, _, own, given, run = parts
    frame = FRAME.format(
        init=textwrap.indent(f"{init}\n{own}".strip() or "pass", 8 * " "),
        given=given.strip() or "x",
        forward=textwrap.indent(run.rstrip() or forward, 8 * " "),
    )
    return Case(name, HEAD.format(head) + frame, directives)
