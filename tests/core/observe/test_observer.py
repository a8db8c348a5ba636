"""Scripts are observed: what slows each is named, nothing that they can see differs, and each trap is stepped over."""

from __future__ import annotations

import gc
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from devexplorer.core.observe.clocks import EventClock, _RunQueue, _Simulating
from devexplorer.core.observe.late_rank import late_rank
from devexplorer.core.observe.memory import virtual_machine
from devexplorer.core.observe.phases import FORWARD, INPUT, OPTIMIZER, REST, StepFold
from devexplorer.core.observe.places import is_compiled, stack_of
from devexplorer.core.observe.records import RunReport
from devexplorer.core.virtual.operators.backward import is_engine_calling

HERE = Path(__file__).parent
SLOW = HERE / "slow"
WANTED = json.loads((SLOW / "wanted.json").read_text())
HEAD = """
import torch
from torch import nn
from devexplorer.core.observe import hooks
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
inputs = torch.randn(4, 8)
def train(optimizer, steps, model=model):
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
"""


def observed(folder: Path, name: str, *arguments: str, **variables: str) -> list[dict[str, Any]]:
    """What was seen of each script."""
    output = folder / f"{name}.json"
    command = [sys.executable, str(HERE / "observed.py"), str(output), *arguments]
    subprocess.run(command, check=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"} | variables)
    return [json.loads(line) for line in output.read_text().splitlines()]


def _agrees(name: str, seen: dict[str, Any]) -> str:
    """Empty, or how the verdict on a slow script differs from what was wanted."""
    wanted, verdict = WANTED[name], seen["report"]["verdict"]
    said = " ".join([verdict["text"], *verdict["evidence"]]).lower()
    right = verdict["kind"] == wanted["kind"] and all(word in said for word in wanted["says"])
    return "" if right else f"{name}: {verdict['kind']}: {said}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("observed")


@pytest.fixture(scope="module")
def slow(folder: Path) -> dict[str, dict[str, Any]]:
    """What was seen of all slow scripts that run in one process."""
    plain = [name for name, wanted in WANTED.items() if "virtual" not in wanted and "ranks" not in wanted]
    cards = [name for name, wanted in WANTED.items() if "virtual" in wanted]
    seen = observed(folder, "plain", *(str(SLOW / f"{name}.py") for name in plain))
    seen += observed(folder, "cards", "--virtual", "Tesla T4", *(str(SLOW / f"{name}.py") for name in cards))
    return dict(zip([*plain, *cards], seen, strict=True))


def test_what_slows_a_script_is_named(slow: dict[str, dict[str, Any]]) -> None:
    wrong = [text for text in (_agrees(name, seen) for name, seen in slow.items()) if text]
    assert len(wrong) <= 1, wrong
    assert all(not seen["raised"] and not seen["report"]["problems"] for seen in slow.values())


def test_reports_are_read_as_they_were_written_and_summed_up_in_a_few_lines(slow: dict[str, dict[str, Any]]) -> None:
    for seen in slow.values():
        report = msgspec.convert(seen["report"], RunReport)
        assert report.schema == 1
        assert sum(phase.share for phase in report.phases) == pytest.approx(1)
        assert 4 <= len(seen["lines"]) <= 12
        assert report.verdict.text in "\n".join(seen["lines"])
    cards = msgspec.convert(slow["07_layer_left_on_the_cpu"]["report"], RunReport)
    assert cards.clock == "simulated"
    assert cards.models[0].bytes_by_device == {
        "cuda:0": 4 * (2 * (256 * 256 + 256) - 65792 + 16 * 257),
        "cpu": 4 * 65792,
    }
    assert {place.device for place in cards.parameters if place.name.startswith("middle")} == {"cpu"}
    assert next(use for use in cards.memory if use.device == "cuda:0").peak_allocated_bytes
    adam = msgspec.convert(slow["09_optimizer_bound"]["report"], RunReport)
    (model,) = adam.models
    assert model.gradient_bytes == {"cpu": 4 * model.parameters}
    assert model.optimizer_bytes["cpu"] >= 8 * model.parameters


def test_a_rank_that_all_others_wait_for_is_named(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    script = str(SLOW / "06_straggling_rank.py")
    other = subprocess.Popen(
        [sys.executable, str(HERE / "observed.py"), str(folder / "rank1.json"), script],
        env=os.environ | variables | {"RANK": "1"},
    )
    (first,) = observed(folder, "rank0", script, RANK="0", **variables)
    assert other.wait(60) == 0
    second = json.loads((folder / "rank1.json").read_text())
    reports = [msgspec.convert(seen["report"], RunReport) for seen in (first, second)]
    assert [report.rank for report in reports] == [0, 1]
    assert reports[0].verdict.kind == "rank-late"  # by itself it knows that it waits, and not for whom
    verdict = late_rank(reports)
    assert verdict is not None
    assert verdict.kind == WANTED["06_straggling_rank"]["kind"]
    assert "rank 1" in verdict.text
    assert late_rank([reports[0], msgspec.structs.replace(reports[0], rank=1)]) is None  # nobody is late
    assert late_rank(reports[:1]) is None


def test_nothing_that_a_script_can_see_differs(folder: Path) -> None:
    (seen,) = observed(folder, "same", str(HERE / "same.py"))
    bare = f"import runpy, torch; runpy.run_path({str(HERE / 'same.py')!r}, run_name='__main__')"
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", bare], capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    assert seen["printed"] == done.stdout
    assert seen["report"]["problems"] == []
    assert seen["report"]["steps"] > 20


TRAPS: dict[str, tuple[str, str]] = {
    "closures run forward and backward within the optimizer": (
        """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = model(inputs).square().sum()
    loss.backward()
    return loss
for _ in range(8):
    optimizer.step(closure)
""",
        "r.steps == 8 and p('forward') > 0 and p('backward') > 0 and p('optimizer') > 0",
    ),
    "a check before the training does not say where a step calls the model": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def check():
    with torch.no_grad():
        model(inputs)
def train():
    for _ in range(100):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
        sum(range(300_000))
check()
train()
""",
        "r.verdict.text.startswith('Rest-bound: ') and 'between forward' not in r.verdict.text",
    ),
    "a step that GradScaler leaves out is one": (
        """
optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
for number in range(8):
    optimizer.zero_grad()
    scaler.scale(model(inputs).sum()).backward()
    if number % 2:
        model[0].weight.grad[0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
""",
        "r.steps == 8",
    ),
    "two optimizers in turn are one step": (
        """
other = nn.Linear(8, 2)
first, second = torch.optim.SGD(model.parameters(), 0.1), torch.optim.Adam(other.parameters())
for _ in range(9):
    train(first, 1)
    train(second, 1, other)
""",
        "r.steps == 9 and len(r.models) == 2",
    ),
    "gradients are summed up over several batches": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(24):
    model(inputs).sum().backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
""",
        "r.steps == 6 and r.models[0].calls == 24",
    ),
    "an optimizer that steps within backward": (
        """
optimizers = {each: torch.optim.SGD([each], 0.1) for each in model.parameters()}
def step_at_once(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()
for each in model.parameters():
    each.register_post_accumulate_grad_hook(step_at_once)
for _ in range(8):
    model(inputs).sum().backward()
""",
        "r.steps in (7, 8) and p('optimizer') > 0 and p('backward') > 0",
    ),
    "a forked child is not observed": (
        """
import os
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(optimizer, 6)
child = os.fork()
if child == 0:
    train(optimizer, 50)
    os._exit(0 if hooks.watch.run is None else 1)
print(os.waitpid(child, 0)[1])
train(optimizer, 6)
""",
        "r.steps == 12 and printed == '0\\n'",
    ),
    "other threads are not observed": (
        """
import threading
other = nn.Linear(8, 2)
def elsewhere():
    train(torch.optim.SGD(other.parameters(), 0.1), 50, other)
thread = threading.Thread(target=elsewhere)
thread.start()
train(torch.optim.SGD(model.parameters(), 0.1), 10)
thread.join()
""",
        "r.steps == 10 and [model.name for model in r.models] == ['Sequential']",
    ),
    "an optimizer that fails is not at work for ever": (
        """
class Fails(torch.optim.SGD):
    def step(self, closure=None):
        raise ArithmeticError
failing = Fails(nn.Linear(2, 2).parameters(), 0.1)
try:
    failing.step()
except ArithmeticError:
    pass
del failing
train(torch.optim.SGD(model.parameters(), 0.1), 10)
import time
time.sleep(0.05)
print(hooks.watch.optimizers, hooks.watch.silent)
""",
        "r.steps in (10, 11) and p('optimizer') < 0.04 and printed == '[] False\\n'",
    ),
    "a model that fails is not inside for ever": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    try:
        model(torch.ones(3, 3))
    except RuntimeError:
        pass
    train(optimizer, 1)
""",
        "r.steps == 8 and r.models[0].calls == 16 and p('backward') > 0",
    ),
    "a model that is local to main() is weighed before it is gone": (
        """
def main():
    local = nn.Linear(8, 2)
    train(torch.optim.Adam(local.parameters()), 8, local)
main()
import gc
gc.collect()
""",
        "r.models[0].name == 'Linear' and r.models[0].optimizer_bytes['cpu'] >= 2 * 72 and r.parameters[0].bytes == 64",
    ),
    "an optimizer that is gone before its model": (
        """
def run():
    train(torch.optim.Adam(model.parameters()), 8)
    model.zero_grad()
run()
import gc
gc.collect()
""",
        "r.models[0].optimizer_bytes['cpu'] >= 2 * r.models[0].gradient_bytes['cpu'] > 0 and "
        "r.parameters[0].optimizer_bytes >= 2 * r.parameters[0].gradient_bytes == 2 * r.parameters[0].bytes",
    ),
    "inference without end takes no memory": (
        """
longest = 0
with torch.no_grad():
    for _ in range(6_000):
        model(inputs)
        longest = max(longest, len(hooks.watch.run.fold.phases))
print(longest < 8_300)
""",
        "printed == 'True\\n' and r.steps == 6_000 and not r.training and r.models[0].calls == 6_000 and "
        "r.verdict.kind in ('compute-bound', 'rest-bound', 'not-sure')",
    ),
    "evaluation without end within a step takes no memory": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(optimizer, 6)
longest = 0
with torch.no_grad():
    for _ in range(30_000):
        model(inputs)
        longest = max(longest, len(hooks.watch.run.fold.phases))
train(optimizer, 6)
print(longest < 40_000)
""",
        "printed == 'True\\n' and r.steps == 12 and p('evaluation') > 0.5 * r.seconds / 2",
    ),
    "what is called before the training is no step": (
        """
with torch.no_grad():
    for _ in range(20):
        model(inputs)
train(torch.optim.SGD(model.parameters(), 0.1), 8)
""",
        "r.steps == 8 and r.training",
    ),
    "modules that prepare input, and what a checkpoint runs again, are no models": (
        """
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
class Prepared(Dataset):
    transform = nn.BatchNorm1d(8)
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return self.transform(inputs)[0].detach()
class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, inputs):
        return checkpoint(self.inner, inputs, use_reentrant=False)
net = Recomputed()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for batch in DataLoader(Prepared(), 4):
    optimizer.zero_grad()
    net(batch.requires_grad_()).sum().backward()
    optimizer.step()
""",
        "[model.name for model in r.models] == ['Recomputed'] and r.models[0].calls == 8 and p('input wait') > 0",
    ),
    "a model whose parts are called by the script": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    model.forward(inputs).sum().backward()
    optimizer.step()
""",
        "r.steps == 8 and p('forward') > 0",
    ),
    "what torch.compile has compiled": (
        """
wide = nn.Linear(1024, 1024)
@torch.compile(backend="eager")
def loss_of(inputs):
    for _ in range(20):
        inputs = wide(inputs)
    return inputs.sum() + model(inputs[:1, :8]).sum()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(24):
    optimizer.zero_grad()
    with torch.no_grad():
        loss_of(torch.ones(64, 1024))
    loss_of(torch.ones(64, 1024)).backward(inputs=[*model.parameters()])
    optimizer.step()
""",
        "r.steps == 24 and r.verdict.kind == 'compute-bound' and 'torch.compile' in r.verdict.text",
    ),
    "an exception of ours does not reach the script": (
        """
def broken(module):
    raise LookupError("ours")
hooks.watch.run.called = broken
train(torch.optim.SGD(model.parameters(), 0.1), 8)
print("on")
""",
        "printed == 'on\\n' and r.problems == ('LookupError: ours',) and r.steps == 8",
    ),
    "asked twice, it is observed once": (
        """
from devexplorer.core.observe import observer
from devexplorer.core.observe.records import ObserveSettings
run = hooks.watch.run
print(observer.start(ObserveSettings()) is run, hooks.watch.run is run)
train(torch.optim.SGD(model.parameters(), 0.1), 8)
""",
        "printed == 'True True\\n' and r.steps == 8",
    ),
    "parameters of any kind are weighed": (
        """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.lazy, self.meta = nn.LazyLinear(2), nn.Linear(8, 2, device="meta")
        self.half, self.own = nn.Linear(8, 2, dtype=torch.bfloat16), nn.Linear(8, 2)
        self.register_buffer("table", torch.quantize_per_tensor(torch.ones(16), 0.1, 0, torch.qint8))
        self.register_buffer("sparse", torch.eye(4).to_sparse())
    def forward(self, inputs):
        return self.own(inputs)
net = Odd()
train(torch.optim.SGD(net.own.parameters(), 0.1), 8, net)
""",
        "r.models[0].bytes_by_dtype['bfloat16'] == 36 and r.models[0].bytes_by_device['meta'] == 72 and not r.problems",
    ),
    "models without end": (
        """
for _ in range(300):
    nn.Linear(8, 2)(inputs)
print(len(hooks.watch.run.roots) < 5)
""",
        "printed == 'True\\n' and r.models[0].calls == 300 and len(r.models) == 1",
    ),
    "losses that are gone before anything is weighed": (
        """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    nn.MSELoss()(model(inputs), torch.zeros(2)).backward()
    optimizer.step()
""",
        "len(r.models) == 1 and r.models[0].parameters",
    ),
    "losses and observers of quantisation, where no model has parameters": (
        """
loss, observer, rectify = nn.MSELoss(), torch.ao.quantization.MinMaxObserver(), nn.ReLU()
for _ in range(8):
    loss(observer(rectify(inputs)), inputs)
""",
        "{model.name for model in r.models} == {'ReLU'}",
    ),
    "a model in a wrapper that is made anew for each evaluation": (
        """
def trained():
    optimizer, wrapped = torch.optim.SGD(model.parameters(), 0.1), nn.Sequential(model)
    def call(net):
        return net(inputs).sum()
    for _ in range(8):
        call(wrapped).backward()
        optimizer.step()
        with torch.no_grad():
            call(nn.Sequential(model))
trained()
""",
        "[(model.calls, model.parameters) for model in r.models] == [(16, 90)]",
    ),
    "a model within another that is called by itself and gone": (
        """
class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
    def forward(self, inputs):
        return self.net(inputs)
def called(net):
    with torch.no_grad():
        net(inputs)
task = Task()
train(torch.optim.SGD(task.parameters(), 0.1), 8, task)
called(task.net)
called(nn.Conv1d(4, 3, 1))
del task
""",
        "[(model.name, model.parameters) for model in r.models] == [('Task', 18), ('Conv1d', 15)]",
    ),
    "methods of a model that call its parts": (
        """
import weakref
class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(8, 3)), nn.Sequential(nn.Linear(3, 8))
    def training_step(self):
        held = torch.ones(1)
        assert self.asked_for_locals()
        loss, kept = self.second(self.first(inputs)).sum(), weakref.ref(held)
        del held
        print(kept() is None)
        return loss
    def asked_for_locals(self):
        names = locals()
        self.first(inputs)
        return names["self"] is self
net = Twins()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    net.training_step().backward()
    optimizer.step()
""",
        "[(model.name, model.parameters, model.calls) for model in r.models] == [('Twins', 59, 16)]"
        " and printed == 'True\\n' * 8",
    ),
    "a model that a library calls for the script": (
        """
from contextlib import contextmanager
@contextmanager
def nothing():
    yield
called = nothing()(model.__call__)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    called(inputs).sum().backward()
    optimizer.step()
""",
        "r.models[0].place.startswith('traps')",
    ),
    "training without an optimizer": (
        """
for _ in range(8):
    model.zero_grad()
    model(inputs).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
""",
        "r.models[0].gradient_bytes == r.models[0].bytes_by_device",
    ),
    "values of the CPU that are read one by one": (
        """
optimizer, right = torch.optim.SGD(model.parameters(), 0.1), 0
values = torch.arange(4_000)
for _ in range(12):
    train(optimizer, 1)
    for value in values:
        right += value.item()
""",
        "r.verdict.kind == 'rest-bound' and '4,000 values a step' in r.verdict.evidence[0]",
    ),
    "what follows the last step is no part of one": (
        """
import time
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(12):
    train(optimizer, 1)
    time.sleep(0.01)
def save():
    time.sleep(0.6)
save()
print(save.__code__.co_firstlineno + 1)
""",
        "r.verdict.kind == 'rest-bound' and not (r.verdict.place or '').endswith(f'line {printed.strip()}')",
    ),
    "too few steps for a verdict": (
        "train(torch.optim.SGD(model.parameters(), 0.1), 3)",
        "r.verdict.kind == 'not-sure' and '3 steps' in r.verdict.text",
    ),
    "no step at all": ("torch.ones(2).sum().item()", "r.verdict.kind == 'not-sure' and r.steps == 0"),
}


ON_CARDS: dict[str, tuple[str, str]] = {
    "memory of a card that creeps": (
        """
wide = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 1)).cuda()
optimizer, total = torch.optim.SGD(wide.parameters(), 0.01), 0
for _ in range(40):
    loss = wide(torch.ones(64, 64, device="cuda")).mean()
    total = total + loss
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
""",
        "r.verdict.kind == 'memory-creeping' and 'cuda:0' in r.verdict.text",
    ),
    "a whole model that is moved back and forth": (
        """
