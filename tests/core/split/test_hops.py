from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.models import fetches_inputs
from devexplorer.core.records import Hop
from devexplorer.core.split.crossings import DeviceCrossings, _common_device, home
from devexplorer.core.virtual.backend import backward_guard


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def pair(place: Place) -> tuple[nn.Sequential, nn.Sequential, DeviceCrossings]:
    """A chain on the CPU, and a copy of it with its second layer on another device than the first, and hops."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    parted = copy.deepcopy(plain)
    parted[0].to("vgpu:0")
    parted[2].to("vgpu:1")
    hops = DeviceCrossings(parted, place.registry)
    hops.attach()
    return plain, parted, hops


def test_values_are_those_of_one_device_and_the_output_is_where_the_input_was(place: Place):
    plain, parted, hops = pair(place)
    x = torch.randn(3, 4)
    y = parted(x)
    assert y.device.type == "cpu"
    assert torch.equal(y, plain(x))
    assert [(hop.before, hop.after, hop.source, hop.destination, hop.bytes) for hop in hops.latest] == [
        ("", "0", "cpu", "vgpu:0", 48),
        ("0", "2", "vgpu:0", "vgpu:1", 48),
        ("2", "", "vgpu:1", "cpu", 48),
    ]
    assert all(hop.simulated and hop.seconds is not None and 5e-6 < hop.seconds < 1e-4 for hop in hops.latest)


def test_the_seconds_are_those_of_the_simulated_clock(place: Place):
    _, parted, hops = pair(place)
    before = place.registry.backend("vgpu:1").clock_seconds("vgpu:1")
    parted[2](torch.randn(3, 4))
    after = place.registry.backend("vgpu:1").clock_seconds("vgpu:1")
    assert hops.latest[0].seconds is not None
    assert 0 < hops.latest[0].seconds < after - before


def test_a_real_hop_is_timed_on_the_wall(place: Place):
    ticks = iter(range(100))
    hops = DeviceCrossings(nn.Linear(2, 2), place.registry, wall=lambda: float(next(ticks)))
    hops._forward._hop("", "a", "cpu", torch.device("cpu"), [torch.ones(2)])
    assert hops.latest == (
        Hop(before="", after="a", source="cpu", destination="cpu", bytes=8, seconds=1.0, simulated=False),
    )


def test_gradients_flow_back_through_hops(place: Place):
    plain, parted, _ = pair(place)
    x, twin = torch.randn(3, 4, requires_grad=True), torch.empty(0)
    twin = x.detach().clone().requires_grad_()
    plain(x).sum().backward()
    with backward_guard():
        parted(twin).sum().backward()
    assert twin.grad is not None
    assert torch.allclose(twin.grad, x.grad)  # type: ignore[arg-type]
    for one, other in zip(plain.parameters(), parted.parameters(), strict=True):
        assert other.grad is not None
        assert other.grad.device == other.device
        assert torch.allclose(one.grad, other.grad.cpu())  # type: ignore[arg-type]


def test_a_part_that_moves_takes_its_hops_along(place: Place):
    plain, parted, hops = pair(place)
    parted[2].to("vgpu:0")
    x = torch.randn(3, 4)
    assert torch.equal(parted(x), plain(x))
    assert [(hop.before, hop.after) for hop in hops.latest] == [("", ""), ("", "")]  # the model as a whole, in and out


def test_removing_them_leaves_no_hook_and_no_activation(place: Place):
    _, parted, hops = pair(place)
    x = torch.randn(3, 4)
    seen = weakref.ref(x)
    parted(x)
    del x
    gc.collect()
    assert seen() is None
    hops.remove()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in parted.modules())
    assert not fetches_inputs(parted)
    with pytest.raises(RuntimeError):
        parted(torch.randn(3, 4))


def test_a_copy_of_the_model_has_no_hops(place: Place):
    _, parted, hops = pair(place)
    parted(torch.randn(3, 4))
    known = hops.latest
    twin = copy.deepcopy(parted).to("vgpu:0")
    twin(torch.randn(3, 4, device="vgpu:0"))
    assert hops.latest == known
    assert not fetches_inputs(twin)


def test_a_model_with_hops_can_be_saved_whole_and_the_file_knows_nothing_of_them(place: Place, tmp_path: Path):
    plain, parted, _ = pair(place)
    parted(torch.randn(3, 4))
    torch.save(parted, tmp_path / "whole.pt")
    assert b"devexplorer" not in (tmp_path / "whole.pt").read_bytes()
    assert b"getattr" not in (tmp_path / "whole.pt").read_bytes().replace(b"attrgetter", b""), (
        "it would be refused as an attack"
    )
    loaded = torch.load(tmp_path / "whole.pt", weights_only=False)
    x = torch.randn(3, 4)
    assert torch.equal(loaded(x), plain(x))


@dataclass
class Packet:
    values: Tensor
    label: str


class Opener(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((2,), 3.0))

    def forward(self, packets: dict[str, list[Packet]], *, shift: tuple[Tensor, int]) -> tuple[Tensor, Packet]:
        packet = packets["here"][0]
        result = packet.values * self.scale + shift[0] * shift[1]
        return result, Packet(result + 1, packet.label)


def test_nested_inputs_are_fetched_and_the_callers_own_are_left_alone(place: Place):
    model = Opener().to("vgpu:0")
    hops = DeviceCrossings(model, place.registry)
    hops.attach()
    packet = Packet(torch.ones(2), "a")
    result, answer = model({"here": [packet]}, shift=(torch.ones(2), 5))
    assert result.tolist() == [8.0, 8.0]
    assert (answer.values.tolist(), answer.label) == ([9.0, 9.0], "a")
    assert {result.device.type, answer.values.device.type, packet.values.device.type} == {"cpu"}
    assert [hop.bytes for hop in hops.latest] == [16, 16]  # two tensors there in one hop, two back


class Masked(nn.Module):
    """Every layer gets the same mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Bilinear(2, 2, 2, bias=False) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return x


