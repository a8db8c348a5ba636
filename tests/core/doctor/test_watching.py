"""Findings in a forward and a backward: the line, the operand, its origin, the fix."""

from __future__ import annotations

import inspect
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.doctor import Examined, examined, marked
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.tracing import OpTracer
from devexplorer.core.doctor.tracing.again import forward_line
from devexplorer.core.records import Finding
from devexplorer.core.virtual.backend import install, swapping
from devexplorer.core.virtual.device.cost import transfer_seconds

__all__ = ["examined"]

BIAS = torch.ones(4)


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    machine = install()
    machine.reset()
    machine.add(parse_virtual("2x Tesla T4"))
    yield
    machine.reset()


class Forward(nn.Module):
    """A linear layer, and whatever the test does with its output."""

    def __init__(
        self, work: Callable[[Any, Tensor], Any], set_up: Callable[[Any], object] = lambda module: None
    ) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.work = [work]
        set_up(self)

    def forward(self, x: Tensor) -> Any:
        return self.work[0](self, self.layer(x))


def watched(
    make: Callable[[], nn.Module], *inputs: Tensor, device: str = "vgpu:0", dtype: torch.dtype | None = None
) -> FindingCollector:
    """Forward, and backward where there is something to go back to, of a model that was moved as its user would."""
    origins, collector = Origins(), FindingCollector()
    with origins.recording():
        model = make()
    with swapping() if device != "cpu" else nullcontext():
        model.to(device, dtype)
    given = [one.to(device) for one in inputs or (torch.rand(3, 4).to(dtype),)]
    with OpTracer(model, device, collector, origins, given):
        out = model(*given)
        if isinstance(out, Tensor) and out.requires_grad:
            out.sum().backward()
    origins.close()
    return collector


def found(
    work: Callable[[Any, Tensor], Any], set_up: Callable[[Any], object] = lambda module: None, **options: Any
) -> tuple[Finding, ...]:
    return watched(lambda: Forward(work, set_up), **options).findings()


def line_of(function: Callable[..., object], marker: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if marker in line)


def rules(findings: Sequence[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


# --- operands on several devices


def with_mask(module: Any) -> None:
    module.mask = torch.ones(4)  # made here


def multiply(module: Any, y: Tensor) -> Tensor:
    z: Tensor = y * module.mask[:4]  # meets here
    return z + 1


def test_an_attribute_that_did_not_move_is_named_with_the_line_that_made_it() -> None:
    (finding,) = found(multiply, with_mask)
    assert (finding.rule, finding.file, finding.line) == ("mixed-devices", __file__, line_of(multiply, "meets here"))
    made = line_of(with_mask, "made here")
    assert f"self.mask (made by torch.ones at test_watching.py:{made}, never moved) is on cpu" in finding.message
    assert "output of layer is on vgpu:0" in finding.message
    assert 'self.register_buffer("mask", ...)' in finding.fix


def noise(module: Any, y: Tensor) -> Tensor:
    drawn = torch.randn(4)  # made here
    drawn = drawn * 2
    for _ in range(3):
        y = y + drawn
    return y


def test_a_factory_without_a_device_is_to_blame_where_it_is_called_and_once() -> None:
    (finding,) = found(noise)
    assert (finding.rule, finding.line, finding.count) == ("default-device", line_of(noise, "made here"), 3)
    assert "torch.randn(..., device=y.device)" in finding.fix


def stacked(module: Any, y: Tensor) -> Tensor:
    return torch.cat([y, torch.zeros(3, 4)])


def legacy(module: Any, y: Tensor) -> Tensor:
    table = torch.FloatTensor([1, 2, 3, 4])
    return y + table


def from_numpy(module: Any, y: Tensor) -> Tensor:
    return y + torch.from_numpy(np.ones(4, dtype=np.float32))


def normed(module: Any, y: Tensor) -> Tensor:
    layer = nn.LayerNorm(4)
    return layer(y)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("work", "marker"),
    [(stacked, "torch.zeros"), (legacy, "FloatTensor"), (from_numpy, "from_numpy(np"), (normed, "nn.LayerNorm")],
)
def test_what_forward_makes_on_the_cpu_in_other_ways(work: Callable[[Any, Tensor], Tensor], marker: str) -> None:
    (finding,) = found(work)
    assert (finding.rule, finding.line) == ("default-device", line_of(work, marker))


def packed(module: Any, y: Tensor) -> Tensor:
    lengths = torch.full((len(y),), 2)
    rows = rnn.pack_padded_sequence(y[:, :2, None], lengths, batch_first=True)
    _, sizes = rnn.pad_packed_sequence(rows, batch_first=True)
    return y * (sizes > torch.arange(len(y), device=y.device))[:, None]


def test_lengths_of_a_packed_sequence_belong_to_the_cpu() -> None:
    (finding,) = found(packed)
    assert (finding.rule, finding.line) == ("mixed-devices", line_of(packed, "sizes >"))


def host_only(module: Any, y: Tensor) -> Tensor:
    sizes = torch.tensor([2, 1])
    return y[torch.tensor(1)].sum() * torch.tensor(2.0) + int(sizes.sum())


def test_tensors_for_the_host_and_numbers_may_be_on_the_cpu() -> None:
    assert found(host_only) == ()


def global_bias(module: Any, y: Tensor) -> Tensor:
    return y + BIAS


def test_a_global_is_named() -> None:
    (finding,) = found(global_bias)
    assert finding.rule == "mixed-devices"
    assert "BIAS is on cpu" in finding.message


def beside_a_number(module: Any, y: Tensor) -> Tensor:
    return torch.where(y > 0, module.mask, torch.tensor(2.0))


def test_a_number_on_the_cpu_is_not_to_blame_beside_what_is() -> None:
    (finding,) = found(beside_a_number, with_mask)
    assert finding.rule == "mixed-devices"
    assert "self.mask" in finding.message


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)  # type: ignore[no-any-return]


