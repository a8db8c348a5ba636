"""The stand-in for CUDA itself, in its environment: `FOLDER/cards h200,t4 python -m pytest tests/standin`. Each test is
a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]

if not os.environ.get("FAKE_CUDA_LEDGER"):
    pytest.skip("this is not the environment of docs/standin.md", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("warm_processes")

BEGIN = """
import ctypes, os, sys, torch
MIB = 1 << 20
def used(device):
    free, total = torch.cuda.mem_get_info(device)
    return total - free
def error(do):
    try:
        do()
    except Exception as problem:
        return f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
    return "no error"
class Nvml:
    def __init__(self):
        import pynvml
        pynvml.nvmlInit()
        self.all = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        self.ask = pynvml
    def processes(self, card):
        return {p.pid: p.usedGpuMemory for p in self.ask.nvmlDeviceGetComputeRunningProcesses(self.all[card])}
"""


@pytest.fixture
def on_cards(tmp_path: Path) -> Run:
    """Runs Python on cards with a ledger of the test's own; returns what it prints."""

    def run(code: str, models: str = "h200,t4", **variables: str) -> str:
        environment = {
            **os.environ,
            "FAKE_NVML_MODELS": models,
            "FAKE_CUDA_LEDGER": str(tmp_path / "ledger"),
            **variables,
        }
        environment = {name: value for name, value in environment.items() if value}
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_the_cards_are_those_of_nvml(on_cards: Run) -> None:
    said = on_cards("""
nvml = Nvml()
for i, handle in enumerate(nvml.all):
    about = torch.cuda.get_device_properties(i)
    assert nvml.ask.nvmlDeviceGetUUID(handle).removeprefix("GPU-") == str(about.uuid)
    assert nvml.ask.nvmlDeviceGetName(handle) == about.name
    memory = nvml.ask.nvmlDeviceGetMemoryInfo(handle, version=nvml.ask.nvmlMemory_v2)
    assert memory.total - memory.reserved == about.total_memory
    assert nvml.ask.nvmlDeviceGetCudaComputeCapability(handle) == torch.cuda.get_device_capability(i)
    print(about.name, about.multi_processor_count)
""")
    assert said.splitlines() == ["NVIDIA H200 132", "Tesla T4 40"]


def test_memory_and_contexts_are_counted_and_nvml_names_the_process(on_cards: Run) -> None:
    on_cards("""
nvml = Nvml()
assert torch.cuda.device_count() == 2 and nvml.processes(0) == nvml.processes(1) == {}, "a list makes no context"
held = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda:1")
assert nvml.processes(0) == {}, "no context on the other card"
assert nvml.processes(1) == {os.getpid(): (512 + 300) * MIB}
assert used(1) == (512 + 300) * MIB
del held
torch.cuda.empty_cache()
assert nvml.processes(1) == {os.getpid(): 512 * MIB}
""")


def test_another_process_takes_room_until_it_ends(on_cards: Run) -> None:
    on_cards("""
import subprocess
code = "import torch; x = torch.empty(13 << 30, dtype=torch.uint8, device='cuda:1'); print('has', flush=True); input()"
other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert other.stdout.readline() == "has\\n"
nvml = Nvml()
assert nvml.processes(1) == {other.pid: (13 * 1024 + 512) * MIB}
text = error(lambda: torch.empty(2 << 30, dtype=torch.uint8, device="cuda:1"))
assert text.startswith("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total"), text
other.kill()
other.stdin.close(), other.stdout.close()
os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # ended, and its parent has not taken notice
assert other.pid not in nvml.processes(1)
torch.empty(2 << 30, dtype=torch.uint8, device="cuda:1")
other.wait()
""")


def test_a_card_without_room_for_a_context(on_cards: Run) -> None:
    said = on_cards("print(error(lambda: torch.ones(1, device='cuda:1')))", FAKE_CUDA_CONTEXT_MIB="20000")
    assert said == "AcceleratorError: CUDA error: out of memory"


