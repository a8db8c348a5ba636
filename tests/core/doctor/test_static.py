"""Findings by inspecting a model: before its move, after it, and after a forward."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.models.walk import is_uninitialised
from devexplorer.core.records import Finding
from devexplorer.core.virtual.backend import move_lazily, swapping

pytestmark = pytest.mark.usefixtures("virtual")
LINES = Path(__file__).read_text(encoding="utf-8").splitlines()
BOTH = pytest.mark.parametrize("device", ["vgpu:0", "cpu"])


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {mark}"))


def moved(model: nn.Module, device: str) -> None:
    with swapping():
        if device != "cpu" and any(is_uninitialised(one) for one in model.parameters()):
            move_lazily(model, device)
        else:
            model.to(device)


def examined(
    make: Callable[[], nn.Module],
    device: str = "vgpu:0",
    inputs: Sequence[Tensor] = (),
    *,
    train: bool = False,
    recorded: bool = True,
    again: bool = False,
) -> FindingCollector:
    """All findings of the static rules; forward runs if there are inputs."""
    collector, origins = FindingCollector(), Origins()
    if recorded:
        with origins.recording():
            model = make()
    else:
        model = make()
    checks = StaticChecks(model, origins, collector)
    checks.before()
    moved(model, device)
    checks.moved(device)
    if inputs:
        output = model.train(train)(*[one.to(device) for one in inputs])
        if train:
            output.sum().backward()
        checks.ran(train, {id(module) for module in model.modules()})
    if again:
        checks.compare(make())
    origins.close()
    return collector


def only(collector: FindingCollector, rule: str) -> Finding:
    """The one finding, which is of this rule."""
    findings = collector.findings()
    assert [one.rule for one in findings] == [rule], [one.message for one in findings]
    return findings[0]


class Plain(nn.Module):
    """A model with one layer, of which each case is a variant."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x))


X = torch.ones(2, 4)


# modules and parameters


