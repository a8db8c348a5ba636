"""Findings in a forward and a backward: the line, the operand, its origin, the fix."""

from __future__ import annotations

import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.doctor import Examined, Made, examined, made, marked
from fakes.doctor_models import Case, cases
from fakes.virtual import virtual
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.tracing.op_tracer import OpTracer, forward_line
from devexplorer.core.virtual.backend import swapping
from devexplorer.core.virtual.device.cost import transfer_seconds

__all__ = ["examined", "made", "virtual"]

pytestmark = pytest.mark.usefixtures("virtual")


class Forward(nn.Module):
    """A linear layer, and whatever the test does with its output."""

    def __init__(self, work: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.work = [work]

    def forward(self, x: Tensor) -> Any:
        return self.work[0](self.layer(x))


def watched(
    make: Callable[[], nn.Module], device: str = "vgpu:0", dtype: torch.dtype | None = None
) -> FindingCollector:
    """Forward, and backward where there is something to go back to, of a model that was moved as its user would."""
    origins, collector = Origins(), FindingCollector()
    with origins.recording():
        model = make()
    with swapping() if device != "cpu" else nullcontext():
        model.to(device, dtype)
    given = torch.rand(3, 4).to(device, dtype)
    with OpTracer(model, device, collector, origins, [given]):
        out = model(given)
        if isinstance(out, Tensor) and out.requires_grad:
            out.sum().backward()
    origins.close()
    return collector


@pytest.mark.parametrize("case", cases("watched", "self.layer = nn.Linear(4, 4)"), ids=lambda case: case.name)
def test_what_a_line_does_is_one_finding_at_the_line_or_none(case: Case, made: Made, tmp_path: Path) -> None:
    given = case.directives
    dtype = torch.bfloat16 if "dtype" in given else None
    found = watched(made(case.text), device=given.get("on", "vgpu:0"), dtype=dtype).findings()
    assert [f"{one.rule} {one.severity} {one.path}".strip() for one in found] == given.get("finds", "").splitlines(), (
        found
    )
    for one in found:
        assert [one.line] == marked(tmp_path / "one_net.py") or one.severity == "note"
        assert one.file == str(tmp_path / "one_net.py") or one.severity == "note"
        assert all(words in one.message for words in given.get("says", "").splitlines()), one.message
        assert given.get("fix", "") in one.fix
        assert one.count == int(given.get("count", one.count))
        assert str(one.bytes) == given.get("bytes", str(one.bytes))
        if "hop" in given:
            card = parse_virtual("Tesla T4")[0]
            source = None if given["hop"] == "cpu" else card
            assert (one.seconds, one.simulated) == (transfer_seconds(source, card, one.bytes or 0), True)


def test_errors_of_other_kinds_are_raised_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="at least 1D"):
        watched(lambda: Forward(lambda y: y @ torch.tensor(1.0) + y.view(5)))


def test_where_the_operation_would_fail_on_one_device_too_its_own_error_is_raised_and_the_devices_are_told() -> None:
    collector, model = FindingCollector(), Forward(lambda y: y + torch.ones(7)).to("vgpu:0")
    x = torch.rand(3, 4).to("vgpu:0")
    with pytest.raises(RuntimeError, match="same device"), OpTracer(model, "vgpu:0", collector, None, [x]):
        model(x)
    assert [one.rule for one in collector.findings()] == ["default-device"]


