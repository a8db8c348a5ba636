"""Tensors on virtual GPUs: they behave as on a real one, and every byte and second is counted."""

import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import flop_registry

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.virtual import backend
from devexplorer.core.virtual.backend import VirtualTensor, meta_empty
from devexplorer.core.virtual.operators.operations import SHORT_FLOPS

pytestmark = pytest.mark.usefixtures("virtual")
DEVICES = ("vgpu:0", "vgpu:1")
MIB = 1 << 20


def allocated(machine, device="vgpu:0"):
    return machine.gpu(device).memory.allocated_bytes


def run_in_thread(work):
    failures = []

    def guarded():
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


# --- identity and devices
# ----------------------------------------------------------------------------------------------------


def test_factories_from_a_virtual_tensor_can_name_another_device():
    x = torch.ones(2, device="vgpu:0")
    assert str(torch.zeros_like(x, device="vgpu:1").device) == "vgpu:1"
    assert type(x.new_zeros(2, device="cpu")) is torch.Tensor


@pytest.mark.parametrize("make", [lambda: torch.ones(2, device="vgpu:2"), lambda: torch.ones(2).to("vgpu:7")])
def test_a_device_that_is_not_there_is_refused_in_cudas_words(make):
    with pytest.raises(RuntimeError, match=r"invalid device ordinal.*there are vgpu:0 to vgpu:1"):
        make()


def test_a_number_of_the_cpu_joins_others_and_takes_no_sum_in_place():
    number, x = torch.tensor(1.0), torch.ones(2, device="vgpu:0")
    assert (number + x).device == x.device
    assert x.add_(number).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="found at least two devices, cpu and vgpu:0"):
        number += x.sum()
    assert number.fill_(x.sum()).item() == 4.0


def test_the_lengths_of_a_packed_sequence_are_wanted_on_the_cpu():
    x, lengths = torch.ones(2, 3, 4, device="vgpu:0"), torch.tensor([3, 2])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    assert packed.data.device == x.device
    with pytest.raises(
        RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor, but got 1D vgpu:0 Long tensor"
    ):
        torch.nn.utils.rnn.pack_padded_sequence(x, lengths.to(x.device), batch_first=True)


def test_mixing_devices_is_refused_in_pytorchs_words_naming_both():
    x, y, z = torch.ones(2), torch.ones(2, device="vgpu:0"), torch.ones(2, device="vgpu:1")
    words = "Expected all tensors to be on the same device, but found at least two devices, "
    with pytest.raises(RuntimeError, match=words + "cpu and vgpu:0!"):
        x + y
    with pytest.raises(RuntimeError, match=words + "vgpu:0 and vgpu:1!"):
        y + z
    words = "Expected all tensors to be on the same device, but got "
    with pytest.raises(RuntimeError, match=words + "tensors is on vgpu:0, different from other tensors on vgpu:1 "):
        torch.cat([z, y])
    with pytest.raises(RuntimeError, match=words + "tensors is on cpu, different from other tensors on vgpu:1 "):
        torch.cat([z, x])
    with pytest.raises(RuntimeError, match=words + "out is on cpu"):
        torch.mm(torch.ones(2, 2, device="vgpu:0"), torch.ones(2, 2, device="vgpu:0"), out=torch.ones(2, 2))
    with pytest.raises(RuntimeError, match=words + r"mat1 is on cpu, .* vgpu:1 \(.* in method wrapper_CUDA_addmm\)"):
        torch.nn.Linear(2, 2, device="vgpu:1")(torch.ones(1, 2))


