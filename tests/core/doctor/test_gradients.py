"""Why a parameter gets no gradient: the line that cut it off, once for each cause, and no finding for intended cuts."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fakes.virtual import virtual
from torch import nn

from devexplorer.core.doctor.cli import summary
from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.tracing.gradients import Gradients
from devexplorer.core.doctor.tracing.lineage import HistoryCut, cut_message
from devexplorer.core.doctor.tracing.op_tracer import OpTracer
from devexplorer.core.records import Diagnosis, DoctorRequest
from devexplorer.core.virtual.device.machine import VirtualMachine

__all__ = ["virtual"]
Examined = Callable[..., Diagnosis]

HEAD = """
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8))
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.between(self.encoder(x)) * self.scale)
"""
ENCODER = ("encoder.0.weight", "encoder.0.bias", "encoder.2.weight", "encoder.2.bias")


@pytest.fixture
def examined(virtual: VirtualMachine, tmp_path: Path) -> Iterator[Examined]:
    """What the doctor says about code that makes a `Net`, trained on four rows of 12."""
    known = set(sys.modules)

    def examined(code: str, inputs: str = "4x12") -> Diagnosis:
        (tmp_path / "net.py").write_text(code)
        return examine(
            DoctorRequest(
                source="net.py:Net",
                folder=str(tmp_path),
                device="vgpu:0",
                virtual="Tesla T4",
                train=True,
                inputs=inputs,
            )
        )

    yield examined
    for name in set(sys.modules) - known:
        if tmp_path in Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]


def marked(code: str) -> list[int]:
    return [number for number, line in enumerate(code.splitlines(), 1) if line.endswith("# here")]


def cut_lines(diagnosis: Diagnosis) -> list[int]:
    return [one.line for one in diagnosis.problems if one.rule == "cut-from-autograd"]


BETWEEN = {
    "detach": "x = x.detach()  # here\nreturn x",
    "data": "return x.data  # here",
    "detach in place": "x = x * 1\nx.detach_()  # here\nreturn x",
    "no_grad": "with torch.no_grad():  # here\n    x = x * 2\nreturn x",
    "inference mode": "with torch.inference_mode():  # here\n    x = x * 2\nreturn x.clone()",
    "switched off": "torch.set_grad_enabled(False)  # here\nx = x * 2\ntorch.set_grad_enabled(True)\nreturn x",
    "no_grad in no_grad": (
        "with torch.no_grad():  # here\n    with torch.no_grad():\n        x = x * 2\n    x = x + 1\nreturn x"
    ),
    "torch.tensor": (
        "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    return torch.tensor(x)  # here"
    ),
    "item": "mean = x.mean().item()  # here\nreturn torch.full((x.shape[0], 8), mean, device=x.device)",
    "tolist": "return torch.tensor(x.tolist(), device=x.device)  # here",
    "numpy": "array = x.detach().cpu().numpy()  # here\nreturn torch.from_numpy(array).to(x.device)",
    "numpy after a detach elsewhere": (
        "x = x.detach()\narray = x.cpu().numpy()  # here\nreturn torch.tensor(array, device=x.device)"
    ),
    "argmax": "return F.one_hot(x.argmax(-1), 8).float()  # here",
    "integers": "return x.long().float()  # here",
    "comparison": "return (x > 0).float()  # here",
    "condition": "if x.sum() > 0:  # here\n    return x.new_ones(x.shape)\nreturn x.new_zeros(x.shape)",
    "slice of zeros": "out = torch.zeros_like(x)\nout[:, 0] = x[:, 0].detach()  # here\nreturn out",
    "copied under no_grad": "out = torch.zeros_like(x)\nwith torch.no_grad():  # here\n    out.copy_(x)\nreturn out",
    "view written under no_grad": (
        "out = torch.zeros_like(x)\nhalf = out[:, :4]\nwith torch.no_grad():  # here\n    half.copy_(x[:, 4:])\n"
        "return out"
    ),
    "a new leaf": "return x.detach().requires_grad_()  # here",
    "frozen in forward": "self.encoder.requires_grad_(False)  # here\nreturn x",
    "within a checkpoint": "return checkpoint(lambda y: y.detach() * 2, x, use_reentrant=False)  # here",
    "within vmap": "return torch.vmap(lambda row: row.detach() * 2)(x)  # here",
    "after vmap": "x = torch.vmap(lambda row: row * 2)(x)\nreturn x.detach()  # here",
    "beside a running mean": "mean = x.detach().mean(0)\nx = x - mean\nreturn (x > 0).float()  # here",
    "over several lines": "y = torch.add(\n    x,\n    1,\n).detach()\nreturn y",
}


@pytest.mark.parametrize("name", BETWEEN)
def test_the_line_between_two_modules_that_cuts_is_found_once(examined: Examined, name: str) -> None:
    body = "".join(f"        {line}\n" for line in BETWEEN[name].splitlines())
    code = f"{HEAD}\n    def between(self, x):\n{body}"
    diagnosis = examined(code)
    lines = marked(code) or [next(number for number, line in enumerate(code.splitlines(), 1) if ".detach()" in line)]
    assert cut_lines(diagnosis) == lines
    (finding,) = [one for one in diagnosis.problems if one.rule == "cut-from-autograd"]
    assert (finding.path, finding.severity, finding.count) == ("encoder", "error", 1)
    assert "4 parameters of encoder (encoder.0.weight and 3 more)" in finding.message
    (missing,) = diagnosis.no_gradient
    assert (missing.reason, missing.parameters, missing.line) == ("cut", ENCODER, lines[0])
    assert summary(diagnosis).endswith("without a gradient: 4 parameters (4 cut off)")


def test_of_values_and_indices_it_is_the_indices_that_have_no_derivative(examined: Examined) -> None:
    body = "_, order = torch.sort(x, dim=1)  # here\n        return F.one_hot(order[:, 0], 8).float()"
    code = f"{HEAD}\n    def between(self, x):\n        {body}\n"
    (finding,) = examined(code).problems
    assert [finding.line] == marked(code)
    assert finding.message.startswith("What torch.sort gives as indices has no derivative: 4 parameters of encoder")


MEANT = {
    "straight through": "return x + (x.round() - x).detach()",
    "a mask of its own values": "return x * (x > 0).float()",
    "statistics": "self.seen = x.detach().mean()\nwith torch.no_grad():\n    x.std()\nreturn x",
    "no_grad and gradients again": "with torch.no_grad():\n    with torch.enable_grad():\n        x = x * 2\nreturn x",
    "a norm from numbers": "return x / max(1.0, float(x.detach().norm()))",
    "switched on again": (
        "before = torch.is_grad_enabled()\ntorch.set_grad_enabled(False)\ntorch.set_grad_enabled(before)\nreturn x * 2"
    ),
    "vmap": "return torch.vmap(lambda row: row * self.scale)(x)",
    "the values of a sort": "values, order = torch.sort(x, dim=1)\nreturn values * (order < 4)",
    "a checkpoint": "return checkpoint(torch.relu, x, use_reentrant=True)",
}


@pytest.mark.parametrize("name", MEANT)
def test_where_a_gradient_arrives_nothing_is_said(examined: Examined, name: str) -> None:
    body = "".join(f"        {line}\n" for line in MEANT[name].splitlines())
    diagnosis = examined(f"{HEAD}\n    def between(self, x):\n{body}")
    assert not cut_lines(diagnosis)
    assert not diagnosis.no_gradient
    assert "without a gradient" not in summary(diagnosis)


def test_each_of_two_lines_is_named_with_what_it_cuts_first(examined: Examined) -> None:
    code = f"""{HEAD}
    def forward(self, x):
        x = self.encoder[0](x).detach()  # here
        x = self.encoder[2](x.relu()).detach()  # here
        return self.head(x) * self.scale[:3]
