"""Tensors and models of unusual kinds: where they are and what they take is right, or it is said that it is not known;
and code of the script's is not called once more than without us."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from devexplorer.core.models import size_of
from devexplorer.core.observe.memory import bytes_here
from devexplorer.core.workspace.placement import snapshot

WATCHED = """
import warnings
from collections import Counter

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

warnings.simplefilter("ignore")
torch.manual_seed(0)
calls = Counter()


class Counted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls[func.__name__] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Refusing(torch.Tensor):
    armed = False

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if cls.armed and func.__name__ not in ("to", "item"):
            raise RuntimeError(f"{func.__name__} is not for us")
        return super().__torch_function__(func, types, args, kwargs or {})


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        calls["mode " + getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.strange = nn.Parameter(torch.ones(5).as_subclass(Refusing))

    def forward(self, x):
        return self.layer(x)

    def named_parameters(self, *args, **kwargs):
        calls["named_parameters"] += 1
        raise RuntimeError("named_parameters is not for us")

    def named_buffers(self, *args, **kwargs):
        raise RuntimeError("named_buffers is not for us")


counted = torch.ones(3).as_subclass(Counted)
counted.to(torch.float64), counted.to("cpu"), counted.cpu(), counted[0].item(), float(counted[1]), counted.tolist()
scalar = torch.ones(1, requires_grad=True).as_subclass(Counted)
float(scalar), bool(scalar), int(scalar)
with Mode():
    plain = torch.ones(3)
    plain.to("cpu"), plain.to("meta"), plain[0].item(), float(plain[1]), nn.Linear(2, 2).to(torch.float64)
with Operations():
    float(torch.ones(1, requires_grad=True) * 2), torch.ones(2).to("meta")
model = Own().to(torch.float64).float()
optimizer = torch.optim.SGD([*model.layer.parameters()], lr=0.1)
Refusing.armed = True
for ask in (lambda: model.strange.to(torch.float64), lambda: model.strange[0], lambda: float(model.strange.sum())):
    try:
        print(type(ask()).__name__)
    except RuntimeError as error:
        print(error)
for _ in range(8):
    with Mode():
        model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
Refusing.armed = False
print(sorted(calls.items()))
"""

KINDS = """
import json, warnings
import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Holder(nn.Module):
    def __init__(self, **tensors):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        for name, value in tensors.items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value)

    def forward(self, x):
        return self.inner(x)


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


def named(name, model):
    kept.append(model)
    model.__class__ = type(name, (type(model),), {})
    return model


kept = []
x = torch.randn(2, 4)
eye = torch.eye(50)
ragged = [torch.randn(2, 3), torch.randn(4, 3)]
symmetric = nn.utils.parametrize.register_parametrization(nn.Linear(4, 4), "weight", Symmetric())
for model in (
    named("Quantised", Holder(q=torch.quantize_per_tensor(torch.randn(10, 10), 0.1, 0, torch.qint8))),
    named("Sparse", Holder(a=eye.to_sparse(), b=eye.to_sparse_csr(), c=nn.Parameter(eye.to_sparse()))),
    named("Nested", Holder(n=torch.nested.nested_tensor(ragged))),
    named("Jagged", Holder(n=torch.nested.nested_tensor(ragged, layout=torch.jagged))),
    named("Complex", Holder(n=torch.zeros(6, dtype=torch.complex64))),
    named("Parametrised", nn.Sequential(symmetric, nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))),
    named("OldNorm", nn.utils.weight_norm(nn.Linear(4, 4))),
):
    dense = [p for p in model.parameters() if p.layout is torch.strided]
    optimizer = torch.optim.SGD(dense, lr=0.01)
    for _ in range(3):
        model(x).sum().backward()
        optimizer.step()
    print(type(model).__name__, sum(p.double().sum().item() for p in dense).hex())
embedding = named("Embedded", nn.Sequential(nn.Embedding(100, 4, sparse=True), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    embedding(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
print("Embedded", embedding[0].weight.double().sum().item().hex())
dynamic = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 8)), {nn.Linear}, torch.qint8)
print(dynamic(x).double().sum().item().hex())
"""


def both(folder: Path, text: str) -> tuple[str, str, dict[str, object]]:
    """What a script prints by itself, standard error of it observed (it prints the same), and its report."""
    script, report = folder / "odd.py", folder / "run.json"
    script.write_text(text)
    bare = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=folder)
    ours = [sys.executable, "-m", "devexplorer.core.cli", "run", "--report", report, script]
    observed = subprocess.run(ours, capture_output=True, text=True, check=True, cwd=folder)
    assert observed.stdout == bare.stdout
    return bare.stdout, observed.stderr, json.loads(report.read_text())


def test_code_of_the_script_is_called_as_often_as_without_us(tmp_path: Path) -> None:
    printed, _, report = both(tmp_path, WATCHED)
    assert "named_parameters" not in printed
    assert report["problems"] == []
    (model,) = report["models"]  # type: ignore[misc]
    assert (model["name"], model["parameters"], model["bytes_by_device"]) == ("Own", 25, {"cpu": 100})


def test_tensors_of_any_kind_are_weighed_or_said_not_to_be(tmp_path: Path) -> None:
    _, errors, report = both(tmp_path, KINDS)
    held = {model["name"]: model["bytes_by_device"].get("cpu", 0) for model in report["models"]}  # type: ignore[attr-defined]
    linear = 80
    coordinates, rows = 50 * (4 + 16), 50 * 4 + 50 * 8 + 51 * 8
    assert held == {
        "Quantised": linear + 100,
        "Sparse": linear + 2 * coordinates + rows,
        "Nested": linear + 18 * 4,
        "Jagged": linear + 18 * 4,
        "Complex": linear + 6 * 8,
        "Parametrised": linear + linear + 16,
        "OldNorm": linear + 16,
        "Embedded": 1600 + 20,
        "Sequential": 0,
    }
    gradients = {model["name"]: model["gradient_bytes"] for model in report["models"]}  # type: ignore[attr-defined]
    assert gradients["Embedded"] == {"cpu": 2 * (4 * 4 + 8) + 20}, "two rows of a hundred, and which"
    assert report["problems"] == ["Sequential has packed weights (quantised), which are not counted"]
    assert "Not observed completely: Sequential has packed weights" in errors


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_window_has_the_same_bytes() -> None:
    eye = torch.eye(50)
    for tensor in (eye.to_sparse(), eye.to_sparse_csr(), eye.to_sparse_csc(), eye.to_sparse_bsr((5, 5)), eye):
        assert snapshot("t", tensor).rows[0].bytes == size_of(tensor) == bytes_here(tensor)
    assert size_of(eye.to_sparse()) == 50 * (4 + 16)
