"""`torch.compile`, `torch.export` and `torch.jit` of models on virtual GPUs."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from devexplorer.core.virtual.torch_api.tracing import when_imported

pytestmark = [
    pytest.mark.usefixtures("virtual"),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore::DeprecationWarning"
    ),  # torch's compiler, about its own parts
]
DEVICE = "vgpu:1"


@pytest.fixture(autouse=True)
def no_progress_thread(monkeypatch):
    """torch's compiler shows progress with tqdm if installed, whose thread would stay."""
    if importlib.util.find_spec("tqdm") is not None:
        monkeypatch.setattr(importlib.import_module("tqdm").tqdm, "monitor_interval", 0)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_compiled_function_may_break_its_graph_and_leave_the_device():
    torch._dynamo.reset()

    @torch.compile(backend="eager")
    def work(x):
        y = (x.sin() + torch.ones(4, device=x.device)).T.contiguous().view(-1)
        torch._dynamo.graph_break()
        z = y.detach().clone()
        z[0] = 1
        return z, y.to("cpu").sum(), x.data * 2

    x = torch.randn(3, 4)
    ours, expected = work(x.to(DEVICE)), work(x)
    assert [str(one.device) for one in ours] == [DEVICE, "cpu", DEVICE]
    torch.testing.assert_close([one.cpu() for one in ours], list(expected))


INDUCTOR = {
    "compile": lambda model, x: torch.compile(model)(x),
    "package": lambda model, x: torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,))),
}


@pytest.mark.parametrize("use", INDUCTOR.values(), ids=INDUCTOR)
def test_inductor_is_refused_in_a_line(use):
    torch._dynamo.reset()
    with pytest.raises(RuntimeError) as refused:
        use(net().to(DEVICE), torch.randn(3, 4, device=DEVICE))
    assert str(refused.value).startswith(
        "torch.compile with Inductor has no code for virtual GPUs; use torch.compile(..., backend="
    )
    assert "\n" not in str(refused.value)


def test_a_function_is_called_when_a_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "imported_later.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    seen: list[int] = []
    when_imported("imported_later", lambda module: seen.append(module.value))
    assert seen == []
    module = importlib.import_module("imported_later")
    assert (seen, sys.meta_path) == ([1], finders)
    when_imported("imported_later", lambda module: seen.append(module.value + 1))
    assert seen == [1, 2]
    monkeypatch.delitem(sys.modules, module.__name__)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_recorded_operations_depend_on_the_input():
    """A tracer that accepts virtual tensors keeps results as constants, and silently returns wrong values."""
    weight, x = torch.randn(3), torch.randn(3)
    graph = make_fx(lambda one: (one * weight.to(DEVICE)).sin())(torch.zeros(3, device=DEVICE))
    torch.testing.assert_close(graph(x.to(DEVICE)).cpu(), (x * weight).sin())
    _, push = torch.func.linearize(torch.sin, x.to(DEVICE))
    torch.testing.assert_close(push(torch.ones(3, device=DEVICE)).cpu(), x.cos())


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda model: torch.jit.trace(model, (torch.ones(1, 4),))], ids=["script", "trace"]
)
def test_a_jit_module_moves(make):
    model, x = make(net()), torch.randn(3, 4)
    for device in (DEVICE, "vgpu:0", "cpu", DEVICE):
        model.to(device)
        assert {str(one.device) for one in model.parameters()} == {device}
        torch.testing.assert_close(model(x.to(device)).cpu(), net()(x))
    model(x.to(DEVICE)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_jit_cannot_write_is_refused_in_a_line():
    script = torch.jit.script(net().to(DEVICE))
    for save in (lambda file: torch.jit.save(script, file), script.save):
        with pytest.raises(
            RuntimeError,
            match=r"^torch.jit.save cannot write tensors of a virtual GPU; move the module to the CPU first",
        ):
            save("/nowhere/model.pt")
    file = io.BytesIO()
    torch.jit.save(script.cpu(), file)
    assert file.tell()