TAKES_A_NUMBER = {
    "add": (lambda a, n: torch.add(n, a), True),
    "add out": (lambda a, n: torch.add(a, a, out=n), False),
    "in place": (lambda a, n: a.mul_(n), True),
    "lerp weight": (lambda a, n: torch.lerp(a, a, n), True),
    "lerp end": (lambda a, n: torch.lerp(a, n, 0.5), False),
    "addcmul": (lambda a, n: torch.addcmul(a, a, n), True),
    "addcdiv": (lambda a, n: torch.addcdiv(a, a, n), False),
    "where": (lambda a, n: torch.where(a > 0, n, a), True),
    "clamp": (lambda a, n: a.clamp(min=n), False),
    "maximum": (lambda a, n: torch.maximum(a, n), True),
    "logaddexp": (lambda a, n: torch.logaddexp(a, n), False),
    "masked_fill value": (lambda a, n: a.masked_fill(a > 0, n), True),
    "masked_fill mask": (lambda a, n: a.masked_fill(n > 0, 0.0), False),
    "stack": (lambda a, n: torch.stack([a.sum(), n]), False),
    "cat": (lambda a, n: torch.cat([a[0], n[None]]), False),
    "assignment": (lambda a, n: a.__setitem__(0, n), True),
    "index": (lambda a, n: a[n.long()], True),
    "index_select": (lambda a, n: a.index_select(0, n.long()), False),
    "index_fill": (lambda a, n: a.index_fill(0, torch.tensor([0], device=a.device), n), True),
    "gather": (lambda a, n: a[0].gather(0, n.long()), False),
    "scatter": (lambda a, n: a[0].scatter(0, torch.tensor(0, device=a.device), n), False),
    "take": (lambda a, n: a.take(n.long()), False),
    "embedding": (lambda a, n: functional.embedding(n.long(), a), False),
    "bucketize": (lambda a, n: torch.bucketize(n, a[0]), False),
    "searchsorted": (lambda a, n: torch.searchsorted(a[0], n), False),
    "cross entropy": (lambda a, n: functional.cross_entropy(a[0], n.long()), False),
    "mse": (lambda a, n: functional.mse_loss(a.sum(), n), False),
    "prelu": (lambda a, n: functional.prelu(a, n), False),
    "equal": (lambda a, n: torch.equal(a, n), False),
    "allclose": (lambda a, n: torch.allclose(a, n), True),
    "foreach": (lambda a, n: torch._foreach_mul([a, a], n), True),
}
"""As torch 2.14.1's own CUDA kernels answer."""


@pytest.mark.parametrize("name", TAKES_A_NUMBER)
def test_a_number_of_the_cpu_joins_where_cuda_takes_one(name):
    work, joins = TAKES_A_NUMBER[name]
    with nullcontext() if joins else pytest.raises(RuntimeError, match="same device"):
        work(torch.ones(2, 2, device="vgpu:0"), torch.tensor(1.0))


def test_cpu_indices_may_index_a_virtual_tensor_and_not_the_other_way_round():
    x = torch.arange(6.0, device="vgpu:1").reshape(2, 3)
    assert x[torch.tensor([1, 0])].tolist() == [[3, 4, 5], [0, 1, 2]]
    x[torch.tensor([0])] = 7.0
    assert x[0].tolist() == [7, 7, 7]
    with pytest.raises(RuntimeError, match=r"got values is on cpu, different from other tensors on vgpu:1"):
        x[torch.tensor([0, 1], device="vgpu:1")] = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.ones(3)[torch.tensor([0], device="vgpu:0")]


# --- values, views, in place
# ----------------------------------------------------------------------------------------------------


def test_views_share_memory_and_see_changes(virtual):
    x = torch.zeros(2, 3, device="vgpu:0")
    before = allocated(virtual)
    row, flat, turned = x[1], x.view(-1), x.t()
    row.fill_(5)
    assert flat.tolist() == [0, 0, 0, 5, 5, 5]
    assert turned[2, 1].item() == 5
    x.mul_(2)
    assert row.tolist() == [10, 10, 10]
    assert x.detach().data_ptr() == x.data_ptr() == x.data.data_ptr() == flat.data_ptr()
    assert row.data_ptr() == x.data_ptr() + 12
    assert row.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert allocated(virtual) == before
    del x, flat, turned
    assert allocated(virtual) == before
    del row
    assert allocated(virtual) == 0