net = nn.Linear(512, 512)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(8):
    net.cuda()
    net(torch.ones(4, 512, device="cuda")).sum().backward()
    net.cpu()
    optimizer.step()
""",
        "r.verdict.kind == 'back-and-forth'",
    ),
    "a part of the model that stayed on the CPU": (
        """
words, body = nn.Embedding(5_000, 256), nn.Linear(256, 1_024).cuda()
optimizer = torch.optim.SGD([*words.parameters(), *body.parameters()], 0.1)
for _ in range(8):
    optimizer.zero_grad()
    body(words(torch.randint(5_000, (2_048,))).to("cuda")).sum().backward()
    optimizer.step()
""",
        "r.verdict.kind == 'back-and-forth' and {'cpu', 'cuda:0'} == {d for m in r.models for d in m.bytes_by_device}",
    ),
    "scaled gradients and autocast": (
        """
net, scaler = nn.Linear(8, 2).cuda(), torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(8):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(inputs.to("cuda", non_blocking=True)).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        "r.steps == 8 and r.clock == 'simulated' and p('copies') > 0 and r.models[0].optimizer_bytes['cuda:0'] > 0",
    ),
    "cards that are not used": (
        "train(torch.optim.SGD(model.parameters(), 0.1), 8)",
        "r.clock == 'cpu' and r.steps == 8 and all(phase.device_seconds is None for phase in r.phases)",
    ),
    "a model that leaves its card when training is over": (
        """
net = nn.Linear(8, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    net(inputs.cuda()).sum().backward()
    optimizer.step()
net.cpu()
""",
        "r.models[0].bytes_by_device == r.models[0].gradient_bytes == {'cuda:0': 72}",
    ),
    "large values that the system takes back": (
        """
wide = nn.Linear(64, 32_768).cuda()
batch = torch.ones(1_024, 64, device="cuda")
optimizer = torch.optim.SGD(wide.parameters(), 0.1)
for _ in range(12):
    optimizer.zero_grad()
    outputs = wide(batch)
    outputs.sum().backward()
    optimizer.step()
""",
        "next(phase.device_seconds for phase in r.phases if phase.name == 'rest') < 0.5 * p('rest')",
    ),
    "a model on several cards": (
        """
net = nn.DataParallel(nn.Linear(8, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    net(inputs.cuda()).sum().backward()
    optimizer.step()
""",
        "r.steps == 8 and [model.name for model in r.models] == ['DataParallel'] and r.models[0].calls == 8",
    ),
}