VISIBLE = (
    ("t4,h200", "", "", "H200 T4"),
    ("t4,h200", "", "PCI_BUS_ID", "T4 H200"),
    ("t4,h200", "1", "", "T4"),
    ("t4,h200", "1", "PCI_BUS_ID", "H200"),
    ("h200,t4,a100", "2,0", "PCI_BUS_ID", "A100 H200"),
    ("h200,t4", "GPU-fa4e0000-c0de-4000-8000-000000000002,0", "", "T4 H200"),
    ("h200,t4", "GPU-fa4e", "", ""),
    ("h200,t4", "1,7,0", "", "T4"),
    ("h200,t4", "0,0", "", ""),
    ("h200,t4", "-1", "", ""),
    ("h200,h200mig,t4", "", "", "H200 T4"),
)


@pytest.mark.parametrize(("models", "visible", "order", "seen"), VISIBLE)
def test_visible_devices_and_their_order(on_cards: Run, models: str, visible: str, order: str, seen: str) -> None:
    said = on_cards(
        "print(*(torch.cuda.get_device_name(i).split()[1] for i in range(torch.cuda.device_count())))",
        models,
        CUDA_VISIBLE_DEVICES=visible,
        CUDA_DEVICE_ORDER=order,
    )
    assert said == seen


START = (
    ({"FAKE_CUDA_INIT": "802"}, "system not yet initialized"),
    ({"FAKE_CUDA_INIT": "803"}, "unsupported display driver"),
    ({"FAKE_NVML_CUDA": "12080"}, "driver on your system is too old (found version 12080)"),
    ({"CUDA_VISIBLE_DEVICES": "9"}, "No CUDA GPUs are available"),
)


@pytest.mark.parametrize(("variables", "words"), START)
def test_a_driver_that_does_not_start(on_cards: Run, variables: dict[str, str], words: str) -> None:
    code = "import warnings\nwarnings.simplefilter('ignore')\nprint(error(lambda: torch.ones(1, device='cuda')))"
    assert words in on_cards(code, **variables)


STICKY = (214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 999)


@pytest.mark.parametrize("code", STICKY)
def test_a_sticky_error_of_a_kernel_shows_with_the_next_call_and_stays(on_cards: Run, code: int) -> None:
    on_cards(
        """
x = torch.ones(4, device="cuda:0")
y = torch.ones(4, device="cuda:1")
z = x + 1  # the second operator of this process on that card: its launch returns
first = error(lambda: z.cpu())
assert first.startswith("AcceleratorError: CUDA error: "), first
assert error(lambda: x + 1) == error(torch.cuda.synchronize) == first
torch.cuda.set_device(1)
assert torch.equal((y + 1).cpu(), torch.full((4,), 2.0)), "the other card's context is whole"
""",
        FAKE_CUDA_FAULTS=f"launch@0:2={code}",
    )


