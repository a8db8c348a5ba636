"""Python exceptions inside a backward on a virtual GPU: the process survives, and the caller of backward gets the
exception."""

import contextlib
import logging
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from devexplorer.core.virtual.backend import backward_guard, meta_empty

pytestmark = pytest.mark.usefixtures("virtual")
DEVICE = "vgpu:1"


@pytest.fixture
def fill():
    """Call it to fill the device; what it returns is the memory."""

    def filled():
        blocks = []
        for size in (1 << 30, 100 << 20, 20 << 20, 2 << 20, 1 << 20, 64 << 10, 512):
            with contextlib.suppress(torch.OutOfMemoryError):
                while True:
                    blocks.append(meta_empty((size,), torch.uint8, DEVICE))
        return blocks

    return filled


def ones(*shape):
    return torch.ones(*shape, device=DEVICE, requires_grad=True)


def divide(*_):
    return 1 // 0


def product():
    x = ones(300, 300)
    return (x @ x).sum(), x


def convolution():
    x = ones(1, 8, 64, 64)
    return nn.Conv2d(8, 8, 3, device=DEVICE)(x).sum(), x


def recomputed():
    x = ones(300, 300)
    return checkpoint(lambda x: (x @ x).exp(), x, use_reentrant=False).sum(), x


@pytest.mark.parametrize("graph", [product, convolution, recomputed])
def test_a_full_device_in_backward_raises_torchs_out_of_memory_error(graph, fill, virtual):
    loss, x = graph()
    seed = torch.ones_like(loss)
    before = virtual.gpu(DEVICE).memory.allocated_bytes
    full = fill()
    with pytest.raises(
        torch.OutOfMemoryError, match=r"vgpu out of memory. Tried to allocate .* GPU 1 has a total capacity"
    ):
        loss.backward(seed, retain_graph=True)
    full.clear()
    x.grad = None
    assert virtual.gpu(DEVICE).memory.allocated_bytes <= before
    loss.backward(seed)
    assert x.grad is not None


@pytest.mark.parametrize("graph", [product, convolution])
def test_without_the_guard_the_error_says_what_happened(graph, fill):
    loss, x = graph()
    seed = torch.ones_like(loss)
    full = fill()
    with pytest.raises(RuntimeError, match="what failed, 'OutOfMemoryError: vgpu out of memory"):
        torch.autograd.grad(loss, x, seed)
    with pytest.raises(torch.OutOfMemoryError), backward_guard():
        torch.autograd.grad(loss, x, seed)
    del full


def hook_on_a_tensor(x):
    y = x * 2
    y.register_hook(divide)
    return y


def hook_on_a_parameter(x):
    x.register_post_accumulate_grad_hook(divide)
    return x * 2


def hook_on_a_node(x):
    y = x * 2
    y.grad_fn.register_prehook(divide)
    return y


def hook_on_a_saved_tensor(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, divide):
        return x * x


class Divides(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return divide()


HOOKS = [hook_on_a_tensor, hook_on_a_parameter, hook_on_a_node, hook_on_a_saved_tensor, Divides.apply]


@pytest.mark.parametrize("hooked", HOOKS)
def test_what_a_hook_raises_comes_out(hooked):
    with pytest.raises(ZeroDivisionError):
        hooked(ones(3)).sum().backward()
    x = ones(3)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_a_hook_can_be_interrupted():
    def interrupt(_):
        raise KeyboardInterrupt

    y = ones(3) * 2
    y.register_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        y.sum().backward()


def test_without_the_guard_what_a_hook_raises_is_logged(monkeypatch):
    lines = []
    log = logging.getLogger("devexplorer.core.virtual.operators.backward")
    monkeypatch.setattr(log, "handle", lambda record: lines.append(record.getMessage()))
    x = ones(3)
    with pytest.raises(SystemError):
        torch.autograd.grad(hook_on_a_tensor(x).sum(), x)
    assert len(lines) == 1
    assert lines[0].startswith("backward on a virtual GPU failed: ZeroDivisionError: ")


def test_an_error_that_a_hook_deals_with_itself_changes_nothing(fill):
    seen = []

    def careful(grad):
        full = fill()
        try:
            torch.ones(300, 300, device=DEVICE)
        except torch.OutOfMemoryError as error:
            seen.append(error)
        del full

    x = ones(3)
    y = x * 2
    y.register_hook(careful)
    y.sum().backward()
    assert len(seen) == 1
    assert x.grad.tolist() == [2.0] * 3


def test_a_graph_with_its_gradient_from_another_thread(virtual):
    x = ones(3)
    y, seed = x * x, torch.ones(3, device=DEVICE)
    again = x * x

    def work():
        y.backward(seed)
        with backward_guard():
            torch.autograd.backward(again, seed)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert x.grad.tolist() == [4.0] * 3