@pytest.fixture(scope="module")
def trapped(folder: Path) -> dict[str, dict[str, Any]]:
    """What was seen of all traps, in one process."""
    seen = {}
    for name, rows, options in (("traps", TRAPS, ()), ("cards", ON_CARDS, ("--virtual", "2x Tesla T4"))):
        scripts = []
        for number, (source, _) in enumerate(rows.values()):
            script = folder / f"{name}{number}.py"
            script.write_text(HEAD + source)
            scripts.append(str(script))
        seen |= dict(zip(rows, observed(folder, name, *options, *scripts), strict=True))
    return seen


@pytest.mark.parametrize("trap", TRAPS | ON_CARDS)
def test_it_does_not_fall_into(trap: str, trapped: dict[str, dict[str, Any]]) -> None:
    seen = trapped[trap]
    report = msgspec.convert(seen["report"], RunReport)
    seconds = {phase.name: phase.seconds for phase in report.phases}
    assert not seen["raised"], seen["raised"]
    names = {"r": report, "p": lambda name: seconds.get(name, 0.0), "printed": seen["printed"]}
    assert eval((TRAPS | ON_CARDS)[trap][1], names), (seen["lines"], seen["printed"], report)
    if "exception of ours" not in trap:
        assert report.problems == ()


class Card:
    """A CUDA whose events are over when the test says so."""

    def __init__(self) -> None:
        self.milliseconds, self.made, self.reached, self.capturing = 0.0, 0, 0.0, False

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Event(self, enable_timing: bool) -> Any:
        self.made += 1
        return Recorded(self)

    def synchronize(self) -> None:
        raise AssertionError("nothing of ours waits for a card")