class Lazy(nn.Module):
    """Moves a part, and gives another its shape, while it runs: both exchange tensors in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LazyLinear(4, device="cpu")
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with swapping():
            self.second.to("vgpu:1").to(x.device)
        return self.second(self.first(x.cpu()).to(x.device))  # type: ignore[no-any-return]


def test_parts_that_move_in_forward_can_move() -> None:
    model = Lazy()
    model.second.to("vgpu:0")
    x = torch.rand(2, 3).to("vgpu:0")
    with OpTracer(model, "vgpu:0", FindingCollector(), None, [x]):
        assert model(x).device.type == "vgpu"


class Threaded(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        thread = threading.Thread(target=super().forward, args=(x,))
        thread.start()
        thread.join()
        return x


def test_what_cannot_be_watched_is_not_checked() -> None:
    unseen = watched(lambda: Threaded(nn.Linear(4, 4))).unchecked()
    assert [one.what for one in unseen] == ["what other threads run"]
    with warnings.catch_warnings(action="ignore"):  # of how old TorchScript is
        scripted = torch.jit.trace(nn.Linear(4, 4), torch.rand(2, 4))
    (unchecked,) = watched(lambda: nn.Sequential(scripted), device="cpu").unchecked()
    assert "TorchScript" in unchecked.reason


class Odd(Tensor):
    """Raises when it is asked where it is."""

    @property
    def device(self) -> Any:  # type: ignore[override]
        raise ValueError("guess")


def test_a_tensor_that_cannot_be_looked_at_ends_the_rule_and_not_the_model() -> None:
    collector = watched(lambda: Forward(lambda y: y.as_subclass(Odd) * 2), device="cpu")
    assert collector.findings() == ()
    assert "(guess)" in collector.unchecked()[0].reason


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_mode_below_sees_what_the_model_does_and_nothing_of_the_watcher() -> None:
    model, x = Forward(lambda y: y * torch.ones(4)[:4] + 1), torch.rand(3, 4)
    plain, beside, watching = Seen(), Seen(), OpTracer(model, "cpu", FindingCollector(), None, [x])
    with plain:
        model(x)
    with beside, watching:
        model(x)
    assert watching.operations >= 4  # linear, the index, the product, the sum
    assert beside.names == plain.names


def patched_by_watching() -> list[object]:
    hooks = torch.nn.modules.module._global_forward_hooks
    return [len(hooks), torch.utils.swap_tensors, vars(torch.autograd)["_engine_run_backward"]]


def test_nothing_stays_behind_after_a_failure_nor_a_watch_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("on purpose")

    before = patched_by_watching()
    with pytest.raises(KeyError):
        watched(lambda: Forward(fails))
    assert patched_by_watching() == before
    watching = OpTracer(nn.Linear(4, 4), "vgpu:0", FindingCollector(), None, [])
    monkeypatch.setattr(TorchFunctionMode, "__enter__", fails)
    with pytest.raises(KeyError), watching:
        pass
    assert patched_by_watching() == before


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_an_error_in_backward_leads_to_the_line_of_forward(made: Made, tmp_path: Path, device: str) -> None:
    model = made(
        "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(4, 4)\n"
        "    def forward(self, x):\n        z = super().forward(x).exp()  # <-\n        z += 1\n        return z\n"
    )().to(device)
    x = torch.rand(2, 4).to(device)
    place = forward_line(lambda: model(x).sum().backward())
    assert place is not None
    assert (place.file, [place.line]) == (str(tmp_path / "one_net.py"), marked(tmp_path / "one_net.py"))
    assert forward_line(lambda: model(x)) is None


class Asked(nn.Module):
    """Notes what is asked of it that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.layer = nn.Linear(4, 4)

    def __getattr__(self, name: str) -> Any:
        if name != "layer":
            vars(self)["names"].append(name)
        return super().__getattr__(name)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody compares models")

    def __hash__(self) -> int:
        raise AssertionError("nobody hashes models")

    def __bool__(self) -> bool:
        raise AssertionError("nobody asks whether a model is true")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) * torch.ones(4)
        return y


def test_watching_asks_nothing_of_the_model_that_runs_its_code() -> None:
    model = Asked()
    with swapping():
        model.to("vgpu:0")
    x, collector = torch.rand(3, 4).to("vgpu:0"), FindingCollector()
    model.names.clear()
    with OpTracer(model, "vgpu:0", collector, Origins(), [x]):
        model(x)
    assert [one.rule for one in collector.findings()] == ["default-device"]
    assert model.names == []


LIBRARY = """
import torch
from torch import nn


class Part(nn.Module):
    def forward(self, x, other=None):
        if (x > 9).all():  # hidden-sync
            return x
        if other is not None:
            x = x + other.to(x.device)  # moved
        x = x + torch.ones(4).to(x.device)  # device-hop
        return x.half() * torch.ones(2, 4, device=x.device)  # dtype-promotion


def table():
    return torch.arange(4) * 1.0


def add(x, other):
    return x + other.to(x.device)
"""
WRAPPED = """
from library_of_test import Part


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.layer = Part(), nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x)
        return self.part(x{argument})  # <-
"""
MADE_BY_LIBRARY = """
# copied: note unregistered-tensor
self.mask = torch.ones(4)  # <-
---
return x + self.mask.to(x.device)

# fails: error unregistered-tensor
self.mask = torch.ones(4)  # <-
---
return x + self.mask

# index: note unregistered-tensor
self.ids = torch.tensor([0, 1])  # <-
---
return x[self.ids]

# hook: note unregistered-tensor
tensor = torch.ones(4)
self.register_forward_hook(lambda module, given, out: out * tensor.to(out.device))  # <-
---
return x

# alias: error stale-alias
self.register_buffer("inv", torch.ones(4))
self.original = self.inv  # <-
---
return x + self.inv

# tie: error tie-lost
self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
self.b.weight.data = self.a.weight.data  # <-
---
return self.b(self.a(x))

# modules: error unregistered-module
self.layers = [nn.Linear(4, 4)]  # <-
---
return self.layers[0](x)

# drawn: note unsaved-buffer
self.register_buffer("noise", torch.randn(4), persistent=False)  # <-
---
return x + self.noise

# lazy: note lazy-parameter
self.b = nn.LazyLinear(3)  # <-
---
return x

# computed: error parameter-not-leaf
self.w = nn.Parameter(torch.ones(4)) * 2  # <-
---
return x + self.w.to(x.device)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed library with one layer."""
    file = tmp_path / "site-packages" / "library_of_test.py"
    file.parent.mkdir()
    file.write_text(LIBRARY)
    monkeypatch.syspath_prepend(file.parent)
    yield file
    sys.modules.pop("library_of_test", None)


