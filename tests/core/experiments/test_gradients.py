"""Parameters that backward did not reach, and the responsible line of the model's source."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.records import Answer, Backward, NewTensor


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.head = nn.Linear(4, 2)


class Detaching(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x @ self.weight.detach())


class InAHelper(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(x))

    def mix(self, x: Tensor) -> Tensor:
        return x @ self.weight.data


class Switching(Base):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = x @ self.weight
        return self.head(x)


class Everything(Base):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x @ self.weight)


class Unused(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


class WithIdlePart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        made.do(NewTensor(name="x", fill="randn", shape=(3, 4)))
        yield made


def backward(place: Place, model: nn.Module) -> Answer:
    place.workspace.add("net", model)
    return place.answer(Backward(target="net", input="x"))


@pytest.mark.parametrize(
    ("kind", "method", "code"),
    [
        (Detaching, Detaching.forward, "self.weight.detach()"),
        (InAHelper, InAHelper.mix, "self.weight.data"),
        (Switching, Switching.forward, "torch.no_grad()"),
    ],
)
def test_the_line_that_cuts_a_parameter_off_is_named(
    place: Place, kind: type[nn.Module], method: object, code: str
) -> None:
    answer = backward(place, kind())
    assert not answer.failed
    assert "weight took part and got no gradient: for autograd the output does not depend on it" in answer.words
    lines, first = inspect.getsourcelines(method)  # type: ignore[arg-type]
    line = first + next(number for number, text in enumerate(lines) if code in text)
    assert f"{code} (line {line} of test_gradients.py, {kind.__name__})" in answer.words
    assert [fact.value for fact in answer.facts if fact.label == "cut off from autograd"] == [
        f"{__file__}:{line}: {code}"
    ]


def test_a_forward_without_gradients_at_all_is_refused_with_its_line(place: Place) -> None:
    answer = backward(place, Everything())
    assert answer.failed
    assert "so there is no backward: torch.no_grad() (line" in answer.words
    assert "lets nothing that is computed there have a history" in answer.words
    net = place.workspace.get("net")
    assert isinstance(net, nn.Module)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_parameter_that_nothing_uses_is_listed_without_a_suspect(place: Place) -> None:
    answer = backward(place, Unused())
    assert "weight took part and got no gradient" in answer.words
    assert "line" not in answer.words
    assert not [fact for fact in answer.facts if fact.label == "cut off from autograd"]


def test_modules_that_did_not_run_are_distinguished(place: Place) -> None:
    answer = backward(place, WithIdlePart())
    assert "spare.weight and spare.bias did not take part: their module did not run" in answer.words
    assert "took part and got no gradient" not in answer.words


def test_frozen_parameters_are_no_mistake(place: Place) -> None:
    model = WithIdlePart()
    model.used.weight.requires_grad_(False)
    answer = backward(place, model)
    assert "used.weight is frozen (requires_grad is False)" in answer.words


def test_a_model_that_is_frozen_whole_is_refused_with_that_reason(place: Place) -> None:
    model = nn.Linear(4, 2).requires_grad_(False)
    answer = backward(place, model)
    assert answer.failed
    assert "so there is no backward: weight and bias are frozen; unfreeze what should be trained" in answer.words


def test_a_model_without_parameters_is_refused_with_that_reason(place: Place) -> None:
    answer = backward(place, nn.ReLU())
    assert answer.failed
    assert "it has no parameters, and its input does not require a gradient either" in answer.words


def test_source_that_cannot_be_read_names_no_line_and_is_not_executed(place: Place) -> None:
    scope = {"Base": Base}
    exec("class Typed(Base):\n    def forward(self, x):\n        return self.head(x @ self.weight.data)", scope)
    kind = scope["Typed"]
    answer = backward(place, kind())
    assert not answer.failed
    assert "weight took part and got no gradient" in answer.words
    assert "line" not in answer.words


def test_a_second_backward_says_the_same(place: Place) -> None:
    first = backward(place, Detaching()).words
    again = place.answer(Backward(target="net", input="x")).words
    cut = first[first.index("weight took part") :]
    assert again.endswith(cut)
