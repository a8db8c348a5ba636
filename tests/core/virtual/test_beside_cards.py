"""Virtual GPUs and CUDA cards are never in one process: torch takes a registered backend for its accelerator, and every
backward on a card fails from then on. Each case has a process of its own: nothing takes a registration back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fakes.virtual import needs_virtual_gpus

from devexplorer.core.base import module_command, without_cards
from devexplorer.core.isolation import worker

WAIT_S = 120.0
HAS_CARD = "T4 = DeviceInfo(id='cuda:0', kind='cuda', name='Tesla T4', usable={usable})"
PLAYED = """
import torch
from torch import nn
from devexplorer.core.base import DevExplorerError
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import DeviceInfo
{card}
real = TorchBackend.devices
TorchBackend.devices = lambda self: (*real(self), T4)
"""
TRY = """
from devexplorer.core.base import DevExplorerError
for way in {ways}:
    try:
        exec(way)
        print("done")
    except DevExplorerError as error:
        print("refused:", error)
print(torch._C._get_privateuse1_backend_name())
"""
WAYS = {
    "install": "from devexplorer.core.virtual.backend import install; install()",
    "script": "import devexplorer; devexplorer.add_virtual_gpus('Tesla T4')",
    "own test": "import devexplorer; devexplorer.assert_placement_clean(nn.Linear(3, 4), 'vgpu:0', '2x3')",
    "engine": "from devexplorer.core.engine.engine import LocalEngine; LocalEngine('Tesla T4').close()",
    "planner": "from devexplorer.core.planner.run import Measuring; Measuring([])",
}
ON_A_CARD = """
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)).to("cuda:0")
model(torch.ones(2, 3, device="cuda:0")).sum().backward()
print(model[0].weight.grad.device, flush=True)
import os
os._exit(0)
"""


def run(script: str, environ: dict[str, str] | None = None) -> list[str]:
    """The lines that a script prints in a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_virtual_gpus
def test_beside_a_usable_card_nothing_registers_them_and_one_line_says_what_to_do() -> None:
    script = PLAYED.format(card=HAS_CARD.format(usable=True)) + TRY.format(ways=list(WAYS.values()))
    *said, backend = run(script)
    assert len(said) == len(WAYS)
    for line in said:
        assert line.startswith("refused: ")
        assert "cuda:0" in line
        assert "CUDA_VISIBLE_DEVICES=" in line
    assert backend == "privateuseone"


@needs_virtual_gpus
def test_a_card_that_torch_cannot_use_is_no_obstacle() -> None:
    script = PLAYED.format(card=HAS_CARD.format(usable=False)) + TRY.format(ways=[WAYS["script"]])
    assert run(script) == ["done", "vgpu"]


@needs_virtual_gpus
def test_a_process_that_has_used_cuda_is_left_alone_although_no_card_is_listed_any_more() -> None:
    used = "import torch\nfrom torch import nn\ntorch.cuda.is_initialized = lambda: True\n"
    said, backend = run(used + TRY.format(ways=[WAYS["script"]]))
    assert said.startswith("refused: ")
    assert "this process can use CUDA" in said
    assert backend == "privateuseone"


@pytest.mark.parametrize("virtual", [True, False])
def test_a_child_for_virtual_gpus_has_no_cards(virtual: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    seen: list[dict[str, str] | None] = []

    class Stop(Exception):
        pass

    def start(module: str, envelope: object, environ: dict[str, str] | None) -> None:
        seen.append(environ)
        raise Stop

    monkeypatch.setattr(worker, "_start", start)
    with pytest.raises(Stop):
        worker.run_in_subprocess("m", worker.Envelope("", 0, 0, None), dict, title="x", seconds=1, virtual=virtual)  # type: ignore[arg-type,type-var]
    (environ,) = seen
    if virtual:
        assert environ is not None
        assert (environ["CUDA_VISIBLE_DEVICES"], environ["HIP_VISIBLE_DEVICES"]) == ("", "")
    else:
        assert environ is None, "as this process has it"


# --- where there is a card


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine or this torch has no CUDA device")
def test_a_backward_on_a_card_works_whatever_was_tried_before() -> None:
    tried = "import torch\nfrom torch import nn\n" + TRY.format(ways=list(WAYS.values()))
    assert run(tried + ON_A_CARD)[-1] == "cuda:0"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine or this torch has no CUDA device")
@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("doctor", "lenet", "--train"), "lenet on cuda:0"),
        (("doctor", "lenet", "--train", "--virtual", "Tesla T4"), "lenet on vgpu:0"),
        (("doctor", "lenet", "--train", "--device", "vgpu:1"), "lenet on vgpu:1"),
        (("place", "lenet", "--device", "vgpu:0", "--virtual", "Tesla T4"), "vgpu:0 (simulated)"),
    ],
)
def test_commands_work_on_cards_and_on_virtual_gpus_in_their_own_process(
    arguments: tuple[str, ...], where: str
) -> None:
    command = module_command("devexplorer.core.cli", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert where in done.stdout
    assert ("not use" in done.stderr or ", not " in done.stderr) == ("--virtual" in arguments)


@needs_virtual_gpus
def test_a_process_without_cards_has_both_names_of_the_variable_and_no_compiler_is_imported_for_virtual_gpus() -> None:
    environ = without_cards({**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"})
    script = """import sys, torch
from devexplorer.core.virtual.backend import add_virtual_gpus
print(torch.cuda.is_available(), add_virtual_gpus("Tesla T4"))
print("torch._dynamo" in sys.modules, "torch._inductor" in sys.modules)"""
    assert run(script, environ) == ["False ['vgpu:0']", "False False"]
