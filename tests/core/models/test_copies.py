"""Copies of models: functions of a copy call the copy's own modules."""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from devexplorer.core.models.copies import clone_model, deep_copy


class Layers(nn.Module):
    """Two layers, and a function over them that each test puts there."""

    run: Callable[[Tensor], Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)

    def both(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def through(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def by_lambda(net: Layers) -> None:
    first, second = net.first, net.second
    net.run = lambda x: second(first(x))


def by_partial(net: Layers) -> None:
    net.run = functools.partial(through, (net.first, net.second))


def by_bound_method(net: Layers) -> None:
    net.run = net.both


def by_default(net: Layers) -> None:
    def run(x: Tensor, layers: Any = (net.first,), *, last: nn.Module = net.second) -> Tensor:
        return last(through(layers, x))

    net.run = run


def by_function_in_function(net: Layers) -> None:
    inner = net.both

    def logged(x: Tensor) -> Tensor:
        return inner(x)

    net.run = functools.wraps(inner)(logged)


def by_functions_that_call_each_other(net: Layers) -> None:
    def even(x: Tensor, left: int = 2) -> Tensor:
        return odd(net.first(x), left - 1) if left else x

    def odd(x: Tensor, left: int) -> Tensor:
        return even(net.second(x), left - 1)

    net.run = even


def by_function_in_containers(net: Layers) -> None:
    held: dict[str, Any] = {"steps": [lambda x: net.first(x), (net.second.forward, None)]}
    net.held = held  # type: ignore[assignment]
    net.run = types.MethodType(lambda self, x: self.held["steps"][1][0](self.held["steps"][0](x)), net)


def by_object(net: Layers) -> None:
    holder = types.SimpleNamespace(layers=[net.first, net.second])
    net.run = lambda x: through(holder.layers, x)


def by_wrapped_forward(net: Layers) -> None:
    old = net.first.forward
    net.first.forward = lambda x: old(x)  # type: ignore[method-assign]
    net.run = lambda x: net.both(x)


def by_hook(net: Layers) -> None:
    second = net.second
    net.first.register_forward_hook(lambda module, given, result: second(result))
    net.run = lambda x: net.first(x)


def by_partial_of_a_lambda(net: Layers) -> None:
    net.run = functools.partial(lambda x, scale: net.both(x) * scale, scale=1.0)


def by_weak_reference(net: Layers) -> None:
    net.own = weakref.ref(net)  # type: ignore[assignment]
    net.run = types.MethodType(lambda self, x: self.own().both(x), net)


WAYS = [
    by_lambda,
    by_partial,
    by_bound_method,
    by_default,
    by_function_in_function,
    by_functions_that_call_each_other,
    by_function_in_containers,
    by_object,
    by_wrapped_forward,
    by_hook,
    by_partial_of_a_lambda,
    by_weak_reference,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_copy_runs_on_its_own_parameters(way: Callable[[Layers], None]) -> None:
    net, x = Layers(), torch.ones(1, 3)
    way(net)
    before = net(x)
    second = deep_copy(net)
    assert torch.equal(second(x), before)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.zero_()
    assert not second(x).any()
    assert torch.equal(net(x), before)
    second(x).sum().backward()
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_twin_without_values_runs_without_values(way: Callable[[Layers], None]) -> None:
    net = Layers()
    way(net)
    assert clone_model(net, lambda tensor: torch.empty_like(tensor, device="meta"))(
        torch.ones(1, 3, device="meta")
    ).is_meta


def test_functions_without_a_part_of_the_model_are_the_same() -> None:
    net, scale = Layers(), 2.0
    net.run = lambda x: x * scale
    net.act = torch.relu  # type: ignore[assignment]
    second = deep_copy(net)
    assert second.run is net.run
    assert second.act is net.act


class RenewsItself(Layers):
    """Recreates its function in a copy, like the result of `torch.compile`."""

    def __init__(self) -> None:
        super().__init__()
        by_lambda(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: value for name, value in state.items() if name != "run"})
        by_lambda(self)


def test_a_function_that_a_copy_has_made_for_itself_is_left_alone() -> None:
    second = deep_copy(RenewsItself())
    held = {id(cell.cell_contents) for cell in second.run.__closure__}
    assert held == {id(second.first), id(second.second)}


def test_a_function_under_two_names_is_one_in_the_copy_too() -> None:
    net = Layers()
    net.run = net.other = lambda x: net.first(x)  # type: ignore[assignment]
    second = deep_copy(net)
    assert second.run is second.other
    assert second.run is not net.run


def test_what_cannot_be_copied_stays_shared() -> None:
    net = Layers()
    lock, history = threading.Lock(), net.first.weight * 2
    held = (lock, net.first)

    def run(x: Tensor) -> Tensor:
        with held[0]:
            return net.second(x @ history)

    net.run = run
    second = deep_copy(net)
    assert torch.equal(second(torch.ones(1, 3)), net(torch.ones(1, 3)))
