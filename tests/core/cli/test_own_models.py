"""`devexplorer place` and `bench model` on users' models: one line for each error, clean documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes.command_line import T4S, Document, Refusal, strictly
from fakes.other_models import SOURCES, TIED

from devexplorer.core.cli.arguments import cli_commands
from devexplorer.core.cli.run import main

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left")


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's file in the current folder."""
    path = tmp_path / "cli_nets.py"
    path.write_text(
        "import os, sys, torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, width=5):\n"
        "        super().__init__()\n"
        "        print('hello from the factory')\n"
        "        torch.set_default_dtype(torch.float64)\n"
        "        self.layer = nn.Linear(3, width, dtype=torch.float32)\n"
        "    def forward(self, x):\n"
        "        print('hello from the forward')\n"
        "        return {'y': self.layer(x)}\n"
        "def gone(): os._exit(0)\n"
        "class Leaves(nn.Linear):\n"
        "    def __init__(self): super().__init__(3, 2)\n"
        "    def forward(self, x): sys.exit(0)\n"
        "class Gone(Leaves):\n"
        "    def forward(self, x): os._exit(0)\n"
        "class Odd(Leaves):\n"
        "    def forward(self, x):\n"
        "        assert x.shape[1:] == (7, 3)\n"
        "        return super(Leaves, self).forward(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield path
    for name in [name for name in sys.modules if name.startswith("cli_nets")]:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["cli_nets:Net?width=4", "cli_nets.py:Net?width=4"])
def test_place_of_a_module_and_of_a_file(nets: Path, capfd: pytest.CaptureFixture[str], target: str) -> None:
    assert main(["place", target, "--json", "--virtual", T4S, "--device", "vgpu:1"]) == 0
    out, err = capfd.readouterr()
    rows = strictly(out)["rows"]
    assert [(row["path"], row["shape"], row["device"], row["dtype"]) for row in rows] == [
        ("layer.weight", [4, 3], "vgpu:1", "float32"), ("layer.bias", [4], "vgpu:1", "float32")]  # fmt: skip
    assert err == "hello from the factory\n"


