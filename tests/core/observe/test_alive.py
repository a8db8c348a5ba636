"""What keeps a tensor alive, in words: one row for each way to hold one."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import devexplorer
from devexplorer.core.observe import alive
from devexplorer.core.observe.alive import held_by, live_objects
from devexplorer.core.virtual.device.machine import VirtualMachine

KEPT: dict[str, Any] = {}
"""A global of this module."""


class Slotted:
    __slots__ = ("tensor",)


def tensor() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def said(held: object) -> list[str]:
    """Every holder but those of the test itself."""
    return [str(one) for one in held_by(held) if one.function not in ("said", "test_how_it_is_held")]


def in_a_global() -> torch.Tensor:
    KEPT["a"] = [tensor()]
    return KEPT["a"][0]


def in_a_class() -> torch.Tensor:
    KEPT["class"] = type("Kept", (), {"shared": {"b": tensor()}})
    return KEPT["class"].shared["b"]


def in_an_object() -> torch.Tensor:
    KEPT["object"] = SimpleNamespace(inner=SimpleNamespace(tensor=tensor()))
    return KEPT["object"].inner.tensor


def in_slots() -> torch.Tensor:
    KEPT["slots"] = Slotted()
    KEPT["slots"].tensor = tensor()
    return KEPT["slots"].tensor


def in_a_deque_of_tuples() -> torch.Tensor:
    KEPT["deque"] = deque([(0, tensor())])
    return KEPT["deque"][0][1]


def in_a_partial() -> torch.Tensor:
    KEPT["partial"] = functools.partial(print, tensor())
    return KEPT["partial"].args[0]


def in_a_closure() -> torch.Tensor:
    inner = tensor()

    def function() -> torch.Tensor:
        return inner

    KEPT["function"] = function
    return inner


def in_a_generator() -> torch.Tensor:
    def generate() -> Iterator[torch.Tensor]:
        waiting = tensor()
        while True:
            yield waiting

    KEPT["generator"] = generate()
    return next(KEPT["generator"])


def in_a_model() -> torch.Tensor:
    KEPT["model"] = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    return KEPT["model"][1][0].weight


def as_a_gradient() -> torch.Tensor:
    KEPT["model"] = nn.Linear(2, 2)
    KEPT["model"](torch.ones(2)).sum().backward()
    return KEPT["model"].bias.grad


def as_state_of_an_optimizer() -> torch.Tensor:
    model = nn.Linear(2, 2)
    KEPT["optimizer"] = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    KEPT["optimizer"].step()
    return KEPT["optimizer"].state[model.bias]["exp_avg"]


def in_a_graph() -> torch.Tensor:
    saved = torch.ones(3)
    KEPT["loss"] = (tensor() * saved).sum()
    return saved


def as_a_view() -> torch.Tensor:
    whole = torch.ones(100)
    KEPT["view"] = whole[3:5]
    return whole


WAYS: dict[Callable[[], torch.Tensor], str] = {
    in_a_global: "KEPT['a'][0], a global of test_alive.py",
    in_a_class: "Kept.shared['b'], an attribute of a class",
    in_an_object: "KEPT['object'].inner.tensor, a global of test_alive.py",
    in_slots: "KEPT['slots'].tensor, a global of test_alive.py",
    in_a_deque_of_tuples: "KEPT['deque'][0][1], a global of test_alive.py",
    in_a_partial: "KEPT['partial'].args[0], a global of test_alive.py",
    in_a_closure: "inner, from the closure of in_a_closure.<locals>.function (test_alive.py",
    in_a_generator: "waiting in generate (test_alive.py",
    in_a_model: "KEPT['model'][1][0].weight, a global of test_alive.py",
    as_a_gradient: "KEPT['model'].bias.grad, a global of test_alive.py",
    as_state_of_an_optimizer: "KEPT['optimizer'].state[…]['exp_avg'], a global of test_alive.py",
    in_a_graph: "the graph (MulBackward0 has saved it as other) of KEPT['loss'], a global of test_alive.py",
    as_a_view: "a view: KEPT['view'], a global of test_alive.py",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_how_it_is_held(way: Callable[[], torch.Tensor]) -> None:
    globals()["KEPT"] = {}  # the tests' guard freezes what was there before, and so hides it from the collector
    try:
        assert any(words.startswith(WAYS[way]) for words in said(way())), said(way())
    finally:
        KEPT.clear()


def test_a_variable_of_who_asks_is_one_and_ours_are_left_out() -> None:
    here = tensor()
    (holder,) = devexplorer.held_by(here)
    assert (holder.kind, holder.path, holder.function) == ("variable", "here", _name(holder))


def _name(_: object) -> str:
    return "test_a_variable_of_who_asks_is_one_and_ours_are_left_out"


def test_on_a_virtual_gpu_it_is_the_same(virtual: VirtualMachine) -> None:
    globals()["KEPT"] = {}
    saved = torch.ones(3, device="vgpu:1")
    KEPT["loss"] = (torch.ones(3, device="vgpu:1", requires_grad=True) * saved).sum()
    try:
        assert {str(one).partition(" (test")[0] for one in held_by(saved)} == {
            "saved in test_on_a_virtual_gpu_it_is_the_same",
            "the graph (MulBackward0 has saved it as other) of KEPT['loss'], a global of test_alive.py",
        }
    finally:
        KEPT.clear()


def test_it_stops_at_its_limit_and_says_so() -> None:
    (found,) = alive.search([tensor()], seconds=0.0).values()
    assert [str(one) for one in found] == ["not found within the time limit"]


def test_no_tuple_that_another_thread_is_making_fails_while_objects_are_looked_up() -> None:
    """In a list of all objects it would have one reference too many to be shortened."""
    begun, goes_on = threading.Event(), threading.Event()
    made: list[tuple[int, ...]] = []

    def numbers() -> Iterator[int]:
        yield 1
        begun.set()
        goes_on.wait()
        yield 2

    thread = threading.Thread(target=lambda: made.append(tuple(numbers())))

    class Asking(type):
        def __subclasscheck__(cls, kind: type) -> bool:
            goes_on.set()
            thread.join()
            return False

    class Wanted(metaclass=Asking):
        pass

    thread.start()
    begun.wait()
    assert live_objects(Wanted) == []
    assert made == [(1, 2)]


def test_a_tuple_that_another_thread_is_making_is_left_alone() -> None:
    """Its last places are empty, and to read one would end the process."""
    begun, goes_on = threading.Event(), threading.Event()
    made: list[tuple[torch.Tensor, ...]] = []
    wanted = tensor()

    def tensors() -> Iterator[torch.Tensor]:
        yield wanted
        begun.set()
        goes_on.wait()

    thread = threading.Thread(target=lambda: made.append(tuple(tensors())))
    thread.start()
    begun.wait()
    (found,) = alive.search([wanted]).values()
    goes_on.set()
    thread.join()
    assert made == [(wanted,)]
    assert not any("[0]" in str(one) for one in found)
