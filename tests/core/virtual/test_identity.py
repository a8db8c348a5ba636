"""Parameters stay the same objects wherever `Module.to` moves them, so that existing optimizers and hooks keep
working."""

import weakref

import pytest
import torch
from torch import nn

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.virtual.backend import install

pytestmark = pytest.mark.usefixtures("virtual")

ROADS = [
    ["vgpu:0", "cpu"],
    ["cpu", "vgpu:1"],
    ["vgpu:0", "vgpu:1"],
    ["cpu", "vgpu:1", "cpu", "vgpu:0", "vgpu:1", "cpu"],
]


class Tied(nn.Module):
    """An embedding that is tied to the output, and a norm with buffers."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 5)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.norm(self.embed(x)))


def step(model, optimizer, device):
    x = torch.tensor([0, 1, 2, 3], device=device)
    loss = nn.functional.cross_entropy(model(x), x)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    return loss


def train(road, *, keep_losses=False, hooks=False):
    """Values after two steps on each device of the route; optimizer and hooks are made before the first move."""
    torch.manual_seed(0)
    model = Tied().to(road[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called, kept = [], []
    if hooks:
        model.embed.weight.register_hook(lambda gradient: gradient * 2)
        model.out.bias.register_post_accumulate_grad_hook(lambda parameter: called.append(parameter is model.out.bias))
    for device in road:
        model.to(device)
        for _ in range(2):
            loss = step(model, optimizer, device)
            if keep_losses:
                kept.append(loss)
    return [parameter.detach().cpu() for parameter in model.parameters()], called


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("road", ROADS, ids=" ".join)
def test_an_optimizer_made_before_a_move_trains_on(road, hooks):
    expected, called = train(["cpu"] * len(road), hooks=hooks)
    got, called_here = train(road, hooks=hooks, keep_losses=True)
    torch.testing.assert_close(got, expected)
    assert called_here == called == ([True] * 2 * len(road) if hooks else [])


@pytest.mark.parametrize("road", ROADS, ids=" ".join)
def test_parameters_gradients_and_what_hangs_on_them_stay(road):
    model = Tied().to(road[0])
    weight = model.embed.weight
    weight.no_weight_decay = True
    step(model, torch.optim.SGD(model.parameters(), lr=0.1), road[0])
    before = dict(model.named_parameters())
    gradient, seen = weight.grad, weakref.ref(weight)
    for device in road:
        model.to(device)
        assert all(parameter is before[name] for name, parameter in model.named_parameters())
        assert all(
            isinstance(one, nn.Parameter) and one.device == one.grad.device == torch.device(device)
            for one in before.values()
        )
        assert all(one.requires_grad and one.is_leaf for one in before.values())
        assert model.out.weight is weight
        assert weight.grad is gradient
        assert weight.no_weight_decay
        assert seen() is weight
        assert type(weight) is nn.Parameter or device != "cpu"


@pytest.mark.parametrize("target", ["cpu", "vgpu:1"])
def test_a_graph_from_before_the_move_cannot_lose_its_gradients_in_silence(target):
    model = nn.Linear(2, 2).to("vgpu:0")
    output = model(torch.ones(1, 2, device="vgpu:0"))
    model.to(target)
    with pytest.raises(
        RuntimeError, match=r"moved to another device between forward and backward|same device|expected device|vgpu:1"
    ):
        output.sum().backward()
    model(torch.ones(1, 2, device=target)).sum().backward()
    assert model.weight.grad.tolist() == [[1.0, 1.0]] * 2


def test_a_move_while_a_result_is_alive_works_as_on_a_real_card():
    model = nn.Linear(2, 2)
    outputs = []
    for device in ("cpu", "vgpu:0", "vgpu:1", "cpu"):
        model.to(device)
        outputs.append(model(torch.ones(1, 2, device=device)))
    assert [str(output.device) for output in outputs] == ["cpu", "vgpu:0", "vgpu:1", "cpu"]
    assert len({tuple(output.flatten().tolist()) for output in outputs}) == 1


def test_data_can_be_replaced_by_a_tensor_on_the_cpu(virtual):
    weight = nn.Parameter(torch.ones(256, device="vgpu:0"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    (weight * 2).sum().backward()
    weight.data = weight.data.cpu()
    assert (type(weight), weight.grad.device.type, virtual.gpu("vgpu:0").memory.allocated_bytes) == (
        nn.Parameter,
        "cpu",
        0,
    )
    optimizer.step()
    assert weight.tolist() == [-1.0] * 256


def test_data_of_a_computed_tensor_cannot_leave_its_kind_of_device():
    x = torch.ones(2, device="vgpu:0", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="only a leaf can be given data on another device"):
        x.data = torch.ones(2)


def test_torchs_swap_of_other_tensors_is_untouched():
    install().add(parse_virtual("T4"))
    a, b = torch.ones(2), torch.zeros(3)
    torch.utils.swap_tensors(a, b)
    assert (a.shape, b.shape) == ((3,), (2,))
    reference = weakref.ref(a)
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(a, b)
    assert reference() is a
