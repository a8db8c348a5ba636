"""`devexplorer run`: a script runs as without it, and with --virtual as it would on cards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from devexplorer.core.base import USERS_PATH

SEEDS = Path(__file__).parent / "seeds"
RUN = (sys.executable, "-m", "devexplorer.core.cli", "run")


def run(*arguments: str | Path, given: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    """What it prints and how it ends."""
    command = [*RUN, *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


TWO = "2x Tesla T4"
LISTINGS = (
    ("first_tensors", TWO, "first_tensors"),
    ("moves", TWO, "moves"),
    ("moves", "3x Tesla T4", "moves_on_three_cards"),
    ("one_card", "2x GeForce RTX 3070 Laptop GPU", "one_card"),
    ("one_tensor", "Tesla T4", "one_tensor"),
    ("blocks", "Tesla T4", "blocks"),
    ("two_cards", TWO, "two_cards"),
)
"""Each with its cards, and the text that has what it prints on them."""


@pytest.mark.parametrize(("name", "cards", "shown"), LISTINGS)
def test_a_listing_of_the_tutorials_prints_what_it_prints_on_cards(name: str, cards: str, shown: str) -> None:
    done = run("--virtual", cards, SEEDS / f"{name}.py", env={**os.environ, "CUDA_VISIBLE_DEVICES": "7"})
    assert done.stdout == (SEEDS / f"{shown}.txt").read_text().replace("TORCH", str(torch.__version__))
    assert done.returncode == 0
    assert "(simulated)" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_saved_from_a_card_comes_back_to_it_and_what_is_not_as_on_a_card_is_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import copy
import torch
from torch import nn

x = torch.arange(3, dtype=torch.int32, device="cuda:1")
torch.save({"x": x}, "x.pt")
print(torch.load("x.pt")["x"], torch.load("x.pt", map_location="cpu")["x"], type(x), x[:0].float())
model = torch.compile(nn.Linear(3, 1)).cuda()
kinds = [type(model.weight)]
model.cpu().cuda(1).half()
kinds += [type(copy.deepcopy(model).weight), type(model.weight), type(model.weight.detach())]
print(*kinds)
tied = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8, bias=False))
tied[0].weight = tied[1].weight
tied.cuda().to("cuda:1").cpu().cuda()
print(tied[0].weight is tied[1].weight, nn.Parameter(tied[0].weight).device)
scaler = torch.amp.GradScaler()
optimizer = torch.optim.SGD(model.float().parameters(), lr=0.1)
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(x.float()).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
print(loss.dtype, model.weight.grad.device)
try:
    torch.zeros(1, device="cuda:3")
except torch.AcceleratorError as error:
    print(str(error).splitlines()[0])
    raise SystemExit(3)
""")
    done = run("--virtual", TWO, script, cwd=tmp_path)
    of_parameters = "<class 'torch.nn.parameter.Parameter'> " * 3
    assert done.stdout == (
        "tensor([0, 1, 2], device='cuda:1', dtype=torch.int32) tensor([0, 1, 2], dtype=torch.int32)"
        " <class 'torch.Tensor'> tensor([], device='cuda:1')\n"
        f"{of_parameters}<class 'torch.Tensor'>\nTrue cuda:0\n"
        "torch.float32 cuda:1\nCUDA error: invalid device ordinal\n"
    )
    assert done.returncode == 3
    assert "train.py:9: torch.compile: There is no compiler for virtual GPUs" in done.stderr
    assert "train.py:26: cuda:3: there is no such card" in done.stderr


ECHO = """import os, sys
print(sys.argv, __name__, sys.path[0], os.environ.get("PYTHONPATH"), "DEVEXPLORER_RUN" in os.environ)
print(sys.stdin.read())
if "fail" in sys.argv:
    1 / 0
sys.exit(7)
"""