ORDERS = (
    ("copy:2=1", "AcceleratorError: CUDA error: invalid argument", "no error"),
    ("copy:2+=1", "AcceleratorError: CUDA error: invalid argument", "AcceleratorError: CUDA error: invalid argument"),
    ("copy@1:1=1", "no error", "no error"),
    (
        "copy:2=214",
        "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    ),
)


@pytest.mark.parametrize(("order", "second", "third"), ORDERS)
def test_a_copy_that_fails(on_cards: Run, order: str, second: str, third: str) -> None:
    said = on_cards("for _ in range(3): print(error(lambda: torch.ones(4).to('cuda:0')))", FAKE_CUDA_FAULTS=order)
    assert said.splitlines() == ["no error", second, third]


def test_memory_that_runs_out_on_the_way_and_orders_in_a_file(on_cards: Run, tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    said = on_cards(
        f"""
blocks = []
def more():
    blocks.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
print(error(more))
open({str(orders)!r}, "w").write("malloc:2+=2")
print(error(more), error(more)[:30], error(more)[:30])
os.unlink({str(orders)!r})
print(error(more), len(blocks))
""",
        FAKE_CUDA_FAULTS=str(orders),
    )
    out = "OutOfMemoryError: CUDA out of m"[:30]
    assert said.splitlines() == ["no error", f"no error {out} {out}", "no error 3"]


def test_a_lost_card_is_lost_for_cuda_and_nvml(on_cards: Run) -> None:
    on_cards("""
import mmap, struct
x = torch.ones(4, device="cuda:1")
nvml = Nvml()
with open(os.environ["FAKE_CUDA_LEDGER"], "r+b") as file, mmap.mmap(file.fileno(), 0) as ledger:
    ledger[4:8] = struct.pack("i", 1)  # card 1 of the ints at the beginning
assert "unknown error" in error(lambda: x.cpu())
assert "GPU is lost" in error(lambda: nvml.processes(1))
assert torch.ones(4, device="cuda:0").sum().item() == 4
""")


def test_streams_and_events_are_in_order_and_take_time(on_cards: Run) -> None:
    on_cards("""
a, b = torch.cuda.Stream(0), torch.cuda.Stream(0, priority=-1)
events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
x = torch.ones(500, 500, device="cuda:0")
with torch.cuda.stream(a):
    events[0].record()
    y = x @ x
    events[1].record()
b.wait_event(events[1])
with torch.cuda.stream(b):
    z = y.sum()
    events[2].record()
assert a.query() and b.query() and events[2].query() and b.priority < a.priority
first, second = events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])
assert first > 0 and second > 0 and z.item() == 500 ** 3
assert "Both events must be" in error(lambda: events[0].elapsed_time(torch.cuda.Event(enable_timing=True)))
""")


def test_peers(on_cards: Run) -> None:
    said = on_cards(
        "print(*(torch.cuda.can_device_access_peer(0, i) for i in (1, 2, 3)))",
        "h200,h200,t4,rtx4080",
        CUDA_DEVICE_ORDER="PCI_BUS_ID",
    )
    assert said == "True True False"


def test_a_wrong_index_is_an_assertion_in_a_kernel(on_cards: Run) -> None:
    said = on_cards("print(error(lambda: torch.nn.Embedding(4, 2).cuda()(torch.tensor([9]).cuda())))")
    assert said == "AcceleratorError: CUDA error: device-side assert triggered"


MIXED = (
    *("x + c", "x + n", "n * x", "x.add(c[0, 0])", "x.to('cuda:1') + x", "x.add_(n)", "c.add_(x)", "n.add_(x[0, 0])"),
    *("x / n", "x ** n", "n ** x", "x > n", "torch.maximum(x, n)", "torch.atan2(n, x)", "torch.bitwise_and(i, k)"),
    *("torch.where(m, n, x)", "torch.where(m, x, c)", "torch.where(n > 0, x, x)", "torch.where(m.cpu(), x, x)"),
    *("torch.clamp(x, n)", "torch.clamp(x, max=c)", "torch.addcmul(x, x, n)", "torch.addcmul(x, n, n)"),
    *("torch.addcdiv(x, x, n)", "torch.lerp(x, x, n)", "torch.lerp(x, x, c)", "F.mse_loss(x[0, 0], n)"),
    *("F.l1_loss(x, c)", "x.masked_fill(m, n)", "x.masked_fill(m.cpu(), 1.0)", "c.masked_fill(m, 1.0)"),
    *("x.fill_(n)", "x.fill_(c)", "torch.logical_and(n, x)", "torch.logical_and(x, n)", "F.huber_loss(x, n)"),
    *("x.index_fill(0, i, n)", "x.index_fill(0, i.cpu()[0], n)", "F.binary_cross_entropy(x[0, 0], n)"),
    *("x @ c", "c @ x", "torch.addmm(c, x, x)", "torch.addmm(x, x, c)", "F.linear(x, c)", "F.linear(x, x, c[0])"),
    *("torch.stack([x[0, 0], n])", "torch.cat([x, c])", "torch.outer(x[0], c[0])", "torch.dot(c[0], x[0])"),
    *("F.nll_loss(x, i.cpu())", "F.nll_loss(x[0], torch.tensor(1))", "F.embedding(i.cpu(), x)", "F.embedding(i, c)"),
    *("F.layer_norm(x, (3,), c[0])", "F.batch_norm(x, c[0], c[0])", "F.conv1d(x[None], c[None])", "F.prelu(x, n)"),
    *("F.conv1d(x[None], x[None], c[0])", "x.index_select(0, i.cpu())", "x.gather(0, k)", "x.index_add(0, i, c)"),
    *("x[i.cpu()]", "c[i]", "x[i.to('cuda:1')]", "x.index_put((i.cpu(),), n)", "x.index_put((i,), c)"),
    *("x.scatter(0, i[None], n)", "x.copy_(c)", "torch.searchsorted(x[0], c[0])", "torch.searchsorted(x[0], n)"),
    "torch.randn(2, device='cuda', generator=torch.Generator())",
)
"""x, m and i are on cuda:0, c and the number n on the CPU."""


def test_devices_are_mixed_as_torchs_own_kernels_mix_them(on_cards: Run) -> None:
    code = f"""
from torch.nn import functional as F
for expression in {MIXED!r}:
    c, n = torch.ones(3, 3), torch.tensor(1.0)
    x, m, i, k = c.cuda(), (c > 0).cuda(), torch.arange(3).cuda(), torch.tensor([[1, 2, 0]])
    said = error(lambda: eval(expression))
    print("refused" if "device" in said or "CPU scalars" in said or "type" in said else "taken", expression, said)
"""
    ours = on_cards(code).splitlines()
    theirs = on_cards(code, FAKE_CUDA_OPERATORS="torch").splitlines()
    assert len(ours) == len(MIXED)
    for mine, real in zip(ours, theirs, strict=True):
        if real.startswith("taken"):
            assert mine.endswith("no error"), real
        else:
            assert mine == real


MODELS = (
    "torch.nn.LSTM(4, 5, 2)",
    "torch.nn.GRU(4, 5, 2)",
    "torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)",
    "torch.nn.Sequential(torch.nn.Conv1d(6, 3, 2, padding=1), torch.nn.BatchNorm1d(3), torch.nn.Linear(5, 2))",
)


@pytest.mark.parametrize("model", MODELS)
def test_values_and_gradients_are_the_cpus(on_cards: Run, model: str) -> None:
    on_cards(f"""
import copy
here = {model}
there = copy.deepcopy(here).to("cuda:1")
x = torch.randn(7, 6, 4)
results = []
for model, given in ((here, x), (there, x.to("cuda:1"))):
    out = model(given)
    out = out[0] if isinstance(out, tuple) else out
    out.square().sum().backward()
    results.append([out.detach().cpu(), *(p.grad.cpu() for p in model.parameters())])
for mine, theirs in zip(*results):
    torch.testing.assert_close(mine, theirs)
""")


def test_what_is_not_implemented_fails_and_is_logged(on_cards: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "with torch.cuda.stream(torch.cuda.Stream()): print(error(lambda: torch.cuda.CUDAGraph().capture_begin()))"
    said = on_cards(code, FAKE_CUDA_LOG=str(log))
    assert "not supported" in said
    assert "cudaStreamBeginCapture" in log.read_text()


def test_a_forked_process_gets_the_error_of_cuda(on_cards: Run) -> None:
    said = on_cards("""
torch.ones(1, device="cuda")
if (child := os.fork()) == 0:
    print(error(lambda: torch.ones(1, device="cuda")), flush=True)
    os._exit(0)
os.waitpid(child, 0)
""")
    assert said.startswith("RuntimeError: Cannot re-initialize CUDA in forked subprocess")