"""
    diagnosis = examined(code)
    assert cut_lines(diagnosis) == marked(code)
    assert [one.parameters for one in diagnosis.no_gradient] == [ENCODER[:2], ENCODER[2:]]
    assert diagnosis.problems[0].fix.startswith("Use the value itself")


def test_where_nothing_has_a_gradient_the_line_is_named_as_well(examined: Examined) -> None:
    code = (
        f"{HEAD}\n    def forward(self, x):\n        return self.head(self.encoder(x) * self.scale).detach()  # here\n"
    )
    diagnosis = examined(code)
    assert cut_lines(diagnosis) == marked(code)
    assert sum(len(one.parameters) for one in diagnosis.no_gradient) == 7


FUNCTION = """
class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        {forward}

    @staticmethod
    def backward(ctx, gradient):
        return {backward}
"""


@pytest.mark.parametrize(
    ("forward", "backward", "words"),
    [
        ("return x * w", "None, gradient  # here", "Step.backward returns None"),
        (
            "y = (x > 0).float()  # here\n        ctx.mark_non_differentiable(y)\n        return y",
            "gradient, gradient",
            "not differentiable",
        ),
    ],
)
def test_a_function_that_gives_no_gradient_is_named(
    examined: Examined, forward: str, backward: str, words: str
) -> None:
    function = FUNCTION.format(forward=forward, backward=backward)
    code = f"{HEAD}\n    def between(self, x):\n        return Step.apply(x, self.scale)\n{function}"
    diagnosis = examined(code)
    assert cut_lines(diagnosis) == marked(code)
    assert words in diagnosis.problems[0].message
    assert diagnosis.no_gradient[0].parameters == ENCODER


APPLIED = {
    "a Function that runs layers": (
        """
class Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layers):
        ctx.layers = layers
        ctx.save_for_backward(x)
        return layers(x) * 1

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            torch.autograd.backward(ctx.layers(x), gradient)
        return x.grad, None


class Blocks(Net):
    def forward(self, x):
        x = Saving.apply(x, self.encoder)  # here
        return self.head(x * self.scale)
"""
    ),
    "torch's checkpoint": (
        """
class Blocks(Net):
    def forward(self, x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = checkpoint(self.encoder, x, use_reentrant=True)  # here
        return self.head(x * self.scale)
"""
    ),
}


@pytest.mark.parametrize("name", APPLIED)
def test_a_function_that_gets_nothing_with_a_history_is_named_where_it_is_applied(
    examined: Examined, name: str
) -> None:
    code = f"{HEAD}\n{APPLIED[name]}\n\nNet = Blocks\n".replace("super().__init__()", "nn.Module.__init__(self)")
    diagnosis = examined(code)
    assert cut_lines(diagnosis) == marked(code)
    (finding,) = diagnosis.problems
    assert "requires a gradient, so its result has no history: 4 parameters of encoder" in finding.message
    assert diagnosis.no_gradient[0].parameters == ENCODER


def test_what_is_unused_dropped_frozen_or_a_copy_is_named_and_no_problem(examined: Examined) -> None:
    diagnosis = examined(
        f"""{HEAD}
        import copy
        self.target = copy.deepcopy(self.encoder)
        self.fixed = nn.Linear(12, 8).requires_grad_(False)
        self.idle = nn.LayerNorm(8)
        self.extra = nn.Linear(8, 2)
        self.average = nn.Parameter(torch.ones(8))

    def forward(self, x):
        y = self.encoder(x)
        self.extra(y)
        with torch.no_grad():
            wanted = self.target(x) + self.fixed(x)
            self.average.lerp_(y.mean(0), 0.1)
        return self.head((y - wanted) * self.scale) + self.average.detach().mean()
""".replace(
            "\n    def forward(self, x):\n        return self.head(self.between(self.encoder(x)) * self.scale)\n", "", 1
        )
    )
    assert diagnosis.clean
    assert {one.reason: len(one.parameters) for one in diagnosis.no_gradient} == {
        "copy": 4, "frozen": 2, "unused": 2, "output": 2, "updated": 1,
    }  # fmt: skip
    assert [(one.rule, one.severity) for one in diagnosis.notes] == [
        ("cut-from-autograd", "note"), ("no-gradient", "note"), ("no-gradient", "note"),
    ]  # fmt: skip
    assert "6 parameters" not in summary(diagnosis)
    assert "11 parameters (4 in a copy, 1 updated by forward, 2 frozen, 2 unused, 2 not part of the output)" in summary(
        diagnosis
    )


def test_what_forward_leaves_out_is_named_where_it_returns_its_input_as_well(examined: Examined) -> None:
    diagnosis = examined(
        f"""{HEAD}
        self.idle = nn.LayerNorm(8)

    def forward(self, x):
        return self.head(self.encoder(x) * self.scale), x
""".replace(
            "\n    def forward(self, x):\n        return self.head(self.between(self.encoder(x)) * self.scale)\n", "", 1
        )
    )
    assert [(one.reason, one.parameters) for one in diagnosis.no_gradient] == [("unused", ("idle.weight", "idle.bias"))]
    assert diagnosis.notes[0].message.startswith("No operation of this forward uses idle.weight and idle.bias")


def test_one_of_two_equal_layers_of_a_list_is_no_copy(examined: Examined) -> None:
    code = """
import copy
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.Linear(12, 12)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(3))

    def forward(self, x):
        with torch.no_grad():  # here
            x = self.layers[0](x)
        return self.layers[2](self.layers[1](x))