def test_place_of_a_configuration(document: Document) -> None:
    content = document("place", SOURCES["llama-tiny"])
    first, second = TIED["llama-tiny"]
    assert {row["path"]: row["tied_to"] for row in content["rows"]}[second] == first


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("cli_nets:gone", "it called os._exit(0), which would have ended this process (cli_nets.py, line 12)"),
        ("cli_nets.py:Nett", "has no class or function 'Nett'; did you mean Net?"),
        ("absent.py:Net", "there is no file"),
        ("transformers:gpt2?layers=2", "has no 'layers'"),
        ("torchvision:resnet50", "torchvision is not installed"),
        ("cli nets:Net", "neither a module (package.module) nor a Python file"),
    ],
)
def test_each_fault_is_one_line(
    nets: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert words in refusal("place", target)


@pytest.mark.usefixtures("warm_processes")
@pytest.mark.parametrize("target", ["cli_nets.py", "cli_nets"])
@pytest.mark.parametrize("command", ["place", "doctor", "fit", "bench model"])
def test_a_file_or_module_without_a_name_is_told_what_is_in_it(
    nets: Path, refusal: Refusal, command: str, target: str
) -> None:
    if command.split()[0] not in cli_commands():
        pytest.skip("its feature is not there")
    told = refusal(*command.split(), target)
    assert f"'{target}' names no model; write {target}:Net or {target}:Leaves" in told


def bench(*argv: str) -> int:
    return main(["bench", "model", *argv, "--json", "--no-store", "--seconds", "0.02"])


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_bench_of_a_users_model_guesses_its_input(nets: Path, capfd: pytest.CaptureFixture[str], device: str) -> None:
    assert bench("cli_nets:Net", "--virtual", T4S, "--device", device, "--batch-size", "6", "--train") == 0
    out, err = capfd.readouterr()
    (run,) = strictly(out)["runs"]
    assert (run["target"], run["batch"], run["inputs"], run["failure"]) == ("cli_nets:Net", 6, None, None)
    assert set(err.splitlines()) == {"hello from the factory", "hello from the forward"}


def test_bench_takes_shapes_and_their_batch(nets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert bench("cli_nets:Odd", "--input", "4x7x3") == 0
    (run,) = strictly(capfd.readouterr().out)["runs"]
    assert (run["batch"], run["inputs"]) == (4, "4x7x3")
    assert run["flop_per_step"] == 2 * 4 * 7 * 3 * 2
    assert bench("cli_nets:Odd") == 2
    assert "its forward takes x, and no guess worked" in capfd.readouterr().err


@pytest.mark.parametrize(("target", "words"), [("Leaves", "sys.exit(0)"), ("Gone", "os._exit(0)")])
def test_a_forward_that_would_end_the_process_is_no_success(
    nets: Path, capfd: pytest.CaptureFixture[str], target: str, words: str
) -> None:
    assert bench(f"cli_nets:{target}", "--input", "2x3") == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err


ASKS = {
    ".cuda()": ("self.a.cuda()", {"a": "vgpu:0", "b": "cpu"}),
    "a name": ("self.to('cuda:1')", {"a": "vgpu:1", "b": "vgpu:1"}),
    "a number": ("self.b.to(1)", {"a": "cpu", "b": "vgpu:1"}),
    "asked first": ("self.to('cuda' if torch.cuda.is_available() else 'cpu')", {"a": "vgpu:0", "b": "vgpu:0"}),
    "data": ("self.a.weight.data = self.a.weight.data.cuda(1)", {"a": "vgpu:1", "b": "cpu"}),
    "a current card": ("torch.cuda.set_device(1); self.b.cuda()", {"a": "cpu", "b": "vgpu:1"}),
    "accelerate": (
        "from accelerate import dispatch_model; dispatch_model(self, {'p': 0, 'a': 0, 'b': 1})",
        {"p": "vgpu:0", "a": "vgpu:0", "b": "vgpu:1"},
    ),
}


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file whose models ask for CUDA while they are made: `Net?how=".cuda()"`."""
    lines = [
        "import torch",
        "from torch import nn",
        "class Net(nn.Module):",
        "    def __init__(self, how):",
        "        super().__init__()",
        "        self.p = nn.Parameter(torch.zeros(2))",
        "        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)",
        *(f"        if how == {how!r}: {code}" for how, (code, _) in ASKS.items()),
    ]
    (tmp_path / "asking_nets.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    yield "asking_nets.py:Net"
    sys.modules.pop("asking_nets", None)


@pytest.mark.parametrize("how", ASKS)
@pytest.mark.filterwarnings("ignore:The following device_map keys")
def test_place_gives_code_that_asks_for_cuda_the_virtual_gpus(
    asking: str, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    if how == "accelerate":
        pytest.importorskip("accelerate")
    assert main(["place", f"{asking}?how={how}", "--json", "--virtual", T4S]) == 0
    document = strictly(capfd.readouterr().out)
    devices = {row["path"].partition(".")[0]: row["device"] for row in document["rows"]}
    wanted = {"p": devices["p"], **ASKS[how][1]}
    assert devices == wanted
    order = [wanted[name] for name in ("p", "a", "b")]
    crossed = [(name, order[at], order[at + 1]) for at, name in enumerate("ab") if order[at] != order[at + 1]]
    assert [(one["path"], one["from"], one["to"]) for one in document["crossings"]] == crossed
    assert not torch.cuda.is_available() or torch.version.cuda


def test_code_that_asks_for_cuda_without_any_is_told_of_virtual_gpus(asking: str, refusal: Refusal) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert "try it with --virtual" in refusal("place", f"{asking}?how=.cuda()")


@pytest.mark.usefixtures("warm_processes")
def test_an_optimizer_that_was_left_on_the_card_is_found_on_every_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "left_nets.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def trained():\n"
        "    net = nn.Linear(4, 2).to('cuda')\n"
        "    optimizer = torch.optim.Adam(net.parameters())\n"
        "    net(torch.zeros(3, 4, device=net.weight.device)).sum().backward()\n"
        "    optimizer.step()\n"
        "    net.cpu()\n"
        "    net.optimizer = optimizer\n"
        "    return net\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["place", "left_nets.py:trained", "--json", "--virtual", T4S]) == 0
    (left,) = strictly(capfd.readouterr().out)["optimizers"]
    assert left == {"path": "optimizer", "state": "vgpu:0", "parameters": "cpu"}
    pytest.importorskip("devexplorer.core.doctor")
    for device in ("cpu", "vgpu:0", "vgpu:1"):
        assert main(["doctor", "left_nets.py:trained", "--json", "--device", device, "--virtual", T4S]) == 1
        problems = strictly(capfd.readouterr().out)["problems"]
        assert ("optimizer-before-move", 9) in {(one["rule"], one["line"]) for one in problems}, device
    sys.modules.pop("left_nets", None)