def test_what_several_parts_get_hops_once(place: Place):
    model = Masked()
    plain = copy.deepcopy(model)
    model.layers[2:].to("vgpu:0")
    hops = DeviceCrossings(model, place.registry)
    hops.attach()
    x, mask = torch.randn(1, 2), torch.randn(1, 2)
    assert torch.allclose(model(x, mask), plain(x, mask))
    assert [(hop.before, hop.after, hop.bytes) for hop in hops.latest] == [
        ("layers.1", "layers.2", 8),
        ("", "layers.2", 8),
        ("layers.3", "", 8),
    ]


class Changing(nn.Module):
    """Writes into its mask between the two layers that get it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    def forward(self, mask: Tensor) -> Tensor:
        first = self.layers[0](mask)
        mask += 1
        return torch.stack((first, self.layers[1](mask)))


def test_what_was_written_to_meanwhile_hops_again(place: Place):
    model = Changing()
    plain = copy.deepcopy(model)
    model.to("vgpu:0")
    hops = DeviceCrossings(model, place.registry)
    model.layers.register_buffer("elsewhere", torch.ones(1))  # so that the model is in pieces
    hops.attach()
    with torch.no_grad():
        assert torch.allclose(model(torch.zeros(1, 2)), plain(torch.zeros(1, 2)))
    assert [hop.after for hop in hops.latest] == ["layers.0", "layers.1", ""]


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.left(x)
        y += self.right(x)
        return y * self.left.bias + self.right(x)


def test_functions_between_the_parts_work_too(place: Place):
    plain = Sum()
    parted = copy.deepcopy(plain)
    parted.left.to("vgpu:0")
    parted.right.to("vgpu:1")
    hops = DeviceCrossings(parted, place.registry)
    hops.attach()
    x = torch.randn(2, 4)
    assert torch.allclose(parted(x), plain(x), atol=1e-6)
    assert ("right", "", "vgpu:1", "vgpu:0") in [
        (hop.before, hop.after, hop.source, hop.destination) for hop in hops.latest
    ]
    assert torch.overrides._get_current_function_mode_stack() == []


def test_functions_meet_at_a_parameter_or_where_the_first_tensor_is():
    cpu, other, weight = torch.ones(1), torch.ones(1, device="meta"), nn.Parameter(torch.ones(1, device="meta"))
    assert _common_device(torch.add, (cpu, other), None) == torch.device("cpu")
    assert _common_device(torch.add, (other,), {"other": cpu}) == torch.device("meta")
    assert _common_device(torch.cat, ([cpu, weight],), {}) == torch.device("meta")
    assert _common_device(Tensor.add_, (cpu, weight), {}) == torch.device("cpu")
    assert _common_device(Tensor.__setitem__, (cpu, 0, weight), {}) == torch.device("cpu")
    assert _common_device(Tensor.__iadd__, (cpu, weight), {}) == torch.device("cpu")
    assert _common_device(torch.add, (cpu, cpu), {}) is None


class Choosy(Sum):
    """Has a function mode of its own, in which a part is run."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.device("cpu"):
            y = self.left(x)
            ones = torch.ones(1)
        return y + self.right(x) + ones


def test_a_models_own_function_modes_are_left_alone(place: Place):
    plain = Choosy()
    parted = copy.deepcopy(plain)
    parted.left.to("vgpu:0")
    parted.right.to("vgpu:1")
    DeviceCrossings(parted, place.registry).attach()
    x = torch.randn(2, 4)
    assert torch.allclose(parted(x), plain(x), atol=1e-6)
    assert torch.overrides._get_current_function_mode_stack() == []


class Failing(nn.Module):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(2, 2), error
        self.fails = True

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.fails:
            raise self.error("no")
        return y


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_forward_that_fails_or_is_interrupted_leaves_the_next_one_alone(place: Place, error: type[BaseException]):
    model = Failing(error)
    model.to("vgpu:0")
    hops = DeviceCrossings(model, place.registry)
    hops.attach()
    with pytest.raises(error):
        model(torch.ones(1, 2))
    model.fails = False
    assert model(torch.ones(1, 2)).device.type == "cpu"
    assert [hop.after for hop in hops.latest] == ["", ""]
    assert torch.overrides._get_current_function_mode_stack() == []


def test_an_error_that_has_nothing_to_do_with_devices_is_what_the_user_sees(place: Place):
    _, parted, _ = pair(place)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        parted(torch.ones(1, 5))


def test_the_home_of_a_module_is_where_its_own_tensors_are():
    outer = Sum()
    assert home(outer) == (torch.device("cpu"), True)
    outer.left.to("meta")
    assert home(outer) == (None, False)
    outer.register_buffer("mine", torch.ones(1))
    assert home(outer) == (torch.device("cpu"), False)
    assert home(nn.ReLU()) == (None, False)
