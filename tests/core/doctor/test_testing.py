"""`assert_placement_clean`, for users' tests: what passes, what fails with which message, and that everything is
restored."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.virtual import virtual
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.doctor.testing import assert_placement_clean
from devexplorer.core.doctor.working import generators_kept
from devexplorer.core.virtual.device.machine import VirtualMachine

__all__ = ["virtual"]


class Clean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.scale = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) * self.scale
        if float(y.sum()) > 1e9:
            return -y
        return y


def line_of(text: str) -> int:
    """The number of a line of this file, the last one that has this text."""
    return next(
        number
        for number, line in reversed(list(enumerate(Path(__file__).read_text().splitlines(), 1)))
        if line.strip() == text
    )


def test_a_clean_model_passes_and_is_left_as_it_was(virtual: VirtualMachine) -> None:
    model = Clean()
    weights = [one.clone() for one in model.parameters()]
    identities = [id(one) for one in (*model.parameters(), *model.buffers())]
    found = assert_placement_clean(model, train=True)
    assert (found.target, found.device, found.simulated, found.train) == ("Clean", "vgpu:0", True, True)
    assert model.training
    assert identities == [id(one) for one in (*model.parameters(), *model.buffers())]
    assert all(
        torch.equal(one, before) and one.grad is None and one.device.type == "cpu"
        for one, before in zip(model.parameters(), weights, strict=True)
    )


def test_a_broken_model_fails_with_every_finding(virtual: VirtualMachine) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_placement_clean(Broken(), "vgpu:1")
    lines = str(failed.value).splitlines()
    assert lines[0] == "placement of Broken on vgpu:1 (simulated): 1 error, 1 warning"
    assert f"test_testing.py:{line_of('self.scale = torch.ones(4)')}: unregistered-tensor (scale)" in lines[1]
    assert "register_buffer" in lines[3]
    assert f"test_testing.py:{line_of('if float(y.sum()) > 1e9:')}: hidden-sync" in lines[4]


def test_rules_can_be_passed_over(virtual: VirtualMachine) -> None:
    found = assert_placement_clean(Broken(), ignore=("unregistered-tensor", "hidden-sync", "mixed-devices"))
    assert len(found.problems) == 2
    with pytest.raises(AssertionError, match=": 1 error"):
        assert_placement_clean(Broken(), ignore=["hidden-sync"])
    with pytest.raises(BadInput, match="there is no rule 'hidden-synch'; did you mean hidden-sync"):
        assert_placement_clean(Clean(), ignore=["hidden-synch"])


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        drawn = torch.randn(4)
        return x[:, :4] + drawn


class OneCard(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        table = torch.ones(4, device="cuda:1")
        return x[:, :4] * table


@pytest.mark.parametrize(
    ("make", "rule", "line"),
    [
        (Broken, "unregistered-tensor", "y = self.layer(x) * self.scale"),
        (Noise, "default-device", "return x[:, :4] + drawn"),
        (OneCard, "hard-coded-device", "return x[:, :4] * table"),
    ],
)
def test_what_fails_because_of_a_rule_that_is_passed_over_still_fails(
    virtual: VirtualMachine, make: type[nn.Module], rule: str, line: str
) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_placement_clean(make(), "vgpu:0", torch.ones(2, 8), ignore={rule, "hidden-sync"})
    assert f"test_testing.py:{line_of(line)}: mixed-devices" in str(failed.value)
    assert f": {rule}" not in str(failed.value)


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        random.random()
        np.random.rand()
        torch.rand(2)
        torch.manual_seed(7)
        return nn.functional.dropout(self.layer(x)) + torch.randn(4, device=x.device)


@pytest.mark.parametrize("make", [Draws, Broken, Noise])
@pytest.mark.parametrize("options", [{}, {"train": True}, {"dtype": "bfloat16"}])
def test_every_random_generator_is_left_as_it_was(
    virtual: VirtualMachine, make: type[nn.Module], options: dict[str, Any]
) -> None:
    model = make()

    def next_ones() -> list[Any]:
        """Drawn from a copy of each generator."""
        drawn = [torch.rand(3).tolist(), torch.rand(3, device="vgpu:0").tolist(), random.random(), np.random.rand()]
        states = (
            torch.get_rng_state(),
            torch.get_device_module("vgpu").get_rng_state(0),
            random.getstate(),
            np.random.get_state(),
        )
        return [*drawn, *(repr(one) for one in states)]

    def seed() -> None:
        torch.manual_seed(11)
        random.seed(12)
        np.random.seed(13)

    virtual.add(parse_virtual("Tesla T4"))
    with torch.random.fork_rng(devices=[]):
        before = random.getstate(), np.random.get_state()
        seed()
        expected = next_ones()
        seed()
        try:
            assert_placement_clean(model, "vgpu:0", torch.ones(2, 8), **options)
        except AssertionError:
            pass
        assert next_ones() == expected
        random.setstate(before[0])
        np.random.set_state(before[1])


class Counting:
    """The module of an accelerator whose generators count what was put back."""

    def __init__(self) -> None:
        self.states = [torch.tensor([1]), torch.tensor([2])]

    def device_count(self) -> int:
        return 2

    def get_rng_state(self, device: int) -> Tensor:
        return self.states[device].clone()

    def set_rng_state(self, state: Tensor, device: int) -> None:
        self.states[device] = state


def test_the_generators_of_every_card_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Counting()
    monkeypatch.setattr(torch, "get_device_module", lambda kind: module)
    with generators_kept("cuda"):
        module.states = [torch.tensor([5]), torch.tensor([6])]
    assert [int(one) for one in module.states] == [1, 2]


def test_what_could_not_be_checked_fails_unless_it_may(virtual: VirtualMachine) -> None:
    model = nn.ModuleList([nn.Linear(2, 2)])
    with pytest.raises(AssertionError, match="not checked: the forward"):
        assert_placement_clean(model)
    assert assert_placement_clean(model, allow_unchecked=True).unchecked


def test_inputs_are_tensors_or_shapes(virtual: VirtualMachine) -> None:
    x = torch.randn(3, 8, requires_grad=True)
    assert assert_placement_clean(Clean(), "vgpu:0", x).inputs == "3x8"
    assert x.grad is None
    assert assert_placement_clean(Clean(), "vgpu:0", "5x8").inputs == "5x8"
    with pytest.raises(AssertionError, match="could not be checked: 'Clean' fails on the CPU as well"):
        assert_placement_clean(Clean(), "vgpu:0", torch.randn(3, 9))
    with pytest.raises(BadInput, match="one text with shapes"):
        assert_placement_clean(Clean(), "vgpu:0", x, "3x8")
    with pytest.raises(BadInput, match="in a separate process and takes their shapes"):
        assert_placement_clean("mlp", "vgpu:0", x)


def test_another_dtype_can_be_meant(virtual: VirtualMachine) -> None:
    assert assert_placement_clean(Clean(), dtype="float16").clean
    assert assert_placement_clean(Clean(), "vgpu:0", torch.randn(3, 8), dtype="float16").clean
    with pytest.raises(AssertionError, match="mixed-dtypes"):
        assert_placement_clean(Clean().half(), "vgpu:0", torch.randn(3, 8))


def test_a_model_on_a_virtual_gpu_stays_there(virtual: VirtualMachine) -> None:
    model = Clean().to("vgpu:1")
    assert_placement_clean(model, "vgpu:0")
    assert model.layer.weight.device == torch.device("vgpu:1")


def test_without_virtual_gpus_some_are_made(virtual: VirtualMachine) -> None:
    virtual.reset()
    assert assert_placement_clean(Clean(), virtual="NVIDIA A10").device_name == "NVIDIA A10"
    assert len(virtual.gpus) == 1
    with pytest.raises(BadInput, match="there is no device 'vgpu:1'"):
        assert_placement_clean(Clean(), "vgpu:1")


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_weight_that_a_hook_computes_is_copied_and_left_as_it_was(virtual: VirtualMachine) -> None:
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 4)))
    weight = model[0].weight
    assert_placement_clean(model, "vgpu:0", "2x8", train=True)
    assert model[0].weight is weight
    assert weight.grad_fn is not None


def test_a_model_that_cannot_be_copied_names_the_way_out(virtual: VirtualMachine) -> None:
    model = Clean()
    model.generator = (one for one in ())  # type: ignore[assignment]
    with pytest.raises(AssertionError, match=r"cannot be copied.*name the code that makes it"):
        assert_placement_clean(model)


@pytest.mark.usefixtures("warm_processes")
def test_a_source_is_examined_in_a_subprocess(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x +"
        " torch.ones(8)\n"
    )
    with pytest.raises(AssertionError, match=r"net.py:7: default-device"):
        assert_placement_clean("net.py:Net", "vgpu:0", "2x8", folder=str(tmp_path), virtual="Tesla T4")


def test_virtual_gpus_that_the_process_cannot_have_any_more_are_refused(virtual: VirtualMachine) -> None:
    assert_placement_clean(nn.Linear(2, 2), "vgpu:0", "4x2", virtual="2x Tesla T4")
    with pytest.raises(
        BadInput, match=r"has virtual GPUs already \(Tesla T4, Tesla T4\), so 'NVIDIA A10' cannot be made"
    ):
        assert_placement_clean(nn.Linear(2, 2), "vgpu:0", "4x2", virtual="NVIDIA A10")


class KeepsFunctions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = nn.Linear(8, 4), nn.Linear(4, 4)
        layer, gate = self.layer, self.gate
        self.run = lambda x: layer(x).relu()
        layer.register_forward_hook(lambda module, given, result: result * gate(result))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


def test_functions_over_submodules_call_those_of_the_copy(virtual: VirtualMachine) -> None:
    model = KeepsFunctions()
    assert_placement_clean(model, "vgpu:0", "2x8", train=True)
    assert all(one.grad is None and one.device.type == "cpu" for one in model.parameters())
