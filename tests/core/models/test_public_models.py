"""The trial of public models, on two made-up repositories: its output, counts and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("warm_processes")

SCRIPT = Path(__file__).parents[2] / "soak" / "public_models.py"
NET = """
import os
import torch
import viewer.colours
from torch import nn
from viewer import show

class Net(nn.Module):
    def __init__(self, defect=False):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.defect = defect

    def forward(self, x):
        return self.layer(x) + (torch.ones(4) if self.defect else 0)

class Spare(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(4, 4)

class Installs(Net):
    def __init__(self):
        super().__init__()
        os.system("exit 1")
"""
TRAINS = """
from net import Net

class Small(Net):
    pass

raise SystemExit("it would train now")
"""


def entry(repository: str, before: str, make: str) -> dict[str, object]:
    return {
        "repository": repository,
        "folder": "",
        "before": before,
        "make": make,
        "inputs": "2x4",
        "empty": ["viewer"],
    }


def test_a_trial_counts_what_the_doctor_says_of_each_model(tmp_path: Path) -> None:
    for name in ("some+nets", "other+nets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(NET)
    (tmp_path / "some+nets" / "train.py").write_text(TRAINS)
    table = [
        entry("some/nets", "from net import *", "Net()"),
        entry("some/nets", "from net import *", "Net(defect=True)"),
        entry("some/nets", "from net import *", "Spare()"),
        entry("some/nets", "CLASSES train.py ", "Small"),
        entry("other/nets", "from net import *", "Installs()"),
        entry("absent/nets", "from net import *", "Net()"),
    ]
    (tmp_path / "table.json").write_text(json.dumps(table))
    options = ["--table", str(tmp_path / "table.json"), "--json", str(tmp_path / "said.jsonl")]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), *options], capture_output=True, text=True, check=True
    )
    line = next(number for number, text in enumerate(NET.splitlines(), 1) if "torch.ones" in text)
    assert f"error default-device {tmp_path / 'some+nets' / 'net.py'}:{line} " in ran.stdout
    assert (
        "failed: other/nets Installs(): BadInput: not made: FileNotFoundError: os.system: no process is started here"
        in ran.stdout
    )
    assert "note no-gradient " in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith(
        "4 models of 1 repositories: 3 clean, 1 lines with a finding, 1 notes, "
    )
    assert len((tmp_path / "said.jsonl").read_text().splitlines()) == 5
