"""Parameters that are spread over two ranks (FSDP, DTensor, DistributedDataParallel): the same values as without us, on
the CPU and on virtual GPUs, and each rank says what it holds itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

JOB = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
rank, kind = dist.get_rank(), "cuda" if torch.cuda.is_available() else "cpu"
device = torch.device(f"cuda:{rank}" if kind == "cuda" else "cpu")
if kind == "cuda":
    torch.cuda.set_device(device)


def say(text):
    os.write(1, f"{text}\\n".encode())  # whole, though two ranks have one output


def train(name, model, inputs):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(8):
        loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss = getattr(loss, "full_tensor", lambda: loss)()
    first = next(model.parameters())
    say(f"{name} {rank} {loss.item().hex()} {first.device == device}")


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))


mesh = init_device_mesh(kind, (2,))
say(f"{mesh.device_type == kind} {repr(mesh).replace(kind, 'kind')}")
sharded = net()
for layer in (sharded[0], sharded[2], sharded):
    fully_shard(layer, mesh=mesh)
train("fsdp", sharded, torch.ones(4, 8, device=device))

with torch.device("meta"):
    late = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
fully_shard(late, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
late.to_empty(device=device)
for parameter in late.parameters():
    nn.init.uniform_(parameter, -0.5, 0.5)
train("mixed", late, torch.ones(4, 8, device=device))

spread = net()
for layer in (spread[0], spread[2]):
    layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach().to(device), mesh, [Shard(0)]))
    layer.bias = nn.Parameter(distribute_tensor(layer.bias.detach().to(device), mesh, [Replicate()]))
train("dtensor", spread, distribute_tensor(torch.ones(4, 8, device=device), mesh, [Replicate()]))
train("ddp", nn.parallel.DistributedDataParallel(net().to(device)), torch.ones(4, 8, device=device))

from devexplorer.core.workspace.placement import snapshot  # as a window has it

seen = snapshot("net", sharded)
say(f"window {rank} {[(row.type, row.shape, row.bytes) for row in seen.rows if row.kind == 'parameter'][:2]}")
dist.barrier()
dist.destroy_process_group()
"""

OF_TORCH = "terminate called without an active exception"
"""Without us, too, one in ten of these jobs of gloo ends so after its last line."""


def job(folder: Path, *words: str) -> tuple[list[str], str]:
    """What its ranks print, sorted, and standard error."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "job.py"]
    ours = [sys.executable, "-m", "devexplorer.core.cli", "run", *words, "--"] if words else []
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    for _ in range(4):
        done = subprocess.run(
            [*ours, *launcher], cwd=folder, env=environ, capture_output=True, text=True, timeout=180, check=False
        )
        if OF_TORCH not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr


def test_spread_parameters_train_to_the_same_values_and_each_rank_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    bare, _ = job(tmp_path)
    assert len(bare) == 2 + 4 * 2 + 2
    row = "('DTensor, 8×8 here', (16, 8), 256), ('DTensor, 8 here', (16,), 32)"
    assert bare[-2:] == [f"window {rank} [{row}]" for rank in range(2)]
    observed, errors = job(tmp_path, "--report", "cpu.json")
    assert observed == bare
    assert "Not observed completely" not in errors
    simulated, errors = job(tmp_path, "--report", "vgpu.json", "--virtual", "2x Tesla T4")
    assert simulated == bare
    assert "random numbers of a DTensor: Each rank draws its own part by itself" in errors
    for rank in range(2):
        for name, device in (("cpu", "cpu"), ("vgpu", f"cuda:{rank}")):
            report = json.loads((tmp_path / f"{name}-{rank}.json").read_text())
            held = {model["name"]: model for model in report["models"]}
            assert list(held) == ["FSDPSequential", "Sequential", "DistributedDataParallel"], held
            assert held["FSDPSequential"]["parameters"] == 246
            assert held["FSDPSequential"]["bytes_by_device"] == {device: 246 * 4 // 2}, "half of it is here"
            assert held["FSDPSequential"]["gradient_bytes"] == {device: 246 * 4 // 2}
            assert held["Sequential"]["bytes_by_device"] == {device: (224 // 2 + 22) * 4}, "biases are on both ranks"
            assert held["DistributedDataParallel"]["bytes_by_device"] == {device: 246 * 4}
