"""Names of devices, files, hosts, processes and models come from elsewhere: every command prints them as they are, and
nothing in them is read as colour, emoji or a terminal's code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.command_line import T4S
from fakes.nvml import FakeCard, FakeNvml

from devexplorer.core.cli import bench as bench_module
from devexplorer.core.cli import devices as devices_module
from devexplorer.core.cli import env as env_module
from devexplorer.core.cli.run import main
from devexplorer.core.cli.terminal import console, table
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.feature import features
from devexplorer.core.watch import command as watch_module

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left", "cpu_build")

NAME = "[/red]:cat:[bold]\x1b[2J"
SHOWN = "[/red]:cat:[bold]?[2J"
MODEL = """
import torch
from torch import nn

class Scaled(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.factor = torch.ones(2)

    def forward(self, x):
        return super().forward(x) * self.factor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"[bold]x[/red]": Scaled()})

    def forward(self, x):
        return self.inner["[bold]x[/red]"](x)

def plain():
    return nn.Linear(3, 2)
"""
"""A tensor of `Net` stays behind, which the doctor finds in a layer of such a name."""


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints that succeeds, or finds something."""

    def run(*argv: str) -> str:
        assert main(list(argv)) in (0, 1)
        out = capfd.readouterr().out
        assert "\x1b" not in out
        assert "\N{CAT}" not in out
        return out

    return run


@pytest.fixture
def named_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card whose driver gives it that name, on which that process runs."""
    for module in (devices_module, env_module, watch_module, bench_module):
        if hasattr(module, "Nvml"):
            monkeypatch.setattr(
                module, "Nvml", lambda **_: Nvml(FakeNvml(FakeCard(name=NAME, compute=[(os.getpid(), 1 << 30)])))
            )


@pytest.fixture
def named_model(tmp_path: Path) -> str:
    """A file in a folder of that name, whose model has a layer of such a name."""
    file = tmp_path / "[/red]:cat:" / "net.py"
    file.parent.mkdir(parents=True)
    file.write_text(MODEL)
    return str(file)


@pytest.mark.usefixtures("named_card")
@pytest.mark.parametrize("argv", [["devices"], ["devices", "--details"], ["env"], ["watch", "--count", "1"]])
def test_the_name_of_a_card(argv: list[str], printed: Callable[..., str]) -> None:
    assert SHOWN in printed(*argv)


@pytest.mark.usefixtures("warm_processes")
def test_the_file_and_the_layers_of_a_model(named_model: str, printed: Callable[..., str]) -> None:
    net, plain = f"{named_model}:Net", f"{named_model}:plain"
    assert "inner.[bold]x[/red].weight" in printed("place", net)
    if "doctor" in features():
        assert "inner.[bold]x[/red]" in printed("doctor", net, "--input", "4x3", "--virtual", T4S)
    if "planner" in features():
        assert plain in printed("fit", plain, "--gpu", "Tesla T4", "--input", "4x3")
    if "model_steps" in features():
        assert plain in printed(
            "bench", "model", plain, "--input", "4x3", "--device", "cpu", "--seconds", "0.1", "--no-store"
        )


def test_whatever_is_printed_in_a_table_or_beside_one(capfd: pytest.CaptureFixture[str]) -> None:
    rows = table(NAME, f">{NAME}", title=NAME)
    rows.add_row(NAME, f"two\n{NAME}")
    out = console()
    out.print(rows)
    out.print(NAME, style="dim")
    printed = capfd.readouterr().out
    assert printed.count(SHOWN) == 6
    assert "\x1b" not in printed
    assert "two\n" in printed.replace(" ", "")