def test_modules_in_a_plain_list_have_a_path_and_the_rest_is_examined_too() -> None:
    collector = watched(Hidden)
    (finding,) = collector.findings()
    assert (finding.rule, finding.path, finding.count) == ("mixed-devices", "layers[0]", 2)
    assert "layers[0].weight" in finding.message
    assert "nn.ModuleList" in finding.fix


def asks_numpy(module: Any, y: Tensor) -> Tensor:
    values = y.detach().numpy()
    return y * float(values.sum())


def test_an_array_of_a_device_tensor_is_reported_and_made_all_the_same() -> None:
    (finding,) = found(asks_numpy)
    assert (finding.rule, finding.line) == ("fails-on-device", line_of(asks_numpy, "numpy()"))


def wrong_shape(module: Any, y: Tensor) -> Tensor:
    return y @ torch.tensor(1.0) + y.view(5)


def test_errors_of_other_kinds_are_raised_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="at least 1D"):
        found(wrong_shape)


def of_other_shape(module: Any, y: Tensor) -> Tensor:
    return y + torch.ones(7)


def test_where_the_operation_would_fail_on_one_device_too_its_own_error_is_raised_and_the_devices_are_told() -> None:
    collector = FindingCollector()
    model = Forward(of_other_shape)
    model.to("vgpu:0")
    x = torch.rand(3, 4).to("vgpu:0")
    with pytest.raises(RuntimeError, match="same device"), OpTracer(model, "vgpu:0", collector, None, [x]):
        model(x)
    assert rules(collector.findings()) == ["default-device"]


# --- waiting for the device


def condition(module: Any, y: Tensor) -> Tensor:
    return y if y.sum() > 0 else -y


def asks_item(module: Any, y: Tensor) -> Tensor:
    for _ in range(2):
        y = y / y.max().item()
    return y


def to_host(module: Any, y: Tensor) -> Any:
    return y.detach().cpu().numpy().sum()


def by_mask(module: Any, y: Tensor) -> Tensor:
    return y[y > 0]


def shown(module: Any, y: Tensor) -> Tensor:
    assert f"{y.sum():.1f}"
    return y


def listed(module: Any, y: Tensor) -> Any:
    return y.tolist()


def put_together(module: Any, y: Tensor) -> Tensor:
    return torch.tensor(
        [y.sum().detach(), y.max().detach()], device=y.device
    )  # with their history torch would warn, once in a process


def repeated(module: Any, y: Tensor) -> Tensor:
    return y.repeat_interleave(torch.tensor([1, 2, 1], device=y.device), dim=0)


