"""The line that created each object, recorded while a model is built or read from its source afterwards."""

from __future__ import annotations

import ast
import linecache
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from devexplorer.core.doctor.code.origins import HOOKS, MOST_BYTES, Origins
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models.class_source import assigned, assignments, class_source

HERE = str(Path(__file__))


def line_of(mark: str) -> int:
    """The line of this file that ends with `# mark`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


class Everything(nn.Module):
    note: str = "class"  # class attribute

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)  # layer
        self.scale = torch.ones(2) * 3  # scale
        self.register_buffer("table", torch.zeros(2))  # table
        self.register_parameter("gain", nn.Parameter(torch.ones(2)))  # gain
        self.add_module("child", nn.ReLU())  # child
        self.__dict__["hidden"] = torch.zeros(1)  # hidden
        vars(self)["quiet"] = torch.zeros(1)  # quiet
        object.__setattr__(self, "aside", torch.zeros(1))  # aside
        setattr(self, "named", torch.zeros(1))  # noqa: B010 # named
        self.first, self.second = torch.zeros(1), torch.ones(1)  # pair
        self.typed: Tensor = torch.zeros(1)  # typed
        self.late = None
        self.late = torch.zeros(3)  # late
        self.prepare()

    def prepare(self) -> None:
        self.prepared = torch.zeros(1)  # prepared


class Heir(Everything):
    """Sets nothing itself."""


BY_NAME = {
    "layer": "layer",
    "scale": "scale",
    "table": "table",
    "gain": "gain",
    "child": "child",
    "hidden": "hidden",
    "quiet": "quiet",
    "aside": "aside",
    "named": "named",
    "first": "pair",
    "second": "pair",
    "typed": "typed",
    "late": "late",
    "prepared": "prepared",
}


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("kind", [Everything, Heir])
def test_the_line_that_set_an_attribute_is_known(recorded: bool, kind: type[nn.Module]) -> None:
    origins = Origins()
    if recorded:
        with origins.recording():
            model = kind()
    else:
        model = kind()
    found = {name: origins.attribute(model, name) for name in BY_NAME}
    assert {name: place.line for name, place in found.items() if place is not None} == {
        name: line_of(m) for name, m in BY_NAME.items()
    }
    assert all(place is not None and place.file == HERE for place in found.values())


def test_what_is_not_set_has_no_line() -> None:
    assert Origins().attribute(Everything(), "nothing") is None
    assert Origins().attribute(nn.Linear(2, 2), "weight") is None


def test_a_class_attribute_and_an_attribute_of_a_layer_are_read_from_the_source() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.second.weight = self.first.weight  # tied

    note, tied = assigned(Everything, "note"), assigned(Tied, "second.weight")
    assert note is not None
    assert note.line == line_of("class attribute")
    assert tied is not None
    assert tied.line == line_of("tied")


def test_what_is_set_from_outside_is_noted_where_it_was_set() -> None:
    origins = Origins()
    with origins.recording():
        layer = nn.Linear(2, 2)
        layer.scale = torch.ones(2)  # outside
    place = origins.attribute(layer, "scale")
    assert place == SourceLocation(HERE, line_of("outside"), "test_what_is_set_from_outside_is_noted_where_it_was_set")


def test_the_operation_and_line_that_made_a_tensor_are_known() -> None:
    origins = Origins()
    with origins.recording():
        model = Everything()
        moved = nn.Parameter(torch.ones(2)).to(torch.float64)  # moved
    made = origins.tensor(model.scale)
    assert made is not None
    assert (made.op, made.place.line) == ("Tensor.mul", line_of("scale"))
    made = origins.tensor(moved)
    assert made is not None
    assert (made.op, made.place.line) == ("Tensor.to", line_of("moved"))
    assert origins.tensor(torch.ones(2)) is None
    origins.close()
    assert origins.tensor(model.scale) is None


def test_a_change_in_place_makes_no_tensor() -> None:
    origins = Origins()
    with origins.recording():
        tensor = torch.empty(3)  # empty
        nn.init.normal_(tensor)
        tensor.mul_(2).requires_grad_()
    made = origins.tensor(tensor)
    assert made is not None
    assert (made.op, made.place.line) == ("torch.empty", line_of("empty"))


def test_the_line_that_exchanged_the_memory_is_known() -> None:
    origins = Origins()
    with origins.recording():
        first, second = nn.Linear(2, 2), nn.Linear(2, 2)
        second.weight.data = first.weight.data  # exchanged
    place = origins.data_set(second.weight)
    assert place is not None
    assert place.line == line_of("exchanged")
    assert origins.data_set(first.weight) is None


def test_tensors_that_the_model_does_not_keep_are_not_kept() -> None:
    origins = Origins()
    with origins.recording():
        kept = [torch.randn(3) for _ in range(200)]
        for _ in range(200):
            torch.randn(3).add(1)
        large = torch.zeros(MOST_BYTES // 4)
        weak = weakref.ref(torch.zeros(2))
        torch.zeros(MOST_BYTES // 4)
        assert weak() is None
    del large
    assert all(origins.tensor(one) is not None for one in kept)
    assert all(origins.tensor(one) is None for one in [torch.zeros(3) for _ in range(300)])


def test_no_tensor_gets_a_weak_reference_and_swapping_works_while_origins_are_held() -> None:
    origins = Origins()
    with origins.recording():
        model = nn.Linear(2, 2)
    torch.utils.swap_tensors(model.weight, nn.Parameter(torch.zeros(2, 2)))
    assert model.weight.eq(0).all()
    origins.close()


def test_the_line_that_registered_a_hook_is_known() -> None:
    origins = Origins()
    with origins.recording():
        layer = nn.Linear(2, 2)
        handle = layer.register_forward_hook(lambda *given: None)  # hook
    place = origins.hook(handle.id)
    assert place is not None
    assert place.line == line_of("hook")
    assert origins.hook(-1) is None


def test_everything_is_as_before_after_a_recording_that_failed() -> None:
    names = ("__setattr__", "register_buffer", "register_parameter", "register_module", "add_module", *HOOKS)
    before = {name: nn.Module.__dict__[name] for name in names}
    during: dict[str, object] = {}

    def broken() -> None:
        with Origins().recording():
            during.update(nn.Module.__dict__)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        broken()
    assert all(during[name] is not before[name] for name in names)
    assert {name: nn.Module.__dict__[name] for name in names} == before


def test_what_the_code_itself_puts_in_place_of_a_method_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    original = nn.Module.__dict__["register_buffer"]

    def own(module: nn.Module, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        original(module, name, tensor, persistent)

    monkeypatch.setattr(nn.Module, "register_buffer", original)  # put back at the end
    with Origins().recording():
        nn.Module.register_buffer = own
    assert nn.Module.__dict__["register_buffer"] is own


def test_another_module_at_the_same_address_has_no_attributes_noted() -> None:
    class Bare(nn.Module):
        """Without a line that sets anything."""

    origins = Origins()
    with origins.recording():
        gone = [Bare() for _ in range(100)]
        for model in gone:
            model.scale = 1.0
    addresses = {id(model) for model in gone}
    del gone, model
    again = [Bare() for _ in range(200)]
    there = [one for one in again if id(one) in addresses]
    assert there
    assert all(origins.attribute(one, "scale") is None for one in there)
    with origins.recording():
        for one in there:
            one.other = 1.0
    assert all(origins.attribute(one, "scale") is None and origins.attribute(one, "other") is not None for one in there)


def test_a_class_without_a_source_has_no_lines() -> None:
    space: dict[str, object] = {}
    exec(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n       "
        " self.a = 1\n",
        space,
    )
    kind = space["Net"]
    assert isinstance(kind, type)
    assert assigned(kind, "a") is None


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "written_anew.py"
    text = "class Net:\n    def __init__(self):\n        self.a = 1\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, source in enumerate((text, f"# more\n{text}")):
        file.write_text(source, encoding="utf-8")
        space: dict[str, object] = {"__name__": "written_anew"}
        exec(compile(source, str(file), "exec"), space)
        place = assigned(space["Net"], "a")  # type: ignore[arg-type]
        assert place is not None
        assert place.line == 3 + number
    linecache.clearcache()
    assert "written_anew" not in sys.modules


def test_values_are_reported_with_the_names_they_are_given_to() -> None:
    source = class_source(Everything)
    assert source is not None
    values = {name: one.value for name, one in assignments(source)}
    assert ast.unparse(values["second"] or ast.Constant(None)) == "torch.ones(1)"
    assert ast.unparse(values["table"] or ast.Constant(None)) == "torch.zeros(2)"