def test_out_variants_return_the_very_same_object_and_may_resize_it(virtual):
    a = torch.ones(256, 512, device="vgpu:0")
    out = torch.empty(256, 256, device="vgpu:0")
    before = allocated(virtual)
    assert torch.mm(a, a.t(), out=out) is out
    assert allocated(virtual) == before
    assert out[0, 0].item() == 512
    grown = torch.empty(0, device="vgpu:0")
    torch.add(a, a, out=grown)
    assert grown.shape == (256, 512)
    assert allocated(virtual) == before + 256 * 512 * 4
    values, indices = torch.empty(256, device="vgpu:0"), torch.empty(256, dtype=torch.long, device="vgpu:0")
    answer = torch.max(a, 1, out=(values, indices))
    assert answer[0] is values
    assert answer[1] is indices


# --- exports from torch
# ----------------------------------------------------------------------------------------------------


def test_numpy_is_refused_in_cudas_words():
    import numpy as np

    x = torch.ones(2, device="vgpu:0")
    words = (
        r"can't convert vgpu:0 device type tensor to numpy. Use Tensor.cpu\(\) to copy the tensor to host memory first."
    )
    for ask in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=words):
            ask()
    assert x.numpy(force=True).tolist() == [1.0, 1.0]
    assert str(x.device) == "vgpu:0"


# --- memory
# ----------------------------------------------------------------------------------------------------


def test_memory_is_counted_in_blocks_and_goes_back_to_zero(virtual):
    x = torch.ones(1000, device="vgpu:0")
    assert allocated(virtual) == 4096
    y = x + x
    assert allocated(virtual) == 8192
    del x, y
    assert allocated(virtual) == 0
    assert virtual.gpu("vgpu:0").memory.reserved_bytes == 2 * MIB
    virtual.empty_cache("vgpu:0")
    assert virtual.gpu("vgpu:0").memory.reserved_bytes == 0
    assert allocated(virtual, "vgpu:1") == 0


def test_what_does_not_fit_raises_torchs_out_of_memory_error(virtual):
    virtual.reset()
    virtual.add(parse_virtual("Tesla T4"))
    first = meta_empty((10 << 30,), torch.uint8, "vgpu:0")
    asks = {
        "factory": lambda t: torch.empty(10 << 30, dtype=torch.uint8, device="vgpu:0"),
        "sum": lambda t: t + t,
        "clone": torch.clone,
    }
    for ask in asks.values():
        with pytest.raises(
            torch.OutOfMemoryError,
            match=r"Tried to allocate 10.00 GiB. GPU 0 has a total capacity of 14.75 GiB of which 4.36 GiB is free",
        ):
            ask(first)
    assert allocated(virtual) == 10 << 30
    del first
    assert allocated(virtual) == 0
    assert torch.ones(2, device="vgpu:0").sum().item() == 2


def test_freeing_on_another_thread_is_counted(virtual):
    box = [torch.ones(1000, device="vgpu:1")]
    run_in_thread(box.clear)
    assert allocated(virtual, "vgpu:1") == 0


def test_the_module_torch_vgpu_answers(virtual):
    x = torch.ones(1000, device="vgpu:1")
    assert torch.vgpu.device_count() == 2
    assert torch.vgpu.is_available()
    assert torch.vgpu.memory_allocated("vgpu:1") == torch.vgpu.max_memory_allocated(1) == 4096
    assert torch.vgpu.memory_reserved(1) == 2 * MIB
    assert torch.vgpu.memory_allocated() == 0
    free, total = torch.vgpu.mem_get_info(torch.device("vgpu:1"))
    assert total - free == virtual.gpu("vgpu:1").used_bytes
    assert total == torch.vgpu.get_device_properties(1).total_memory == 15102 * MIB, "without what the driver keeps"
    assert torch.vgpu.get_device_name(1) == "Tesla T4"
    assert torch.vgpu.get_device_capability() == (7, 5)
    assert torch.vgpu.current_device() == 0
    torch.vgpu.synchronize(1)
    del x
    torch.vgpu.empty_cache()
    assert torch.vgpu.memory_reserved(1) == 0