class Recorded:
    """An event."""

    def __init__(self, card: Card) -> None:
        self.card, self.at = card, -1.0

    def record(self) -> None:
        self.at = self.card.milliseconds

    def query(self) -> bool:
        assert not self.card.capturing
        return self.at <= self.card.reached

    def elapsed_time(self, end: Recorded) -> float:
        assert self.query()
        assert end.query()
        return end.at - self.at

    synchronize = Card.synchronize


def test_steps_on_a_card_are_timed_by_events_that_nothing_waits_for() -> None:
    card = Card()
    fold = StepFold(EventClock(card))

    def mark(phase: int, milliseconds: float) -> None:
        fold.stamps.append(fold.clock.now())
        fold.phases.append(phase)
        card.milliseconds += milliseconds

    def step() -> None:
        mark(INPUT, 1.0)
        mark(FORWARD, 20.0)
        mark(OPTIMIZER, 4.0)
        fold.split = len(fold.phases)
        mark(REST, 0.5)

    for _ in range(10):
        step()
        fold.cut()
        fold.fold()
    assert fold.steps == 0  # the card has not got there
    card.reached = 4 * 25.5 - 0.1
    fold.fold()
    assert fold.steps == 3
    card.capturing = True
    mark(REST, 0.0)  # no event is recorded into a graph
    fold.fold()
    assert fold.steps == 3  # nor asked
    card.capturing, card.reached = False, 1e9
    fold.finish()
    assert fold.steps == 10
    times, rows = fold.counts()
    assert times.steps == len(rows) == 7
    assert times.counted[[INPUT, FORWARD, OPTIMIZER]] / 7e6 == pytest.approx([1.0, 20.0, 4.0])
    assert times.host.sum() < times.counted.sum()
    made = card.made
    for _ in range(3):
        step()
    assert card.made == made  # events are recorded again