class InList(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = [nn.Linear(4, 4) for _ in range(10)]  # list


class InTuple(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = (nn.Linear(4, 4),)  # tuple


class InNested(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = {"fine": [nn.Linear(4, 4)], "coarse": [(nn.Linear(4, 4),)]}  # nested


class InSet(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = {nn.Linear(4, 4)}  # set


class InDict(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.__dict__["heads"] = nn.Linear(4, 4)  # __dict__


def around(inner: nn.Module) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        return torch.as_tensor(inner(x))

    return run


class InClosure(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = around(nn.Linear(4, 4))  # closure


class InPartial(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = functools.partial(torch.add, nn.Linear(4, 4))  # partial


class InBoundMethod(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Linear(4, 4).forward  # bound method


class Helper:
    __slots__ = ("inner",)

    def __init__(self, inner: object) -> None:
        self.inner = inner


@dataclasses.dataclass
class Written:
    """None of its methods has a file."""

    scale: Tensor


class InObject(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.heads = Helper(nn.Linear(4, 4))  # object


@BOTH
@pytest.mark.parametrize(
    ("make", "mark", "container"),
    [
        (InList, "list", "ModuleList"),
        (InTuple, "tuple", "ModuleList"),
        (InNested, "nested", "ModuleDict"),
        (InSet, "set", "ModuleList"),
        (InDict, "__dict__", "Assign it"),
        (InClosure, "closure", "the function"),
        (InPartial, "partial", "the function"),
        (InBoundMethod, "bound method", "the function"),
        (InObject, "object", "inherit from nn.Module"),
    ],
)
def test_a_module_that_is_not_registered_is_one_finding(
    make: type[nn.Module], mark: str, container: str, device: str
) -> None:
    finding = only(examined(make, device), "unregistered-module")
    assert (finding.path, finding.line, finding.severity) == ("heads", line_of(mark), "error")
    assert "self.heads" in finding.message
    assert container in finding.fix


def test_ten_modules_of_a_list_are_counted_with_their_bytes() -> None:
    finding = only(examined(InList), "unregistered-module")
    assert "10 modules (20 parameters" in finding.message
    assert finding.bytes == 10 * 20 * 4


def test_the_source_says_the_line_of_a_model_that_was_there_before() -> None:
    assert only(examined(InList, recorded=False), "unregistered-module").line == line_of("list")


def test_a_module_that_a_hook_holds_is_found_at_the_line_that_registers_it() -> None:
    def make() -> nn.Module:
        model = Plain()
        extra = nn.Linear(4, 4)
        model.layer.register_forward_hook(lambda module, given, output: extra(output))  # hook
        return model

    finding = only(examined(make), "unregistered-module")
    assert (finding.path, finding.line) == ("layer", line_of("hook"))


def test_a_frozen_teacher_that_a_list_hides_is_a_warning_and_none_where_the_model_moves_it_itself() -> None:
    class Hiding(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = [nn.Linear(4, 4).requires_grad_(False)]

    class Moving(Hiding):
        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            self.teacher[0]._apply(fn)
            return super()._apply(fn, recurse)

    finding = only(examined(Hiding), "unregistered-module")
    assert finding.severity == "warning"
    assert "on purpose" in finding.message
    assert not examined(Moving).findings()


def test_activations_in_a_dict_need_no_register_and_dropout_does_for_its_mode() -> None:
    class Functions(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.functions: dict[str, nn.Module] = {"relu": nn.ReLU(), "tanh": nn.Tanh()}

    class Modes(Functions):
        def __init__(self) -> None:
            super().__init__()
            self.functions["drop"] = nn.Dropout(0.5)

    assert not examined(Functions).findings()
    finding = only(examined(Modes), "unregistered-module")
    assert finding.severity == "warning"
    assert "eval()" in finding.message


@BOTH
def test_parameters_in_containers_are_one_finding_of_their_own(device: str) -> None:
    class Weights(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.weights = {"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.ones(3))}  # weights

    finding = only(examined(Weights, device), "unregistered-parameter")
    assert (finding.path, finding.line, finding.bytes) == ("weights", line_of("weights"), 24)
    assert "nn.ParameterDict" in finding.fix


def test_what_is_registered_elsewhere_may_lie_in_any_container() -> None:
    class Both(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(4, 4)
            self.every = [self.layer, self.other]
            self.weights = (self.layer.weight, self.other.weight)
            self.call = functools.partial(self.other)
            self.back = {"parent": self}
            self.layer.parent = [self]

    assert not examined(Both, inputs=[X]).findings()


def test_a_hook_of_what_holds_the_model_is_nothing_that_hides_in_it() -> None:
    class Extractor(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.probe = inner, nn.Linear(4, 4)
            inner.register_forward_hook(self.keep)

        def keep(self, *given: object) -> None:
            """Looks on."""

    def make() -> nn.Module:
        model = Plain()
        Extractor(model)
        return model

    assert not examined(make).findings()


# tensors


class Scaled(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.full((4,), 2.0)  # scale

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x) * self.scale)


@BOTH
@pytest.mark.parametrize("recorded", [True, False])
def test_a_tensor_that_is_a_plain_attribute_stays_behind(device: str, recorded: bool) -> None:
    finding = only(examined(Scaled, device, recorded=recorded), "unregistered-tensor")
    assert (finding.path, finding.line, finding.severity, finding.bytes) == ("scale", line_of("scale"), "error", 16)
    assert "self.scale is a plain attribute" in finding.message
    assert 'self.register_buffer("scale"' in finding.fix


def test_the_same_line_in_many_layers_is_one_finding() -> None:
    finding = only(examined(lambda: nn.Sequential(*[Scaled() for _ in range(5)])), "unregistered-tensor")
    assert (finding.path, finding.count) == ("0.scale", 5)


def test_tensors_are_found_in_functions_objects_classes_hooks_and_distributions() -> None:
    class Constant(Plain):
        MEAN = torch.ones(4)  # of the class

    def holding(thing: object) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            model = Plain()
            model.held = thing
            return model

        return make

    def closed(scale: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: x * scale

    def default(x: Tensor, scale: Tensor = torch.ones(4)) -> Tensor:  # noqa: B008 - it is what is to be found
        return x * scale

    assert only(examined(Constant), "unregistered-tensor").line == line_of("of the class")
    for thing in (
        closed(torch.ones(4)),
        default,
        functools.partial(torch.conv1d, weight=torch.ones(1, 1, 3)),
        Helper([torch.ones(4)]),
        Written(torch.ones(4)),
        types.SimpleNamespace(scale=torch.ones(4)),
        torch.distributions.Normal(torch.zeros(3), torch.ones(3)),
        {"deep": [(torch.ones(4),)]},
        frozenset({torch.ones(4)}),
    ):
        assert only(examined(holding(thing)), "unregistered-tensor").path == "held"


class Statistics:
    def __init__(self) -> None:
        self.mean = torch.zeros(4)  # in the object's class


class Normalised(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.statistics = Statistics()


class OfEachDomain(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.domains = {"photo": Statistics()}


class Shifted(Plain):
    def __init__(self) -> None:
        super().__init__()
        shift = torch.zeros(4)  # beside the hook
        self.register_forward_pre_hook(lambda module, inputs: (inputs[0] + shift,))


class Given(Plain):
    def __init__(self) -> None:
        super().__init__()
        made = torch.ones(4)
        self.helper = Helper([made])  # the attribute that holds the object


@pytest.mark.parametrize(
    ("make", "mark"),
    [
        (Normalised, "in the object's class"),
        (OfEachDomain, "in the object's class"),
        (Shifted, "beside the hook"),
        (Given, "the attribute that holds the object"),
    ],
)
def test_a_tensor_in_an_object_or_hook_is_found_where_that_makes_it(make: type[nn.Module], mark: str) -> None:
    assert only(examined(make), "unregistered-tensor").line == line_of(mark)


def test_a_number_on_the_cpu_and_what_forward_copies_itself_are_notes() -> None:
    class Number(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.eps = torch.tensor(1e-5)

    class Copied(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.mask = torch.ones(4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.layer(x) * self.mask.to(x.device))

    number, copied = only(examined(Number), "unregistered-tensor"), only(examined(Copied), "unregistered-tensor")
    assert (number.severity, copied.severity) == ("note", "note")
    assert "torch.cat" in number.message
    assert "forward copies it to the device" in copied.message


def test_a_tensor_that_was_made_on_the_device_is_a_warning() -> None:
    class There(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(4, device="vgpu:0")

    assert only(examined(There), "unregistered-tensor").severity == "warning"


@BOTH
def test_a_class_that_moves_its_tensors_itself_is_right(device: str) -> None:
    class Moving(Scaled):
        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            self.scale = fn(self.scale)
            return super()._apply(fn, recurse)

    assert not examined(Moving, device, [X]).findings()


def test_a_generator_of_another_device_is_a_note() -> None:
    class Random(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.random = torch.Generator()

    assert only(examined(Random), "unregistered-tensor").severity == "note"
    assert not examined(Random, "cpu").findings()


def test_what_forward_keeps_is_on_the_device_and_no_finding() -> None:
    class Keeping(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append(self.layer(x))
            return self.seen[-1]

    assert not examined(Keeping, inputs=[X]).findings()


# parameters that are none


class ToDevice(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4)).to("cpu")  # to the CPU


class Product(Plain):
    def __init__(self) -> None:
        super().__init__()
        weight = nn.Parameter(torch.ones(4))
        weight = weight * 0.1  # product
        self.gain = weight


class OnCard(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4)).to("vgpu:0")  # to the card


@BOTH
@pytest.mark.parametrize(("make", "mark"), [(ToDevice, "to the CPU"), (Product, "product"), (OnCard, "to the card")])
def test_what_a_move_or_a_product_makes_of_a_parameter_is_found(make: type[nn.Module], mark: str, device: str) -> None:
    finding = only(examined(make, device), "parameter-not-leaf")
    assert (finding.path, finding.line, finding.count) == ("gain", line_of(mark), 1)


def test_a_parameter_of_values_that_were_moved_is_right() -> None:
    class Right(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4).to("cpu").half().float() * 0.1)
            self.other = nn.Parameter(torch.ones(4)).requires_grad_(False)

    assert not examined(Right).findings()
    assert not examined(Right, "cpu").findings()


def test_what_was_computed_from_a_registered_parameter_names_it() -> None:
    class Computed(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.twice = self.layer.weight * 2

    assert "computed from layer.weight" in only(examined(Computed), "parameter-not-leaf").message


# memory that is shared


class DataAlias(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.alias = self.layer.weight.data  # data


class ViewAlias(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4, 4))
        assert isinstance(self.table, Tensor)
        self.alias = self.table.view(-1)  # view


class NameAlias(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4))
        self.alias = self.table  # name


class ListAlias(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.alias = [self.norm.running_mean]  # in a list


@BOTH
@pytest.mark.parametrize(
    ("make", "mark", "owner"),
    [
        (DataAlias, "data", "layer.weight"),
        (ViewAlias, "view", "table"),
        (NameAlias, "name", "table"),
        (ListAlias, "in a list", "norm.running_mean"),
    ],
)
def test_an_alias_stays_behind(make: type[nn.Module], mark: str, owner: str, device: str) -> None:
    finding = only(examined(make, device), "stale-alias")
    assert (finding.path, finding.line) == ("alias", line_of(mark))
    assert owner in finding.message


def test_apart_in_one_memory_is_no_alias() -> None:
    class Halves(Plain):
        def __init__(self) -> None:
            super().__init__()
            both = torch.zeros(8)
            self.register_buffer("first", both[:4])
            self.register_buffer("second", both[4:])
            self.third = nn.Parameter(torch.zeros(0))
            self.fourth = nn.Parameter(torch.zeros(0))

    assert not examined(Halves, inputs=[X]).findings()


class TiedByData(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 4)
        self.out.weight.data = self.layer.weight.data  # tied by data


class TiedByValues(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 4)
        self.out.weight = nn.Parameter(self.layer.weight.data)  # tied by values


@BOTH
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(("make", "mark"), [(TiedByData, "tied by data"), (TiedByValues, "tied by values")])
def test_two_parameters_over_one_memory_are_untied_by_a_move(
    make: type[nn.Module], mark: str, recorded: bool, device: str
) -> None:
    finding = only(examined(make, device, recorded=recorded), "tie-lost")
    assert (finding.path, finding.line, finding.bytes) == ("out.weight", line_of(mark), 64)
    assert "self.out.weight = self.layer.weight" in finding.fix


@BOTH
def test_one_parameter_under_two_names_stays_one(device: str) -> None:
    class Tied(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 4)
            self.out.weight = self.layer.weight

    assert not examined(Tied, device, [X]).findings()


def test_buffers_over_one_memory_are_untied_where_forward_writes_into_one() -> None:
    class Shared(Plain):
        def __init__(self) -> None:
            super().__init__()
            total = torch.zeros(4)
            self.register_buffer("first", total)
            self.register_buffer("second", total)

    class Written(Shared):
        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(self.first, Tensor)
            self.first.add_(1)
            return super().forward(x)

    assert only(examined(Shared, inputs=[X]), "tie-lost").severity == "note"
    assert only(examined(Written, inputs=[X]), "tie-lost").severity == "error"


# optimizers


class Optimised(Plain):
    kind: Any = torch.optim.SGD
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = self.kind(self.parameters(), lr=0.1)  # optimizer
        for _ in range(self.steps):
            self.layer(X).sum().backward()
            self.optimizer.step()


@BOTH
def test_state_that_was_made_before_the_move_stays_behind(device: str) -> None:
    class Stepped(Optimised):
        kind, steps = torch.optim.Adam, 1

    class Summed(Optimised):
        kind = torch.optim.Adagrad

    for make in (Stepped, Summed):
        finding = only(examined(make, device), "optimizer-before-move")
        assert (finding.path, finding.line) == ("optimizer", line_of("optimizer"))
        assert "state" in finding.message


def test_an_optimizer_without_state_follows_and_a_step_count_may_stay() -> None:
    class Counting(Optimised):
        kind, steps = torch.optim.Adam, 1

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            super()._apply(fn, recurse)
            for state in self.optimizer.state.values():
                state.update({name: value if name == "step" else fn(value) for name, value in state.items()})
            return self

    assert not examined(Optimised).findings()
    assert not examined(Counting).findings()


def test_an_optimizer_of_tensors_that_the_model_does_not_have_is_found() -> None:
    class Replaced(Optimised):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

    assert "does not have" in only(examined(Replaced), "optimizer-before-move").message


# lazy ones, hooks of accelerate, what no checkpoint has


def test_a_lazy_layer_that_forward_never_reaches_is_a_warning() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.LazyLinear(4)
            self.unused = nn.LazyLinear(4)  # unused

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.used(x))

    finding = only(examined(Unused, inputs=[X]), "lazy-parameter")
    assert (finding.path, finding.line, finding.severity) == ("unused", line_of("unused"), "warning")


def test_a_lazy_parameter_that_an_optimizer_was_given_is_found() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(4)
            self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)  # given lazy ones

    finding = only(examined(Early), "lazy-parameter")
    assert (finding.path, finding.line) == ("optimizer", line_of("given lazy ones"))


def test_hooks_of_accelerate_are_found_where_they_were_put() -> None:
    hooks = pytest.importorskip("accelerate.hooks")

    def make() -> nn.Module:
        model = Plain()
        hooks.add_hook_to_module(model.layer, hooks.AlignDevicesHook(io_same_device=True))  # accelerate
        return model

    finding = only(examined(make), "offload-hooks")
    assert (finding.path, finding.line) == ("layer", line_of("accelerate"))


def test_a_buffer_that_is_drawn_by_chance_and_not_saved_is_a_warning() -> None:
    class Drawn(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("noise", torch.randn(4), persistent=False)  # drawn

    finding = only(examined(Drawn, again=True), "unsaved-buffer")
    assert (finding.path, finding.line, finding.severity) == ("noise", line_of("drawn"), "warning")


def test_a_buffer_that_training_changes_and_not_saved_is_a_warning() -> None:
    class Counting(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4), persistent=False)  # changed

        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(self.mean, Tensor)
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return super().forward(x)

    finding = only(examined(Counting, inputs=[X], train=True), "unsaved-buffer")
    assert (finding.path, finding.line) == ("mean", line_of("changed"))
    assert not examined(Counting, inputs=[X]).findings()


def test_tables_that_every_build_gives_and_unused_memory_need_not_be_saved() -> None:
    lay_there = itertools.count()

    class Tables(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("positions", torch.arange(4), persistent=False)
            self.register_buffer("nothing", torch.full((2,), float("nan")), persistent=False)
            self.register_buffer("cache", cache := torch.empty(4), persistent=False)
            cache.numpy()[:] = next(lay_there)  # what lay in that memory before: torch sees nobody write
            self.register_buffer("saved", torch.randn(4))

    assert not examined(Tables, inputs=[X], train=True, again=True).findings()


# gradients


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4))


class ThroughData(Own):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.data + self.bias  # through data


class ThroughDetach(Own):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.used() + self.bias

    def used(self) -> Tensor:
        return self.weight.detach().t()  # through detach


class WithoutGradients(Own):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():  # without gradients
            x = x @ self.weight
        return x + self.bias


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    ("make", "mark"),
    [(ThroughData, "through data"), (ThroughDetach, "through detach"), (WithoutGradients, "without gradients")],
)
def test_a_parameter_that_is_only_used_without_its_history_is_found(
    make: type[nn.Module], mark: str, train: bool
) -> None:
    finding = only(examined(make, inputs=[X], train=train), "cut-from-autograd")
    assert (finding.path, finding.line) == ("weight", line_of(mark))


def test_detached_activations_shapes_and_changes_in_place_are_normal() -> None:
    class Normal(Own):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.ones(2))
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.weight.clamp_(-1, 1)
                assert isinstance(self.mean, Tensor)
                self.mean.add_(x.mean(0).detach())
            self.weight.data.mul_(1.0)
            self.weight.data[0] = 1.0
            assert self.bias.data.shape == (4,)
            y = x @ self.weight + self.bias
            return y + (y.round() - y).detach() + self.weight.detach().mean()

    assert not examined(Normal, inputs=[X], train=True).findings()
    assert not examined(Normal, inputs=[X]).findings()


def test_a_parameter_that_is_only_asked_for_its_shape_is_none_that_is_cut_off() -> None:
    class Asking(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.like = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                assert self.like.dim() == 1
            return super().forward(x) + x.new_ones(self.like.data.shape) + x.new_ones(self.like.detach().size())

    assert not examined(Asking, inputs=[X]).findings()
    assert not examined(Asking, inputs=[X], train=True).findings()


# what must not happen


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


def test_nothing_of_the_models_own_code_is_called_on_the_way() -> None:
    class Careful(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.__dict__["touchy"] = Touchy()  # past torch, which asks everything for its class
            self.things = TouchyList([nn.Linear(4, 4)])  # touchy list
            self.by_key = {Touchy(): 1}
            self.held = torch.zeros(0)

        @property
        def asked(self) -> Tensor:
            raise AssertionError("the property was asked for")

    finding = next(one for one in examined(Careful).findings() if one.rule == "unregistered-module")
    assert finding.line == line_of("touchy list")


def test_what_is_too_large_to_be_searched_is_not_called_clean() -> None:
    class Large(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.many = [object()] * 20_000

    class Round(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.loop: list[Any] = [1, "two"]
            self.loop.append(self.loop)

    collector = examined(Large)
    assert not collector.findings()
    assert [one.what for one in collector.unchecked()] == ["the rest of self.many"]
    assert not examined(Round).unchecked()


def test_torchs_own_ways_to_hold_tensors_are_no_findings() -> None:
    class Library(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 4, num_layers=2, batch_first=True)
            self.normed = nn.utils.parametrizations.weight_norm(nn.GRU(4, 4, batch_first=True), "weight_hh_l0")
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.norm = nn.BatchNorm1d(4)
            self.weighted = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
            self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
            self.older = nn.utils.spectral_norm(nn.Linear(4, 4))
            self.pruned = nn.Linear(4, 4)
            prune.l1_unstructured(self.pruned, "weight", 0.5)  # type: ignore[no-untyped-call]
            self.lists = nn.ParameterList([torch.ones(2)])
            self.dicts = nn.ParameterDict({"a": torch.ones(2)})

        def forward(self, x: Tensor) -> Tensor:
            x, _ = self.normed(self.rnn(x)[0])
            x, _ = self.attention(x, x, x)
            x = self.norm(x.flatten(0, 1))
            return torch.as_tensor(self.pruned(self.older(self.spectral(self.weighted(x)))))

    def averaged() -> nn.Module:
        return torch.optim.swa_utils.AveragedModel(
            Plain(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )

    assert not examined(Library, inputs=[torch.ones(2, 3, 4)], train=True, again=True).findings()
    assert not examined(averaged, inputs=[X]).findings()


def test_a_move_that_failed_leaves_what_is_known_without_it() -> None:
    collector, origins = FindingCollector(), Origins()
    checks = StaticChecks(InList(), origins, collector)
    checks.before()
    checks.moved(None)
    assert only(collector, "unregistered-module").path == "heads"


def test_the_survey_leaves_the_model_as_it_was() -> None:
    model = DataAlias()
    before = {name: (tensor.device, tensor.clone()) for name, tensor in model.state_dict().items()}
    attributes = set(vars(model))
    checks = StaticChecks(model, Origins(), FindingCollector())
    checks.before()
    checks.moved("cpu")
    checks.ran(train=False)
    assert set(vars(model)) == attributes
    assert all(torch.equal(tensor, before[name][1]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("device", ["vgpu:0", "cpu"])
def test_models_of_transformers_are_clean(device: str) -> None:
    transformers = pytest.importorskip("transformers")
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 50,
    }
    ids = torch.arange(8).unsqueeze(0)
    for make in (
        lambda: transformers.BertModel(transformers.BertConfig(**small)),
        lambda: transformers.LlamaModel(transformers.LlamaConfig(**small, num_key_value_heads=1)),
        lambda: transformers.GPT2Model(
            transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
        ),
    ):
        collector, origins = FindingCollector(), Origins()
        with origins.recording():
            model = make()
        checks = StaticChecks(model, origins, collector)
        checks.before()
        moved(model, device)
        checks.moved(device)
        model(ids.to(device)).last_hidden_state.sum().backward()
        checks.ran(True, {id(module) for module in model.modules()})
        checks.compare(make())
        assert not collector.findings()
        assert not collector.unchecked()