@pytest.mark.parametrize(
    ("work", "marker", "count"),
    [
        (condition, "y.sum() > 0", 1), (asks_item, ".item()", 2), (to_host, ".cpu()", 1), (by_mask, "y > 0", 1), (shown,
                                                                                                                  ".1f",
                                                                                                                  1),
        (listed, "tolist", 1), (repeated, "repeat_interleave", 1), (put_together, "torch.tensor", 1),
    ],
)  # fmt: skip
def test_what_waits_for_the_device_is_one_finding_with_its_count(
    work: Callable[[Any, Tensor], Any], marker: str, count: int
) -> None:
    (finding,) = found(work)
    assert (finding.rule, finding.line, finding.count) == ("hidden-sync", line_of(work, marker), count)


def waits_for_nobody(module: Any, y: Tensor) -> Tensor:
    y = torch.where(y > 0, y, torch.zeros_like(y))
    y = y.repeat_interleave(2, dim=0)
    y[y < 0] = 0.0
    assert y.shape[0] > 0
    assert torch.tensor([1.0]).item()
    return y * (y > 0)


def test_questions_that_python_can_answer_do_not_wait() -> None:
    assert found(waits_for_nobody) == ()


def test_on_the_cpu_there_is_nothing_to_wait_for() -> None:
    assert found(condition, device="cpu") == ()


class MaskedEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.encoder(x, mask=mask)  # type: ignore[no-any-return]


def test_what_pytorchs_own_layers_do_is_a_note() -> None:
    (finding,) = watched(MaskedEncoder, torch.rand(2, 3, 4)).findings()
    assert (finding.rule, finding.severity) == ("hidden-sync", "note")


# --- copies between devices


def brings_mask(module: Any, y: Tensor) -> Tensor:
    return y * module.mask.to(y.device)


def test_an_attribute_that_is_copied_over_each_time_with_bytes_and_simulated_seconds() -> None:
    (finding,) = found(brings_mask, with_mask)
    assert (finding.rule, finding.severity, finding.bytes, finding.simulated) == ("device-hop", "warning", 16, True)
    assert finding.seconds == transfer_seconds(None, parse_virtual("Tesla T4")[0], 16)
    assert "register_buffer" in finding.fix


def brings_positions(module: Any, y: Tensor) -> Tensor:
    positions = torch.arange(4)
    return y + positions.to(y.device)


def test_what_could_have_been_made_there() -> None:
    (finding,) = found(brings_positions)
    assert (finding.rule, finding.line) == ("device-hop", line_of(brings_positions, ".to("))
    assert "torch.arange(..., device=y.device)" in finding.fix
    assert f":{line_of(brings_positions, 'torch.arange')}" in finding.message


def goes_on_there(module: Any, y: Tensor) -> Tensor:
    return y.to("vgpu:1").relu()


def test_from_card_to_card_is_a_note() -> None:
    (finding,) = found(goes_on_there)
    assert (finding.rule, finding.severity) == ("device-hop", "note")
    t4 = parse_virtual("Tesla T4")[0]
    assert finding.seconds == transfer_seconds(t4, t4, 48)


def test_what_is_there_already_is_not_copied() -> None:
    assert found(lambda module, y: y.to("vgpu:0").to(y.device)) == ()


# --- results that are wider than they need to be


def adds_ones(module: Any, y: Tensor) -> Tensor:
    return y + torch.ones(4, device=y.device)


def in_float64(module: Any, y: Tensor) -> Tensor:
    return y * torch.as_tensor(np.ones(4), device=y.device)


@pytest.mark.parametrize(("work", "dtype", "extra"), [(adds_ones, torch.bfloat16, 24), (in_float64, None, 48)])
def test_an_operand_that_doubles_the_memory_is_named(
    work: Callable[[Any, Tensor], Tensor], dtype: torch.dtype | None, extra: int
) -> None:
    (finding,) = found(work, dtype=dtype)
    assert (finding.rule, finding.line, finding.bytes) == ("dtype-promotion", line_of(work, "y.device"), extra)
    assert "made in this forward" in finding.message


def on_purpose(module: Any, y: Tensor) -> Tensor:
    variance = y.float().pow(2).mean(-1, keepdim=True)
    y = (y * torch.rsqrt(variance + 1e-6)).to(y.dtype)
    y = y + torch.softmax(y, -1, dtype=torch.float32).to(y.dtype)
    wide = y.to(torch.float32)
    return (wide + y) * 2.0 * torch.tensor(3.0)


