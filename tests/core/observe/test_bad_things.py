"""Scripts that do what makes observing hard: they print and end as without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MANY = """
import gc, io, os, subprocess, sys, threading, weakref
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())

def train(steps=6):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()

train()
print("a model", sum(p.double().sum().item() for p in model.parameters()).hex())

torch.multiprocessing.set_start_method("fork")  # from Python 3.14 on others are the default: they want `if __name__`
loader = DataLoader(TensorDataset(torch.arange(12.0)), batch_size=4, num_workers=2)
print("workers", [batch[0].sum().item() for batch in loader])

results = []
threads = [threading.Thread(target=lambda: results.append(model(torch.ones(2, 4)).shape)) for _ in range(3)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print("threads", results)

child = os.fork()
if not child:
    train()
    os._exit(5)
print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("process", subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(1).item())"],
      capture_output=True, text=True).stdout)

class Loud(io.StringIO):
    def write(self, text):
        return sys.__stdout__.write(text.upper())

sys.stdout = Loud()
print("replaced")
sys.stdout = sys.__stdout__
os.chdir("/")
print("folder", os.getcwd())

print("meta", nn.Linear(3, 3, device="meta")(torch.ones(1, 3, device="meta")).shape)
compiled = torch.compile(nn.Linear(4, 4), backend="eager")
print("compiled", compiled(torch.ones(2, 4)).shape, type(compiled).__name__)
scripted = torch.jit.trace(nn.Linear(4, 2), torch.ones(1, 4))
print("traced", scripted(torch.ones(1, 4)).shape)

gone = nn.Linear(3, 3)
gone(torch.ones(1, 3))
watched = weakref.ref(gone)
del gone
gc.collect()
print("deleted", watched() is None)
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
print("late", os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count() >= 0)

class Closure(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
    def forward(self, x):
        return (self.weight * x).sum()

closure = Closure()
lbfgs = torch.optim.LBFGS(closure.parameters(), max_iter=3)
def again():
    lbfgs.zero_grad()
    loss = (closure(torch.ones(2)) - 1) ** 2
    loss.backward()
    return loss
lbfgs.step(again)
print("closure", round(closure.weight.item(), 4))
try:
    model(torch.ones(2, 5))
except RuntimeError as error:
    print("a step that raises", str(error)[:40])
train(2)
generator = torch.Generator().manual_seed(1)
ours = any(name.startswith("devexplorer.core.virtual") for name in sys.modules)
print("modules", "torch.utils.flop_counter" in sys.modules, ours)  # without triton the first one warns
print("random", torch.rand(1, generator=generator).item(), torch.rand(1).item())
"""
ENDS = {
    "os._exit": ("import os, torch\nprint('x', flush=True)\nos._exit(9)", 9),
    "signal": ("import os, torch\nprint('x', flush=True)\nos.kill(os.getpid(), 11)", -11),
    "exec": ("import os, sys, torch\nos.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(6)'])", 6),
    "an exception": ("import torch\ndef f():\n    torch.ones(2) @ torch.ones(3)\nf()", 1),
    "a child that ends": ("import os, torch\nif not os.fork():\n    raise SystemExit(0)\nos.wait()\nprint('y')", 0),
    "no output": ("import sys, torch\nsys.stderr.close()\nsys.stdout.close()", 0),
    "another torch": ("import sys, types\nsys.modules['torch'] = types.ModuleType('torch')\nimport torch", 0),
    "no torch": (
        "import sys\nsys.path[:] = [p for p in sys.path if 'lib/python' in p and 'site-packages' not in p]\n"
        "try:\n    import torch\nexcept ImportError as error:\n    print(error)",
        0,
    ),
}


def both(script: Path, *, environ: dict[str, str] | None = None) -> list[subprocess.CompletedProcess[str]]:
    """What it does by itself, and observed."""
    start = ([sys.executable], [sys.executable, "-m", "devexplorer.core.cli", "run"])
    variables = {**os.environ, **(environ or {})}
    return [
        subprocess.run([*words, str(script)], capture_output=True, text=True, env=variables, timeout=120, check=False)
        for words in start
    ]


def test_what_makes_observing_hard_goes_on_as_without_it(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(MANY)
    bare, observed = both(script)
    assert bare.returncode == 0, bare.stderr
    assert (observed.stdout, observed.returncode) == (bare.stdout, 0), observed.stderr
    ours = observed.stderr[observed.stderr.index("devexplorer:") :]
    assert ours.startswith("devexplorer: many.py: 8 steps in ")
    assert "Not observed completely" not in ours


@pytest.mark.parametrize("name", ENDS)
def test_a_script_ends_as_without_it(tmp_path: Path, name: str) -> None:
    text, code = ENDS[name]
    script = tmp_path / "ends.py"
    script.write_text(text)
    bare, observed = both(script, environ={"PYTHONWARNINGS": "ignore:This process"})  # forks with a thread, of 3.12
    assert bare.returncode == code
    assert (observed.stdout, observed.stderr, observed.returncode) == (bare.stdout, bare.stderr, code)


def test_a_script_goes_on_where_observing_cannot_begin(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nsys.argv = None\nimport torch\nfrom torch import nn\n"
        "print(nn.Linear(1, 1)(torch.ones(1, 1)).shape)"
    )
    bare, observed = both(script)
    assert (observed.stdout, observed.returncode) == (bare.stdout, 0) == ("torch.Size([1, 1])\n", bare.returncode)
    assert observed.stderr == (
        "devexplorer: the script is not observed: TypeError: 'NoneType' object is not subscriptable\n"
    )


def test_a_script_runs_where_no_folder_can_have_its_socket(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import devexplorer.core.machines.host.finding as finding\n"
        "finding.folders = lambda environ=None: ['/dev/null/x']\n"
        "import torch\nfrom torch import nn\nprint(nn.Linear(1, 1)(torch.ones(1, 1)).shape)"
    )
    _, observed = both(script)
    assert observed.stdout == "torch.Size([1, 1])\n"
    assert "Not observed completely: HostError: there is no folder for the socket" in observed.stderr
