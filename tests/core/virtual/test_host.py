"""Virtual GPUs and the host: loading files onto them, and pinned memory."""

import copy
import io

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("virtual")


def allocated(machine, device="vgpu:1"):
    return machine.gpu(device).memory.allocated_bytes


def saved(things):
    file = io.BytesIO()
    torch.save(things, file)
    return file


def loaded(file, where, **options):
    file.seek(0)
    return torch.load(file, map_location=where, **options)


WAYS = {
    "text": lambda: "vgpu:1",
    "device": lambda: torch.device("vgpu:1"),
    "table": lambda: {"cpu": "vgpu:1"},
    "function": lambda: lambda storage, location: storage.vgpu(1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_file_can_be_loaded_onto_a_virtual_gpu(virtual, way, weights_only):
    whole = torch.arange(1000.0)
    file = saved(
        {"whole": whole, "part": whole[2:5], "none": torch.empty(0), "weight": nn.Parameter(torch.ones(2, 3).t())}
    )
    before = virtual.clock_seconds("vgpu:1")
    back = loaded(file, WAYS[way](), weights_only=weights_only)
    assert {str(tensor.device) for tensor in back.values()} == {"vgpu:1"}
    assert isinstance(back["weight"], nn.Parameter)
    assert back["weight"].shape == (3, 2)
    assert allocated(virtual) == 4096 + 512
    assert virtual.clock_seconds("vgpu:1") > before
    with torch.no_grad():
        back["whole"][2] = 99.0
    assert back["part"].tolist() == [99.0, 3.0, 4.0]
    back.clear()
    assert allocated(virtual) == 0


def test_what_was_loaded_onto_a_virtual_gpu_shares_memory_in_the_next_file_too(virtual):
    whole = torch.arange(4.0)
    back = loaded(saved([whole, whole[1:]]), "vgpu:1")
    again = loaded(saved(back), None)
    again[0].zero_()
    assert again[1].tolist() == [0.0] * 3
    assert back[1].tolist() == [1.0, 2.0, 3.0]
    back.clear()
    assert allocated(virtual) == 0


def test_the_storage_of_a_loaded_tensor_can_be_copied(virtual):
    x = loaded(saved(torch.ones(1000)), "vgpu:1")
    storage = x.untyped_storage()
    second = storage.clone()
    assert second.device == storage.device == torch.device("vgpu:1")
    assert allocated(virtual) == 2 * 4096
    assert storage.vgpu(1) is storage
    assert loaded(saved(storage), None, weights_only=False).device.type == "cpu"
    assert copy.deepcopy(x).sum().item() == 1000


def test_loading_to_a_device_that_is_not_there_or_full_is_refused(virtual):
    file = saved(torch.ones(10))
    with pytest.raises(RuntimeError, match="There is no vgpu:7 here"):
        loaded(file, "vgpu:7")
    block = virtual.gpu("vgpu:1").memory.allocate(virtual.gpu("vgpu:1").memory.free_bytes // (2 << 20) * (2 << 20))
    with pytest.raises(torch.OutOfMemoryError):
        loaded(file, "vgpu:1")
    virtual.gpu("vgpu:1").memory.free(block)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA pins memory")
def test_pinning_without_cuda_gives_the_same_memory():
    x = torch.ones(3, requires_grad=True)
    pinned = x.pin_memory()
    assert pinned.data_ptr() == x.data_ptr()
    assert not pinned.is_pinned()
    pinned.sum().backward()
    assert x.grad.tolist() == [1.0] * 3
    with pytest.raises(RuntimeError, match="cannot pin a tensor on vgpu:1, only dense CPU tensors can be pinned"):
        torch.ones(3, device="vgpu:1").pin_memory()