def test_casts_that_the_user_wrote_are_no_findings() -> None:
    assert found(on_purpose, dtype=torch.bfloat16) == ()


# --- what models do besides


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.full((4,), 2.0)  # in backward


class Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * gradient.max().item()


def test_the_backward_of_a_custom_function_is_watched() -> None:
    (finding,) = found(lambda module, y: Doubled.apply(y))
    assert (finding.rule, finding.line) == ("default-device", line_of(Doubled, "in backward"))


def test_a_value_that_backward_reads() -> None:
    (finding,) = found(lambda module, y: Read.apply(y) + 1)
    assert (finding.rule, finding.line) == ("hidden-sync", line_of(Read, ".item()"))


def test_checkpointed_layers_are_reported_once() -> None:
    (finding,) = found(lambda module, y: checkpoint(lambda z: noise(module, z), y, use_reentrant=False))
    assert (finding.rule, finding.line) == ("default-device", line_of(noise, "made here"))


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
    model, collector = Lazy(), FindingCollector()
    model.second.to("vgpu:0")
    x = torch.rand(2, 3).to("vgpu:0")
    with OpTracer(model, "vgpu:0", collector, None, [x]):
        assert model(x).device.type == "vgpu"


class Threaded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: list[Tensor] = []
        thread = threading.Thread(target=lambda: out.append(self.layer(x)))
        thread.start()
        thread.join()
        return out[0]


def test_what_cannot_be_watched_is_not_checked() -> None:
    assert [one.what for one in watched(Threaded).unchecked()] == ["what other threads run"]
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
    collector = watched(lambda: Forward(lambda module, y: y.as_subclass(Odd) * 2), device="cpu")
    assert collector.findings() == ()
    assert collector.unchecked()
    assert "(guess)" in collector.unchecked()[0].reason


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_mode_below_sees_what_the_model_does_and_nothing_of_the_watcher() -> None:
    model = Forward(multiply, with_mask)
    x = torch.rand(3, 4)
    plain, beside, watching = Seen(), Seen(), OpTracer(model, "cpu", FindingCollector(), None, [x])
    with plain:
        model(x)
    with beside, watching:
        model(x)
    assert watching.operations == 4  # linear, the index, the product, the sum
    assert beside.names == plain.names


def test_nothing_stays_behind() -> None:
    hooks = torch.nn.modules.module._global_forward_hooks
    before = (len(hooks), torch.utils.swap_tensors, vars(torch.autograd)["_engine_run_backward"])

    def fails(module: Any, y: Tensor) -> Tensor:
        raise KeyError("on purpose")

    with pytest.raises(KeyError):
        found(fails)
    assert (len(hooks), torch.utils.swap_tensors, vars(torch.autograd)["_engine_run_backward"]) == before


def overwritten(module: Any, y: Tensor) -> Tensor:
    z = y.exp()  # its backward wants z
    z += 1
    return z


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_an_error_in_backward_leads_to_the_line_of_forward(device: str) -> None:
    model = Forward(overwritten).to(device)
    x = torch.rand(2, 4).to(device)
    place = forward_line(lambda: model(x).sum().backward())
    assert place is not None
    assert (place.file, place.line) == (__file__, line_of(overwritten, "its backward"))
    assert forward_line(lambda: model(x)) is None


# --- the model's own code


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
    assert rules(collector.findings()) == ["default-device"]
    assert model.names == []


def test_a_watch_that_cannot_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(mode: TorchFunctionMode) -> None:
        raise RuntimeError("on purpose")

    hooks = torch.nn.modules.module._global_forward_hooks
    before = (len(hooks), torch.utils.swap_tensors, vars(torch.autograd)["_engine_run_backward"])
    watching = OpTracer(nn.Linear(4, 4), "vgpu:0", FindingCollector(), None, [])
    monkeypatch.setattr(TorchFunctionMode, "__enter__", refuses)
    with pytest.raises(RuntimeError, match="on purpose"), watching:
        pass
    assert (len(hooks), torch.utils.swap_tensors, vars(torch.autograd)["_engine_run_backward"]) == before


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