@pytest.mark.parametrize("path", [None, "/somewhere"])
def test_arguments_input_variables_and_the_end_are_those_of_python(tmp_path: Path, path: str | None) -> None:
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    environ = {**os.environ, "PYTHONPATH": path} if path else {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for words in ([], ["--virtual", "x", "--report", "--", "z"], ["fail"]):
        with_us = run(script, *words, given="hello", env=environ)
        command = [sys.executable, str(script), *words]
        plain = subprocess.run(command, input="hello", capture_output=True, text=True, env=environ, check=False)
        assert (with_us.stdout, with_us.stderr, with_us.returncode) == (plain.stdout, plain.stderr, plain.returncode)


def test_a_module_and_a_command_that_starts_python(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    done = run("-m", "echo", "--rate", "3", cwd=tmp_path)
    assert done.stdout.startswith(f"['{tmp_path}/echo.py', '--rate', '3'] __main__")
    assert done.returncode == 7
    done = run("--", sys.executable, "-c", "import sys; sys.exit(5)")
    assert done.returncode == 5


def test_the_variable_of_the_user_counts_where_it_was_kept_from_a_process_of_ours(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = run("-m", "echo", cwd=tmp_path, env={**environ, USERS_PATH: "/somewhere"})
    assert done.stdout.split("\n")[0].endswith(" /somewhere False")


LOOKS_FIRST = """import gc
import importlib.util
found = importlib.util.find_spec("torch").origin
import torch
print(found == torch.__file__, torch.cuda.device_count(), torch.__spec__.loader.__class__.__name__, gc.isenabled())
"""


def test_a_script_that_asks_where_torch_is_before_it_imports_it_gets_the_cards(tmp_path: Path) -> None:
    script = tmp_path / "looks.py"
    script.write_text(LOOKS_FIRST)
    done = run("--virtual", TWO, script)
    assert (done.stdout, done.returncode) == ("True 2 SourceFileLoader True\n", 0)


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    done = run("-m", "timeit", "-n", "1", "-r", "1", "1", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.stdout.startswith("mine\n")


def test_an_interrupt_ends_the_script_as_it_would_without_us(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(60)")
    with subprocess.Popen([*RUN, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")


REFUSED = {
    (): "enter a script: devexplorer run train.py, or -m MODULE",
    ("nowhere.py",): "there is no file nowhere.py",
    ("json",): "there is no file json; to run a module: -m json",
    ("-m",): "-m needs the name of a module",
    ("--",): "enter a command after --",
    ("--", "no-such-command"): "there is no command no-such-command",
    ("--report", "/nowhere/run.json", __file__): "the report cannot be written: there is no folder /nowhere",
    ("--virtual", "Tesla T5", __file__): "there is no profile 'Tesla T5'; ",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_run_is_refused_in_a_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    from devexplorer.core.cli.run import main

    assert main(["run", *words]) == 2
    assert capsys.readouterr().err.startswith(f"devexplorer: {REFUSED[words]}")


def test_a_notebook_lets_windows_look_and_says_where_a_step_ends(tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    script.write_text("""
import os
import devexplorer
from torch import nn
from devexplorer.core.observe import inside
from devexplorer.core.observe.running import running

model = nn.Linear(2, 2)
devexplorer.step()
devexplorer.attach(model, name="cells")
devexplorer.attach(nn.ReLU())
print([(found.name, found.pid == os.getpid()) for found in running() if found.pid == os.getpid()])
observation = inside._running[os.getpid()].observation
print(observation.models() == [model])
for _ in range(8):
    devexplorer.step(samples=4)
child = os.fork()
if not child:
    print(len(inside._running), inside._running.get(os.getpid()))
    os._exit(0)
os.waitpid(child, 0)
report = observation.finish()
print(report.steps, report.samples, report.training)
""")
    command = [sys.executable, "-W", "ignore:This process", str(script)]  # that forks with a thread, of Python 3.12
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[('cells', True)]\nTrue\n1 None\n8 32 False\n"
    assert done.stderr == ""


def test_what_was_observed_is_written_as_json(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("""
import torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
raise SystemExit(4)
""")
    done = run("--report", "run.json", "train.py", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr.startswith("devexplorer: train.py: 12 steps in ")
    report = json.loads((tmp_path / "run.json").read_text())
    assert (report["schema"], report["script"], report["arguments"]) == (1, "train.py", ["--epochs", "1"])
    assert (report["steps"], report["models"][0]["name"], report["clock"]) == (12, "Linear", "cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "train.py"]


JOB = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.set_num_threads(1)
device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    if dist.get_rank() == 1:
        time.sleep(0.05)
    model(torch.ones(4, 8, device=device)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("words", [(), ("--virtual", TWO)], ids=["cpu", "vgpu"])
def test_the_ranks_of_a_job_are_observed_and_the_late_one_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "job.py").write_text(JOB)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "job.py"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = run(*words, "--report", "run.json", "--", *launcher, cwd=tmp_path, env=environ)
    assert done.returncode == 0, done.stderr
    reports = [json.loads((tmp_path / f"run-{rank}.json").read_text()) for rank in range(2)]
    assert [(report["rank"], report["ranks"], report["steps"]) for report in reports] == [(0, 2, 12), (1, 2, 12)]
    assert "all ranks wait for rank 1" in done.stderr
    assert done.stderr.count("devexplorer: job.py (rank ") == 2
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["run-0.json", "run-1.json"]
    assert not list(tmp_path.glob("devexplorer-job-*"))


def test_observing_takes_no_memory_of_the_card(tmp_path: Path) -> None:
    """Gradients that meet are added in place, and an error in backward arrives as it is."""
    script = tmp_path / "train.py"
    script.write_text("""
import sys
import torch
from torch import nn

if len(sys.argv) > 1:
    import devexplorer
    from devexplorer.core.virtual.cuda.emulation import CudaEmulation
    devexplorer.add_virtual_gpus("Tesla T4")
    CudaEmulation(1, spoken=True).__enter__()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(256, 256)

    def forward(self, x):
        return x * 2 + self.inner(x)


model = nn.Sequential(*(Residual() for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(512, 256, device="cuda", requires_grad=True)).square().sum()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(torch.cuda.max_memory_allocated())


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ torch.ones(3, 3, device="cuda")


try:
    Fails.apply(model(torch.ones(2, 256, device="cuda"))).sum().backward()
except RuntimeError as error:
    print(error)
""")
    bare = subprocess.run([sys.executable, str(script), "bare"], capture_output=True, text=True, check=True)
    observed = run("--virtual", "Tesla T4", script)
    assert observed.stdout == bare.stdout
    assert "cannot be multiplied" in bare.stdout