# --- time
# ----------------------------------------------------------------------------------------------------


def test_twice_the_work_takes_twice_the_time_and_views_take_none(virtual):
    def seconds(work):
        before = virtual.clock_seconds("vgpu:0")
        work()
        return virtual.clock_seconds("vgpu:0") - before

    a, b = (meta_empty((4096, k), torch.float32, "vgpu:0") for k in (4096, 8192))
    assert seconds(lambda: a @ b) == pytest.approx(2 * seconds(lambda: a @ a), rel=1e-3)
    assert seconds(lambda: a.t()[3:].unsqueeze(0)) == 0
    layer = torch.nn.Linear(8, 8, device="vgpu:0")
    assert seconds(lambda: layer.weight.detach()) == 0


def test_a_copy_takes_time_on_both_ends(virtual):
    x = torch.ones(1 << 20, device="vgpu:0")
    before = [virtual.clock_seconds(device) for device in DEVICES]
    x.to("vgpu:1")
    spent = [virtual.clock_seconds(device) - then for device, then in zip(DEVICES, before, strict=True)]
    assert spent[0] == pytest.approx(spent[1])
    assert spent[0] == pytest.approx((4 << 20) / 12.36e9, rel=0.1)


def test_the_wall_time_of_the_cpu_is_kept_apart(virtual):
    a = torch.ones(64, 64, device="vgpu:0")
    a @ a
    assert virtual.cpu_seconds("vgpu:0") > 0
    assert virtual.cpu_seconds("vgpu:1") == 0


@pytest.mark.parametrize(("kind", "least"), [("product", 6.5), ("convolution", 3.5)])
def test_tf32_can_be_chosen_by_torchs_new_setting(virtual, kind, least):
    """The datasheet promises 8 times float32's rate. A 3x3 convolution gains less: Winograd's algorithm makes float32
    faster, and matrix units want planes rearranged, a tenth of the time."""
    virtual.add(parse_virtual("A100-SXM4-40GB"))
    a, images = (
        meta_empty((4096, 4096), torch.float32, "vgpu:2"),
        meta_empty((32, 512, 64, 64), torch.float32, "vgpu:2"),
    )
    kernel = meta_empty((512, 512, 3, 3), torch.float32, "vgpu:2")
    setting, work = {
        "product": (torch.backends.cuda.matmul, lambda: a @ a),
        "convolution": (torch.backends.cudnn.conv, lambda: torch.conv2d(images, kernel)),
    }[kind]

    def seconds(precision):
        setting.fp32_precision = precision
        before = virtual.clock_seconds("vgpu:2")
        work()
        return virtual.clock_seconds("vgpu:2") - before

    earlier = setting.fp32_precision
    try:
        assert 8 > seconds("ieee") / seconds("tf32") > least
    finally:
        setting.fp32_precision = earlier