def test_a_signal_between_two_devices_falls_back_to_the_processors_clock() -> None:
    clock = EventClock(Card())

    class Elsewhere(Recorded):
        def elapsed_time(self, end: Recorded) -> float:
            raise RuntimeError("events of two devices")

    assert clock.between((5, Elsewhere(Card())), (9, Elsewhere(Card())), False) == (4, 4)


def test_words_on_screen_are_sentences(slow: dict[str, dict[str, Any]]) -> None:
    for seen in slow.values():
        verdict = seen["report"]["verdict"]
        for text in (verdict["text"], *verdict["evidence"]):
            assert re.match(r"[A-Z\d].*[.?]$", text), text


def test_what_torch_keeps_from_being_compiled_is_not_taken_for_compiled() -> None:
    """`Optimizer.zero_grad` is such a function."""

    def stack() -> list[Any]:
        return [code for code, _ in stack_of(sys._getframe())]

    assert not any(is_compiled(code) for code in torch._dynamo.disable(stack)())


def test_who_counts_time_within_virtual_gpus_is_not_taken_for_their_caller() -> None:
    """Gradients are added in place, and errors kept, only where autograd's engine calls."""

    def __torch_dispatch__() -> bool:  # noqa: N807
        return is_engine_calling(sys._getframe())

    def _engine_run_backward(dispatch: Callable[[], bool]) -> bool:
        return dispatch()

    for dispatch in (__torch_dispatch__, _Simulating().count(__torch_dispatch__)):
        assert _engine_run_backward(dispatch)
        assert not dispatch()