def test_what_an_installed_library_does_is_a_note_at_its_own_line(library: Path, examined: Examined) -> None:
    diagnosis = examined(WRAPPED.format(argument=""))
    assert not diagnosis.problems
    lines = LIBRARY.split("\n")
    for rule in ("hidden-sync", "device-hop", "dtype-promotion"):
        (note,) = [finding for finding in diagnosis.notes if finding.rule == rule]
        assert note.file == str(library)
        assert lines[note.line - 1].endswith(f"# {rule}")
        assert str(note.fix).startswith("Nothing to change in your code, which gets there at net.py:14: ")
        assert note.patch is None


@pytest.mark.parametrize(
    "case", MADE_BY_LIBRARY.strip().split("\n\n"), ids=lambda case: case.partition(":")[0].removeprefix("# ")
)
@pytest.mark.parametrize("inherited", [False, True], ids=["wrapped", "inherited"])
def test_what_a_constructor_of_a_library_sets_is_said_at_its_own_line(
    case: str, inherited: bool, library: Path, examined: Examined
) -> None:
    title, _, code = case.partition("\n")
    severity, rule = title.partition(": ")[2].split()
    made, _, run = textwrap.indent(code, " " * 8).partition(" " * 8 + "---\n")
    library.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Part(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{made}\n    def forward(self, x):\n{run}\n"
    )
    net = WRAPPED.format(argument="")
    if inherited:
        net = "from library_of_test import Part\n\n\nclass Net(Part):\n    pass\n"
    diagnosis = examined(net, inputs="2x4")
    (finding,) = (*diagnosis.problems, *diagnosis.notes)
    assert (finding.severity, finding.rule) == (severity, rule)
    assert (finding.file, finding.line, finding.patch) == (str(library), *marked(library), None)


def test_what_the_user_makes_with_a_library_and_gives_it_back_stays_the_users(
    library: Path, examined: Examined
) -> None:
    code = """
    import library_of_test


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = library_of_test.table()  # <-

        def forward(self, x):
            return library_of_test.add(x, self.table)
    """
    (finding,) = examined(code, inputs="2x4").problems
    assert (finding.severity, finding.line) == ("warning", 10)
    assert finding.patch is not None


def test_a_parameter_that_a_library_does_not_train_is_said_where_the_user_makes_it(
    library: Path, examined: Examined
) -> None:
    library.write_text(
        "from torch import nn\n\n\nclass Part(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.pooler = nn.Linear(4, 4)\n\n    def forward(self, x):\n        return x\n"
    )
    (note,) = examined(WRAPPED.format(argument=""), inputs="2x4", train=True).notes
    assert (note.rule, Path(note.file).name, note.line) == ("no-gradient", "net.py", 10)


def test_what_the_user_gives_a_library_is_a_warning_at_the_user_s_line(library: Path, examined: Examined) -> None:
    diagnosis = examined(WRAPPED.format(argument=", torch.ones(4)"))
    (finding,) = diagnosis.problems
    assert (finding.rule, finding.severity, finding.line) == ("device-hop", "warning", 14)


@pytest.mark.parametrize(
    ("holds", "tensors", "advice"),
    [
        ("self.s = nn.Parameter(torch.ones(4))", "parameters", "Make the module in __init__"),
        ("self.register_buffer('s', torch.ones(4))", "tensors", "Make the module in __init__"),
        ("self.s = torch.ones(4)", "tensors", "Register its tensors as buffers"),
    ],
)
def test_what_a_module_made_in_forward_holds_is_said_as_it_is(
    holds: str, tensors: str, advice: str, examined: Examined
) -> None:
    code = f"""
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            {holds}

        def forward(self, x):
            return x * self.s


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return Scale()(self.layer(x))
    """
    (finding,) = examined(code, inputs="2x4").problems
    assert finding.message.startswith(f"Scale is made in forward, with {tensors} on cpu")
    assert finding.fix.startswith(advice)
