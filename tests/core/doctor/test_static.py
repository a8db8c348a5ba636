"""Findings by inspecting a model: before its move, after it, and after a forward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.doctor import Made, made, marked
from fakes.doctor_models import Case, cases
from torch import nn

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.models.walk import is_uninitialised
from devexplorer.core.virtual.backend import move_lazily, swapping

__all__ = ["made"]

pytestmark = pytest.mark.usefixtures("virtual")
CASES = cases("static", "self.layer = nn.Linear(4, 4)", "return self.layer(x)")
"""`# finds: RULE SEVERITY PATH` at the marked line, or nothing; looked at before and after a move, in forward (`# run`)
and backward (`# train`), and beside a second one (`# again`); on a card and on the CPU, or only `# on:` one of them."""
HELPERS = """
import torch
from torch import nn
import dataclasses, functools, types

class Helper:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner

@dataclasses.dataclass
class Written:
    scale: torch.Tensor

def around(inner):
    return lambda x: inner(x)

def closed(scale):
    return lambda x: x * scale

def default(x, scale=torch.ones(4)):
    return x * scale
"""


def looked_at(
    make: Callable[[], nn.Module],
    device: str = "vgpu:0",
    *,
    run: bool = False,
    train: bool = False,
    again: bool = False,
    recorded: bool = True,
) -> FindingCollector:
    """All findings of the static rules."""
    collector, origins = FindingCollector(), Origins()
    if recorded:
        with origins.recording():
            model = make()
    else:
        model = make()
    checks = StaticChecks(model, origins, collector)
    checks.before()
    with swapping():
        if device != "cpu" and any(is_uninitialised(one) for one in model.parameters()):
            move_lazily(model, device)
        else:
            model.to(device)
    checks.moved(device)
    if run or train:
        output = model.train(train)(torch.ones(2, 4).to(device))
        if train:
            output.sum().backward()
        checks.ran(train, {id(module) for module in model.modules()})
    if again:
        checks.compare(make())
    origins.close()
    return collector


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_wrong_is_one_finding_at_its_line_and_what_is_right_none(
    case: Case, made: Made, tmp_path: Path
) -> None:
    given = case.directives
    make = made(case.text + HELPERS)
    lines = marked(tmp_path / "one_net.py")
    modes = [{name: True} for name in ("run", "train") if name in given] or [{}]
    ways = [(device, True) for device in ("vgpu:0", "cpu") if given.get("on", device) == device]
    if "unrecorded" in given:
        ways.append(("vgpu:0", False))
    for device, recorded in ways:
        for mode in modes:
            options: dict[str, Any] = {**mode, "again": "again" in given, "recorded": recorded}
            found = looked_at(make, device, **options).findings()
            told = [f"{one.rule} {one.severity} {one.path}".strip() for one in found]
            assert told == given.get("finds", "").splitlines(), (device, options, found)
            for one in found:
                assert one.line == lines[0], (device, options)
                assert all(words in one.message for words in given.get("says", "").splitlines()), one.message
                assert given.get("fix", "") in one.fix
                assert one.count == int(given.get("count", one.count))
                assert str(one.bytes) == given.get("bytes", str(one.bytes))


@pytest.mark.parametrize(
    "held",
    [
        "closed(torch.ones(4))",
        "default",
        "functools.partial(torch.conv1d, weight=torch.ones(1, 1, 3))",
        "Helper([torch.ones(4)])",
        "Written(torch.ones(4))",
        "types.SimpleNamespace(scale=torch.ones(4))",
        "torch.distributions.Normal(torch.zeros(3), torch.ones(3))",
        "{'deep': [(torch.ones(4),)]}",
        "frozenset({torch.ones(4)})",
    ],
)
def test_tensors_are_found_in_functions_objects_and_containers(held: str, made: Made) -> None:
    make = made(f"{HELPERS}\ndef Net():\n    net = nn.Linear(4, 4)\n    net.held = {held}\n    return net\n")
    assert [(one.rule, one.path) for one in looked_at(make).findings()] == [("unregistered-tensor", "held")]


def test_hooks_of_accelerate_are_found_where_they_were_put(made: Made, tmp_path: Path) -> None:
    pytest.importorskip("accelerate.hooks")
    make = made(
        "from accelerate.hooks import AlignDevicesHook, add_hook_to_module\nfrom torch import nn\n"
        "def Net():\n    net = nn.Sequential(nn.Linear(4, 4))\n"
        "    add_hook_to_module(net[0], AlignDevicesHook(io_same_device=True))  # <-\n    return net\n"
    )
    (finding,) = looked_at(make).findings()
    assert (finding.rule, finding.path, [finding.line]) == ("offload-hooks", "0", marked(tmp_path / "one_net.py"))


class Touchy:
    """Everything that can be asked of it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")

    def __hash__(self) -> int:
        return 1

    def __len__(self) -> int:
        raise AssertionError("its length was asked for")


class TouchyList(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError("it was iterated")

    def __len__(self) -> int:
        raise AssertionError("its length was asked for")


class Holding(nn.Linear):
    def __init__(self, **held: Any) -> None:
        super().__init__(4, 4)
        self.__dict__.update(held)  # past torch, which asks everything for its class

    @property
    def asked(self) -> Any:
        raise AssertionError("the property was asked for")


def test_nothing_of_the_models_own_code_is_called_on_the_way() -> None:
    held = {"touchy": Touchy(), "things": TouchyList([nn.Linear(4, 4)]), "by_key": {Touchy(): 1}}
    found = looked_at(lambda: Holding(**held)).findings()
    assert [(one.rule, one.path) for one in found] == [("unregistered-module", "things")]


def test_what_is_too_large_to_be_searched_is_not_called_clean() -> None:
    collector = looked_at(lambda: Holding(many=[object()] * 20_000))
    assert not collector.findings()
    assert [one.what for one in collector.unchecked()] == ["the rest of self.many"]
    circle: list[Any] = [1, "two"]
    circle.append(circle)
    assert not looked_at(lambda: Holding(loop=circle)).unchecked()


def test_a_move_that_failed_leaves_what_is_known_without_it() -> None:
    collector = FindingCollector()
    checks = StaticChecks(Holding(heads=[nn.Linear(4, 4)]), Origins(), collector)
    checks.before()
    checks.moved(None)
    assert [(one.rule, one.path) for one in collector.findings()] == [("unregistered-module", "heads")]


def test_the_survey_leaves_the_model_as_it_was() -> None:
    model = Holding()
    model.alias = model.weight.data
    before = {name: (tensor.device, tensor.clone()) for name, tensor in model.state_dict().items()}
    attributes = set(vars(model))
    checks = StaticChecks(model, Origins(), FindingCollector())
    checks.before()
    checks.moved("cpu")
    checks.ran(train=False)
    assert set(vars(model)) == attributes
    assert all(torch.equal(tensor, before[name][1]) for name, tensor in model.state_dict().items())