def test_what_a_virtual_gpu_is_at_counts_before_it_is_done() -> None:
    """A phase can begin and end within it, as a backward does."""
    counter = _Simulating()
    seen: list[int] = []

    def dispatch() -> None:
        seen.append(counter.so_far())

    dispatch.__name__ = "__torch_dispatch__"
    counter.count(dispatch)()
    assert 0 < seen[0] < counter.so_far()


def test_a_clock_closes_its_file_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    """Its thread has ended, or the script has closed what it had not opened."""
    queue = _RunQueue()
    assert queue.nanoseconds() >= 0
    file = queue._file
    del queue
    gc.collect()
    if file is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
    closed = _RunQueue()
    if closed._file is not None:
        os.close(closed._file)
        assert closed.nanoseconds() == 0
    del closed
    gc.collect()
    assert not [warned for warned in recwarn if issubclass(warned.category, ResourceWarning)]


def test_no_other_thread_takes_over_while_a_clock_reads(request: pytest.FixtureRequest) -> None:
    """It would have Python's lock for milliseconds, at every operation of a virtual GPU."""
    queue, lock = _RunQueue(), threading.Lock()
    lock.acquire()
    took_over: list[bool] = []

    def take_over() -> None:
        with lock:
            took_over.append(True)

    other = threading.Thread(target=take_over)
    other.start()
    request.addfinalizer(other.join)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    try:
        lock.release()
        for _ in range(2_000):
            queue.nanoseconds()
        early = list(took_over)
    finally:
        sys.setswitchinterval(interval)
    assert not early


def test_virtual_gpus_are_not_asked_for_while_another_thread_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that connects makes its thread import them: the call of a model that asked then was not seen."""
    monkeypatch.setitem(sys.modules, "devexplorer.core.virtual.backend", ModuleType("backend"))
    assert virtual_machine() is None


def test_a_frame_that_is_on_no_line_is_at_the_first_of_its_code() -> None:
    """As one of another thread can be, which is looked at between two instructions."""
    code = test_a_frame_that_is_on_no_line_is_at_the_first_of_its_code.__code__
    frame = SimpleNamespace(f_code=code, f_lineno=None, f_back=None)
    assert stack_of(frame) == [(code, code.co_firstlineno)]
