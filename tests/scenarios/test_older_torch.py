"""What an older torch lacks, taken away from the one that runs the tests: the rest works, and one line says what does
not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes.cuda import AcceleratorError
from torch import nn

from devexplorer.core.base import Unavailable
from devexplorer.core.benchmark.matmul import product, tf32_products
from devexplorer.core.benchmark.timing import AcceleratorStreams
from devexplorer.core.cli import devices as devices_command
from devexplorer.core.devices import accelerator
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.doctor.subject import chosen
from devexplorer.core.models import default_device, settings_kept
from devexplorer.core.models.inputs import specs_for
from devexplorer.core.records import DoctorRequest
from devexplorer.core.virtual import backend
from devexplorer.core.virtual.device.accounting import Stream
from devexplorer.core.virtual.torch_api import parallel


def test_before_2_6_there_is_no_generic_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    older = SimpleNamespace(accelerator=SimpleNamespace(current_accelerator=none_here))
    assert accelerator.current(older) is None, "2.6"
    monkeypatch.delattr(torch, "accelerator", raising=False)
    assert accelerator.current() is None
    with pytest.raises(Unavailable, match="about None, not about xpu:0"):
        AcceleratorStreams("xpu:0")


@pytest.mark.parametrize("named", [True, False], ids=["as here", "before 2.8"])
def test_an_error_of_the_device_is_told_from_one_of_the_code(monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    if not named:
        monkeypatch.delattr(torch, "AcceleratorError", raising=False)
    assert accelerator.failed(AcceleratorError("CUDA error: an illegal memory access was encountered"))
    assert not accelerator.failed(RuntimeError("expected scalar type Half"))


def test_2_4_cannot_read_back_that_there_is_no_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    read = torch.get_default_device

    def as_2_4() -> torch.device:
        if vars(torch._GLOBAL_DEVICE_CONTEXT).get("device_context", "") is None:  # type: ignore[attr-defined]
            raise AttributeError("'NoneType' object has no attribute 'device'")
        return read()

    monkeypatch.setattr(torch, "get_default_device", as_2_4)
    with settings_kept():
        torch.set_default_device("meta")
        torch.set_default_device(None)
        assert default_device() == torch.device("cpu")
        torch.set_default_device("meta")
    assert torch.get_default_device() == torch.device("cpu"), "the user's code can ask"


def test_float32_products_as_before_2_9(monkeypatch: pytest.MonkeyPatch) -> None:
    older = SimpleNamespace(allow_tf32=False)
    monkeypatch.setattr(torch.backends.cuda, "matmul", older)
    with tf32_products():
        assert older.allow_tf32
    assert older == SimpleNamespace(allow_tf32=False)


def test_a_float8_product_of_2_4_comes_with_its_largest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    a = b = torch.ones(16, 16)
    monkeypatch.setattr(torch, "_scaled_mm", lambda a, b, *, scale_a, scale_b, out_dtype: (a @ b, scale_a))
    assert product(a, b, "float8_e4m3fn")[1].shape == (16, 16)


class Casting(nn.Module):
    """Its autocast says of tensors without values what an older torch's does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        if x.is_meta:
            raise RuntimeError("unsupported scalarType")
        return self.layer(x)


def test_inputs_are_guessed_with_values_where_autocast_cannot_do_without() -> None:
    assert [spec.shape[-1] for spec in specs_for(Casting(), "casting")] == [4]


def test_without_virtual_gpus_the_commands_say_so_and_offer_none(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    why = "torch 2.4.1 has no hook for Python devices; virtual GPUs need torch 2.10 or newer"
    devices_command._print(Catalog(), None, why)
    assert f"No GPU that can be used. Virtual ones are not available: {why}" in " ".join(capfd.readouterr().out.split())
    monkeypatch.setattr(backend, "unavailable", lambda: why)
    with pytest.raises(Unavailable, match="--device cpu examines it on the CPU"):
        chosen(DoctorRequest(source="mlp"))
    assert chosen(DoctorRequest(source="mlp", device="cpu")).chosen.id == "cpu"


@pytest.mark.usefixtures("virtual")
def test_a_cuda_build_is_asked_for_nothing_that_is_about_virtual_gpus() -> None:
    asked: list[str] = []
    function = parallel._either(lambda *_: asked.append("CUDA's"), lambda *_: asked.append("ours"))
    cpu, stream = torch.ones(2), Stream(torch.device("vgpu:0"))
    function(cpu, [0, 1], None, 0, [stream])
    function((), [0, 1], 10)
    function(cpu, [0, 1], None, 0, None)
    assert asked == ["ours", "ours", "CUDA's"]