def test_our_short_flop_counts_are_those_of_torchs_registry():
    aten = torch.ops.aten
    a, b, c = torch.ones(3, 5, device="meta"), torch.ones(5, 7, device="meta"), torch.ones(3, 7, device="meta")
    batches = [torch.ones(2, *t.shape, device="meta") for t in (a, b, c)]
    cases = {
        aten.mm: (a, b),
        aten.addmm: (c, a, b),
        aten.bmm: tuple(batches[:2]),
        aten.baddbmm: (batches[2], *batches[:2]),
    }
    for packet, args in cases.items():
        assert SHORT_FLOPS[packet._qualified_op_name](*args, out_val=c) == flop_registry[packet](*args, out_val=c)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_backward_of_a_grouped_convolution_takes_the_products_of_its_groups(transposed):
    """torch's registry counts the gradient of a grouped weight as if it were not grouped."""
    packet = torch.ops.aten.convolution_backward

    def counted(count, groups, mask=(True, True, False)):
        shape = (6, 4, 3, 3) if transposed else (4, 6, 3, 3)
        x, weight = torch.ones(2, 6, 8, 8), torch.ones(shape[0], shape[1] // groups, 3, 3)
        settings = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], groups)
        grad = torch.ops.aten.convolution(x, weight, None, *settings)
        args = (grad, x, weight, None, *settings, mask)
        return count(*args, out_val=packet(*args))

    ours, theirs = SHORT_FLOPS["aten::convolution_backward"], flop_registry[packet]
    for mask in ((True, True, False), (True, False, False), (False, True, True)):
        assert counted(ours, 1, mask) == counted(theirs, 1, mask)
    assert counted(ours, 2) == counted(ours, 1) // 2
    assert counted(theirs, 2) > counted(ours, 2)


# --- without values
# ----------------------------------------------------------------------------------------------------


def test_tensors_without_values_count_and_compute_shapes(virtual):
    x = meta_empty((1000, 1000), torch.float32, "vgpu:1")
    assert isinstance(x, VirtualTensor)
    assert (str(x.device), x.shape) == ("vgpu:1", (1000, 1000))
    assert allocated(virtual, "vgpu:1") == 4_000_256
    layer = torch.nn.Linear(1000, 10, device="vgpu:1")
    y = layer(x).relu().sum()  # with a layer that has values: the result has none
    y.backward()
    assert layer.weight.grad.shape == (10, 1000)
    with pytest.raises((RuntimeError, NotImplementedError)):
        y.item()
    with pytest.raises(NotImplementedError):
        x.cpu()
    assert "no values" in repr(x)
    known = torch.ones(1000, 1000, device="vgpu:1")
    row = known[0]
    known.add_(x)
    with pytest.raises(NotImplementedError):
        row.cpu()  # what was there before would be wrong


# --- threads
# ----------------------------------------------------------------------------------------------------


def test_two_threads_compute_on_two_devices():
    results = {}

    def work(device):
        torch.manual_seed(0)
        x = torch.ones(8, 8, device=device, requires_grad=True)
        for _ in range(20):
            y = (x @ x).tanh().sum()
            y.backward()
        results[device] = x.grad.sum().item()

    threads = [threading.Thread(target=work, args=(device,)) for device in DEVICES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results["vgpu:0"] == results["vgpu:1"]


def test_installing_again_gives_the_same_machine(virtual):
    assert backend.install() is virtual
    assert backend.unavailable() is None


def test_where_torch_lacks_the_hook_or_another_device_took_it_the_reason_is_given():
    code = """
import torch
import torch.utils.backend_registration as registration
from devexplorer.core.base.errors import Unavailable
from devexplorer.core.virtual.backend import install, unavailable

def refused(words):
    assert words in unavailable()
    try:
        install()
    except Unavailable as error:
        assert words in str(error)
    else:
        raise SystemExit("installed")

for holder, name in ((registration, "_setup_privateuseone_for_python_backend"), (torch._C, "_acc")):
    hook = getattr(holder, name)
    delattr(holder, name)
    refused("virtual GPUs need torch 2.10 or newer")
    setattr(holder, name, hook)
torch.utils.rename_privateuse1_backend("npu")
refused("already has a device 'npu'")
assert torch.ones(2).sum() == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


# --- torch's device guard, which supports one device
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda x: x.new_tensor([1.0]), lambda x: x.new([1.0]), lambda x: x.new(1),
                                  lambda x: x.new(),
                                  lambda x: x.new_tensor([1], dtype=torch.int64)])  # fmt: skip
def test_new_tensors_are_where_the_tensor_is_that_was_asked(make):
    assert make(torch.ones(2, device="vgpu:1")).device == torch.device("vgpu", 1)
    assert make(torch.ones(2, device="vgpu:0")).device == torch.device("vgpu", 0)