"""
    assert cut_lines(examined(code)) == marked(code)


def test_a_line_of_a_library_is_a_note(examined: Examined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "heads_of_others.py").write_text("def stopped(x):\n    return x.detach()\n")
    monkeypatch.syspath_prepend(package)
    diagnosis = examined(
        f"{HEAD}\n    def between(self, x):\n        import heads_of_others\n        return"
        " heads_of_others.stopped(x)\n"
    )
    assert diagnosis.clean
    (note,) = diagnosis.notes
    assert (note.rule, Path(note.file).name, note.line) == ("cut-from-autograd", "heads_of_others.py", 2)
    assert diagnosis.no_gradient[0].reason == "library"


def test_a_hundred_parameters_behind_one_line_are_one_finding(examined: Examined) -> None:
    diagnosis = examined("""
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(60))
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).detach()
        return self.head(x)
""")
    (finding,) = diagnosis.problems
    assert finding.path == "layers"
    assert "120 parameters of layers" in finding.message
    assert len(diagnosis.no_gradient) == 1


def test_following_histories_keeps_no_activation_and_no_graph(virtual: VirtualMachine) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.seen: list[weakref.ref[torch.Tensor]] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            self.seen.append(weakref.ref(y))
            z: torch.Tensor = (y.detach() * 2).relu()
            del y
            assert self.seen[-1]() is None
            return z

    model = Net()
    gradients = Gradients(model)
    with OpTracer(model, "cpu", FindingCollector(), None, [], gradients):
        model(torch.ones(2, 4))
    gradients.close()


def test_every_kind_of_cut_is_said_in_words_of_its_own_and_no_other_kind_is() -> None:
    kinds = ("switch", "copy", "grad", "freeze", "function", "refusal", "step", "detach")
    said = [cut_message(HistoryCut(0, kind, "{this}", None), "a.weight", "gets") for kind in kinds]
    assert len({message for message, _ in said}) == len({fix for _, fix in said}) == len(kinds)
    assert all(message.endswith(": a.weight gets no gradient.") for message, _ in said)
    assert said[-2][0] == "{this} has no derivative: a.weight gets no gradient."
    with pytest.raises(KeyError):  # rather than words that are right for another kind
        cut_message(HistoryCut(0, "another", "this", None), "a.weight", "gets")
