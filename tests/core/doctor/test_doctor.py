"""Examinations by the doctor: models that work, that fail, and that do unexpected things."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
import torch
from fakes.doctor import HEADER, MARK, Examined, examined, marked, patched
from fakes.doctor_models import Case, cases
from fakes.virtual import virtual
from msgspec.structs import replace
from torch import nn

from devexplorer.core.base import BadInput, Message, ProgressMonitor
from devexplorer.core.doctor.ask import diagnosed
from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.findings.collector import Effect, Evidence, without_consequences
from devexplorer.core.records import Diagnosis, DoctorRequest, Finding
from devexplorer.core.virtual.device.machine import VirtualMachine

__all__ = ["examined", "virtual"]

LAYER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
"""
CLEAN = f"""{LAYER}
    def forward(self, x):
        return self.layer(x).relu()
"""


def rules(found: Diagnosis) -> list[str]:
    return [one.rule for one in found.problems]


def only_line(found: Diagnosis) -> int:
    """The line of the one problem."""
    (problem,) = found.problems
    return problem.line


def unchecked(found: Diagnosis) -> dict[str, str]:
    return {one.what: one.reason for one in found.unchecked}


@pytest.mark.parametrize("case", cases("examined", "self.layer = nn.Linear(8, 4)"), ids=lambda case: case.name)
def test_what_is_found_noted_and_not_checked(examined: Examined, tmp_path: Path, case: Case) -> None:
    (tmp_path / case.file).write_text(case.text)
    found, given = examine(case.request(tmp_path)), case.directives
    told = [*found.problems, *found.notes]
    assert [one.rule for one in told] == [*given.get("finds", "").split(), *given.get("notes", "").split()], found
    assert len(found.notes) == len(given.get("notes", "").split())
    marks = [number for number, line in enumerate(case.lines, 1) if MARK in line]
    assert sorted(one.line for one in told if one.line) == marks, found
    assert all(given.get("says", "") in one.message and given.get("fix", "") in one.fix for one in found.problems), (
        found
    )
    assert any(given.get("says", "") in one.message for one in told) or not told
    expected = [line.partition(": ")[::2] for line in given.get("unchecked", "").splitlines()]
    assert list(dict.fromkeys(what for what, _ in expected)) == list(unchecked(found)), found
    assert all(words in unchecked(found)[what] for what, words in expected), found


# --- models that work


@pytest.mark.parametrize("train", [False, True])
def test_a_model_that_works_is_clean(examined: Examined, train: bool) -> None:
    found = examined(CLEAN, train=train)
    assert found.clean
    assert found.notes == ()
    assert (found.device, found.device_name, found.simulated, found.train) == ("vgpu:0", "Tesla T4", True, train)
    assert found.inputs == "2x8"
    assert found.operations >= 2
    assert found.target == "net.py:Net"


@pytest.mark.parametrize("levels", [100, 200])
def test_modules_within_modules_are_examined_as_deep_as_torch_runs_them(examined: Examined, levels: int) -> None:
    code = f"""
    def Net():
        model = nn.Linear(8, 4)
        for _ in range({levels}):
            model = nn.Sequential(model)
        return model
    """
    before = sys.getrecursionlimit()
    found = examined(code, train=True)
    assert found.clean, found
    assert found.operations > 0
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    ("made_in", "inputs", "dtype", "arrives"),
    [
        ("bfloat16", "4x8", None, "bfloat16"),
        ("bfloat16", "4x8:float16", None, "float16"),
        ("float32", "4x8:float64", None, "float64"),
        ("float32", "4x8:float32", "float16", "float32"),
        ("float8_e4m3fn", "4x8", None, "float32"),
        ("float8_e5m2", "4x8", "bfloat16", "bfloat16"),
    ],
)
def test_a_dtype_that_is_asked_for_arrives_and_float8_is_not_guessed(
    examined: Examined, made_in: str, inputs: str, dtype: str | None, arrives: str
) -> None:
    code = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8).to(torch.{made_in}), requires_grad=False)
    def forward(self, x):
        assert x.dtype == torch.{arrives}, x.dtype
        return x.float() * self.weight.float()
    """
    found = examined(code, inputs=inputs, dtype=dtype)
    assert found.clean, found
    assert found.inputs == (f"{inputs}:bfloat16" if made_in == "bfloat16" and ":" not in inputs else inputs)


NORM_AND_HALF = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
"""


@pytest.mark.parametrize(
    ("forward", "inputs", "arrives", "problems", "notes"),
    [
        ("return self.layer(x)  # <-", "4x8", "4x8:bfloat16", 0, 1),
        ("return self.layer(x)  # <-", "4x8:float32", "4x8:float32", 1, 0),
        ("return self.layer(x)", "4x8:bfloat16", "4x8:bfloat16", 0, 0),
        ("return self.layer(self.norm(x).bfloat16())", "4x8", "4x8", 0, 0),
        ("return self.layer(self.norm(x.float()))  # <-", "4x8", "4x8:bfloat16", 1, 0),
    ],
)
def test_a_dtype_that_nobody_asked_for_makes_no_verdict(
    examined: Examined, tmp_path: Path, forward: str, inputs: str, arrives: str, problems: int, notes: int
) -> None:
    found = examined(f"{NORM_AND_HALF}        {forward}\n", inputs=inputs)
    assert found.inputs == arrives
    assert (len(found.problems), len(found.notes)) == (problems, notes), found
    lines = [(one.rule, one.line) for one in (*found.problems, *found.notes)]
    assert lines == [("mixed-dtypes", line) for line in marked(tmp_path / "net.py")]


def test_without_a_gpu_two_virtual_ones_are_made(virtual: VirtualMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    virtual.reset()
    found = examine(DoctorRequest(source="mlp"))
    assert found.device == ("cuda:0" if torch.cuda.is_available() else "vgpu:0")
    assert len(virtual.gpus) == (0 if torch.cuda.is_available() else 2)


def test_the_cards_that_are_wanted_are_made(virtual: VirtualMachine) -> None:
    virtual.reset()
    found = examine(DoctorRequest(source="mlp", virtual="Tesla T4, NVIDIA A10", visible="1", device="vgpu:0"))
    assert found.device_name == "NVIDIA A10"


def test_a_model_without_parameters_is_clean(examined: Examined) -> None:
    code = "class Net(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    for train in (False, True):
        found = examined(code, train=train)
        assert found.clean, found
        assert found.operations == 1


# --- models that do not


def evidence(rule: str, path: str, *operands: str, message: str = "", line: int = 0) -> Evidence:
    file = "/net.py" if line else ""
    finding = Finding(rule=rule, path=path, file=file, line=line, message=Message(message), fix=Message())
    return Evidence(finding, operands=frozenset(operands))


@pytest.mark.parametrize(
    ("cause", "consequence", "same"),
    [
        (("unregistered-tensor", "b.scale"), ("b", "b.scale"), True),
        (("unregistered-tensor", "b.scale"), ("", "b.scale"), True),
        (("unregistered-tensor", "b.scale"), ("c", "c.scale"), False),
        (("unregistered-tensor", "b.scale"), ("b", "b.scales"), False),
        (("unregistered-tensor", "cache['k']"), ("", "cache['k']"), True),
        (("unregistered-module", "layers"), ("layers[0]", "layers[0].weight"), True),
        (("unregistered-module", "layers"), ("layers[0]", ""), True),
        (("unregistered-module", "layers"), ("", "layers[0].weight"), True),
        (("unregistered-module", "layers"), ("layersets", "layersets.weight"), False),
        (("hidden-sync", "b.scale"), ("b", "b.scale"), False),
    ],
)
def test_a_consequence_is_part_of_the_finding_about_its_cause(
    cause: tuple[str, str], consequence: tuple[str, str], same: bool
) -> None:
    first, second = evidence(*cause, message="It stays.", line=3), evidence("mixed-devices", *consequence, line=9)
    left = without_consequences([first, second], None)
    assert [item.rule for item in left] == [cause[0]] + ["mixed-devices"] * (not same)
    assert (left[0].complete().message == "It stays. Because of that the run fails at net.py, line 9.") == same


def test_the_words_of_a_message_decide_nothing() -> None:
    first = evidence("unregistered-tensor", "b.scale", message="It stays. Because of that", line=3)
    second = evidence("mixed-devices", "b", "b.other", message="input 0 and self.scale", line=9)
    assert without_consequences([first, second], {}) == [
        first._replace(finding=replace(first.finding, severity="note"), effect=Effect.UNUSED),
        second,
    ]


BY_HAND = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.b(self.a(x))  # <-

def make():
    model = nn.Sequential(Block(), Block())
"""
DISPATCHED = 'return dispatch_model(model, {"0": 0, "1.a": 0, "1.b": 1}, main_device=0)'


@pytest.mark.parametrize(
    ("placing", "fix"),
    [
        ('model[1].b.to("cuda:1")\n    return model.cuda()', None),
        (
            'model[0].cuda()\n    model[1].a.cuda()\n    model[1].b.to("cuda:1")\n    return model',
            "self.b.weight.device",
        ),
        (f"from accelerate import dispatch_model\n    {DISPATCHED}", 'no_split_module_classes=["Block"]'),
    ],
)
def test_a_model_on_several_cards_runs_as_it_lies(examined: Examined, placing: str, fix: str | None) -> None:
    if "accelerate" in placing:
        pytest.importorskip("accelerate")
    found = examined(f"{BY_HAND}    {placing}\n", factory="make", inputs="2x8")
    mixed = [one for one in found.problems if one.rule == "mixed-devices"]
    assert [one.line for one in mixed] == ([] if fix is None else marked(mixed[0].file))
    assert all(fix in one.fix for one in mixed if fix is not None)


SEVERITIES = {
    "moved on one condition": (
        "self.m = torch.ones(4)", "self.m = self.m.to(x.device) if self.m is not None else None\nreturn y * self.m",
        "note"
    ),
    "moved where it is elsewhere": (
        "self.m = torch.ones(4)", "m = self.m if self.m.device == x.device else self.m.to(x)\nself.m = m\nreturn y * m",
        "note"
    ),
    "made at the first call": (
        "self.m = None", "if self.m is None:\n    self.m = torch.ones(4, 4).tril().to(x.device)\nreturn y @ self.m",
        "note"
    ),
    "made for each shape": (
        "self.m = {}",
        "if y.shape not in self.m:\n    mask = torch.ones(4)\n    self.m[y.shape] = mask.to(x.device)\n"
        "return y * self.m[y.shape]",
        "note",
    ),
    "a number read at the first call": (
        "self.m = None", "if self.m is None:\n    self.m = y.detach().abs().amax().item()\nreturn y / self.m", "note"
    ),
    "a distribution that is not used": ("self.m = torch.distributions.Normal(torch.zeros(4), torch.ones(4))",
                                        "return y", "note"),
    "a tensor that is not used": ("self.m = torch.ones(4)", "return y", "note"),
    "a table that Python reads": ("self.m = torch.arange(4)", "return y * float(self.m[2])", "note"),
    "copied at every call": ("self.m = torch.ones(4)", "return y * self.m.to(x.device)", "warning"),
    "in a list, copied at every call": ("self.m = [torch.ones(4)]", "return y * self.m[0].to(x.device)", "warning"),
    "a distribution that is drawn from": (
        "self.m = torch.distributions.Normal(torch.zeros(4), torch.ones(4))", "return y + self.m.sample().to(x.device)",
        "warning"
    ),
    "noise made on the CPU": ("self.m = None", "return y + torch.randn(y.shape).to(x.device)", "warning"),
    "an index": ("self.m = torch.arange(4)", "return y[:, self.m]", "warning"),
    "written at every call": ("self.m = torch.zeros(4)", "self.m[:] = y.detach().mean(0)\nreturn y", "warning"),
    "returned as it is": ("self.m = torch.ones(4)", "return y, self.m", "warning"),
    "returned in a dict": ("self.m = torch.ones(4)", "return {'y': y, 'm': [self.m]}", "warning"),
    "used as it is": ("self.m = torch.ones(4)", "return y * self.m", "error"),
    "a distribution that meets it": (
        "self.m = torch.distributions.Normal(torch.zeros(4), torch.ones(4))", "return y + self.m.sample()", "error"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERITIES)
@pytest.mark.parametrize("train", [False, True])
def test_what_a_run_showed_decides_how_bad_it_is(examined: Examined, name: str, train: bool) -> None:
    made, used, severity = SEVERITIES[name]
    body = "".join(f"        {line}\n" for line in used.splitlines())
    found = examined(
        f"{LAYER}\n        {made}\n\n    def forward(self, x):\n        y = self.layer(x)\n{body}", train=train
    )
    told = [one for one in (*found.problems, *found.notes) if one.rule != "no-gradient"]
    assert {one.severity for one in told} <= {severity, "note"}, told
    assert severity in {one.severity for one in told}, told
    assert not found.unchecked
    assert sum(one.severity == severity for one in told) == 1


INDICES = {
    "drawn in forward": "return y[torch.randperm(y.shape[0])]  # here",
    "in a slice": "return y[:, torch.arange(2)]  # here",
    "a mask": "keep = torch.ones(4, dtype=torch.bool)\nreturn y[:, keep]  # here",
    "written through": "y = y.clone()\ny[torch.arange(2)] = 0\nreturn y",
    "index_put": "y = y.clone()\ny.index_put_((torch.arange(2),), torch.ones_like(y))\nreturn y",
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_on_the_cpu_is_copied_at_every_call(examined: Examined, name: str) -> None:
    body = "".join(f"        {line}\n" for line in INDICES[name].splitlines())
    found = examined(f"{LAYER}\n\n    def forward(self, x):\n        y = self.layer(x)\n{body}")
    (problem,) = found.problems
    assert (problem.rule, problem.severity) == ("device-hop", "warning")
    line = Path(problem.file).read_text().splitlines()[problem.line - 1]
    assert "# here" in line or "torch.arange" in line
    assert "index on the CPU: it is copied from cpu to vgpu:0 at every call" in problem.message
    assert "device=x.device" in problem.fix
    assert (problem.bytes or 0) > 0


@pytest.mark.parametrize(
    "index", ["torch.tensor(3)", "[0, 2]", "2", "torch.arange(2, device=x.device)", "slice(0, 2)", "None"]
)
def test_other_indices_cost_nothing_that_is_reported(examined: Examined, index: str) -> None:
    assert examined(f"{LAYER}\n\n    def forward(self, x):\n        return self.layer(x)[:, {index}]\n").clean


def test_every_cause_is_found_once_errors_first(examined: Examined) -> None:
    code = f"""{LAYER}
        self.scale = torch.ones(4)  {MARK}

    def forward(self, x):
        y = self.layer(x)
        if y.sum().item() > 1e6:  {MARK}
            y = -y
        y = y * self.scale
        return y + torch.ones(4)  {MARK}
    """
    found = examined(code)
    first, second, third = marked(found.problems[0].file)
    assert [(one.rule, one.line) for one in found.problems] == [
        ("unregistered-tensor", first),
        ("default-device", third),
        ("hidden-sync", second),
    ]
    assert found.problems[0].path == "scale"
    assert "Because of that the run fails at net.py, line 15." in found.problems[0].message
    assert found.problems[0].code is not None
    assert MARK in found.problems[0].code.lines[first - found.problems[0].code.first]


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("self.scale = torch.ones(4)", "self.layer(x) * self.scale"),
        ("self.more = [nn.Linear(4, 4)]", "self.more[0](self.layer(x))"),
        ("self.more = {'up': nn.Linear(4, 4)}", "self.more['up'](self.layer(x))"),
        ("self.w = [nn.Parameter(torch.ones(4))]", "self.layer(x) * self.w[0]"),
        ("pass", "self.layer(x) + torch.ones(4)"),
        ("pass", "self.layer(x) + torch.arange(4, dtype=x.dtype)"),
        ("self.w = nn.Parameter(torch.ones(4)).to(torch.float64)", "self.layer(x) * self.w.float()"),
        ("pass", "nn.functional.linear(x, self.layer.weight.data)"),
    ],
)
def test_with_its_patches_a_model_is_clean(examined: Examined, tmp_path: Path, made: str, used: str) -> None:
    code = f"""{LAYER}
        {made}

    def forward(self, x):
        return {used}
    """
    found = examined(code, train=True)
    assert found.problems
    source = (tmp_path / "net.py").read_text()
    for problem in found.problems:
        assert problem.patch is not None, problem
        source = patched(source, problem.patch)
    again = examined(source.removeprefix(HEADER), train=True)
    assert again.clean, again


def test_what_fails_on_the_cpu_as_well_is_no_matter_of_placement(examined: Examined) -> None:
    code = f"{LAYER}\n    def forward(self, x):\n        raise ValueError('wrong')  {MARK}\n"
    with pytest.raises(BadInput, match=r"'net.py:Net' fails on the CPU as well: ValueError: wrong \(net.py, line 10\)"):
        examined(code, inputs="2x8")
    with pytest.raises(BadInput, match=r"fails on the CPU as well: it called sys.exit"):
        examined(f"{LAYER}\n    def forward(self, x):\n        raise SystemExit(3)\n", inputs="2x8")
    with pytest.raises(BadInput, match="fails on the CPU as well: RecursionError"):
        examined(f"{LAYER}\n    def forward(self, x):\n        return self.forward(x)\n", inputs="2x8")


def test_an_argument_too_few_is_named(examined: Examined) -> None:
    code = f"{LAYER}\n    def forward(self, x, mask):\n        return self.layer(x)\n"
    with pytest.raises(BadInput, match=r"its forward takes x, mask, and 1 was given: .*--input 2x16,2x16"):
        examined(code, inputs="2x8")


def test_a_guess_is_not_spoiled_by_a_device_in_the_code(examined: Examined) -> None:
    code = f"""{LAYER}
        self.other = nn.Linear(8, 4).cuda()

    def forward(self, x):
        return self.layer(x) + self.other(x.cuda()) + torch.zeros(4, device="cuda:0")
    """
    found = examined(code)
    assert found.inputs == "2x8"
    assert set(rules(found)) == {"hard-coded-device"}
    assert "the forward" not in unchecked(found)


# --- not checked


def test_a_forward_that_takes_gradients_itself_needs_training(examined: Examined) -> None:
    code = f"""{LAYER}
    def forward(self, x):
        x = x.requires_grad_()
        return torch.autograd.grad(self.layer(x).square().sum(), x, create_graph=True)[0]
    """
    assert examined(code, train=True, inputs="2x8").clean
    with pytest.raises(BadInput, match="with --train it runs with gradients"):
        examined(code, inputs="2x8")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantised_layers_are_not_checked_on_a_virtual_gpu(examined: Examined) -> None:
    code = """
    def make():
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, dtype=torch.qint8)
    """
    assert "quantised layers" in unchecked(examined(code, factory="make", inputs="2x8"))


@pytest.mark.parametrize(
    "words",
    [
        "x must be a CUDA tensor",
        "data is not allocated yet",
        "0 active drivers ([])",
        '"bin_cpu" not implemented for Int',
    ],
)
def test_what_only_a_real_card_can_do_is_not_checked(examined: Examined, words: str) -> None:
    code = f"{LAYER}\n    def forward(self, x):\n        raise RuntimeError('{words}')\n"
    found = examined(code, inputs="2x8")
    assert not found.problems
    assert "a card could do that, a virtual GPU cannot" in unchecked(found)["the rest of the forward"]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_torchscript_model_from_a_file_is_refused(examined: Examined, tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(4, 4)).save(str(tmp_path / "layer.pt"))
    with pytest.raises(BadInput, match="returned a TorchScript model"):
        examined(f"def make():\n    return torch.jit.load({str(tmp_path / 'layer.pt')!r})\n", factory="make")


SCRIPTED = """
@torch.jit.script
def act(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


class Old(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    @torch.jit.script_method
    def forward(self, x):
        return act(self.layer(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(nn.Linear(8, 8))
        self.scripted = torch.jit.script(nn.Linear(8, 8))
        self.traced = torch.jit.trace(nn.Linear(8, 8), torch.ones(1, 8))
        self.old = Old()
        self.later = nn.Linear(8, 8)
        self.later.compile()

    @torch.compile(dynamic=True)
    def forward(self, x):
        return self.later(self.old(self.traced(self.scripted(self.compiled(x)))))
"""


def test_what_compilers_would_compile_is_examined_as_it_is_written(examined: Examined) -> None:
    found = examined(SCRIPTED, train=True, inputs="2x8")
    assert found.clean, found
    assert found.operations == 7, "each layer and both operations of the function are watched"
    lines = (HEADER + SCRIPTED).splitlines()
    told = {(one.what, lines[one.line - 1].strip()) for one in found.uncompiled}
    assert told == {
        ("torch.compile", "self.compiled = torch.compile(nn.Linear(8, 8))"),
        ("torch.compile", "self.later.compile()"),
        ("torch.compile", "@torch.compile(dynamic=True)"),
        ("torch.jit.script", "@torch.jit.script"),
        ("torch.jit.script", "self.scripted = torch.jit.script(nn.Linear(8, 8))"),
        ("torch.jit.trace", "self.traced = torch.jit.trace(nn.Linear(8, 8), torch.ones(1, 8))"),
        ("torch.jit.ScriptModule", "super().__init__()"),
    }


def test_a_defect_in_compiled_code_is_found(examined: Examined) -> None:
    code = f"""{LAYER}
        self.scale = torch.ones(4)

    @torch.compile(dynamic=True)
    def forward(self, x):
        return self.layer(x) * self.scale
    """
    found = examined(code)
    assert rules(found) == ["unregistered-tensor"]
    assert [one.what for one in found.uncompiled] == ["torch.compile"]
    found = examined(f"{CLEAN}\n\ndef make():\n    return torch.compile(Net())\n", factory="make")
    assert found.clean, found
    assert [one.what for one in found.uncompiled] == ["torch.compile"]
    assert found.operations


SPARSE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("heads", torch.eye(4).to_sparse(){0})

    def forward(self, x):
        return {1}
"""


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("persistent", ["", ", persistent=False"])
def test_a_sparse_buffer_that_forward_leaves_alone_is_no_matter(
    examined: Examined, train: bool, persistent: str
) -> None:
    found = examined(SPARSE.format(persistent, "self.layer(x)"), train=train, inputs="4x8")
    assert found.clean, found
    assert found.operations == 1


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")
def test_nested_tensors_are_computed_on_the_cpu_and_said_to_be_unchecked(examined: Examined) -> None:
    work = "self.layer(torch.nested.as_nested_tensor([x[:2], x[2:3]])).to_padded_tensor(0.0)"
    found = examined(SPARSE.format("", work), train=True, inputs="4x8")
    assert not found.problems, found
    assert list(unchecked(found)) == ["nested tensors"]


def test_what_making_it_changes_for_the_process_is_a_note_and_is_taken_back(examined: Examined) -> None:
    code = f"torch.set_default_dtype(torch.float64)\nimport os\nos.environ['LEFT'] = '1'\n{CLEAN}"
    found = examined(code)
    assert found.clean, found
    assert ["default dtype to torch.float64" in one.message for one in found.notes] == [True]
    assert torch.get_default_dtype() == torch.float32
    assert "LEFT" not in os.environ


def test_nothing_of_torch_stays_changed(examined: Examined) -> None:
    torch.manual_seed(3)
    random.seed(3)
    state, numbers = torch.get_rng_state(), random.getstate()
    functions = torch.compile, torch.cuda.is_available, torch.Tensor.to, nn.Module.__setattr__, torch.utils.swap_tensors
    hooks = len(nn.modules.module._global_forward_pre_hooks)
    examined(CLEAN, train=True)
    with pytest.raises(BadInput):
        examined("def make():\n    raise ValueError('no')\n", factory="make")
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == numbers
    assert functions == (
        torch.compile,
        torch.cuda.is_available,
        torch.Tensor.to,
        nn.Module.__setattr__,
        torch.utils.swap_tensors,
    )
    assert len(nn.modules.module._global_forward_pre_hooks) == hooks
    assert not torch.overrides._get_current_function_mode_stack()


# --- invalid requests


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"source": "no-such-model"}, "there is no sample model"),
        ({"source": "gone.py:Net"}, "there is no file"),
        ({"source": str(Path(__file__).parents[2] / "goldens" / "devices.json")}, "is not Python code"),
        ({"source": "mlp", "device": "vgpu:7"}, "there is no device 'vgpu:7' here; there are cpu, vgpu:0, vgpu:1"),
        ({"source": "mlp", "device": "the moon"}, "is no device"),
        ({"source": "mlp", "virtual": "Tesla T5000"}, "there is no profile"),
        ({"source": "mlp", "inputs": "2 by 20"}, "is no input"),
        ({"source": "mlp", "dtype": "float33"}, "float33"),
    ],
)
def test_what_was_asked_wrongly_is_said(virtual: VirtualMachine, wishes: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        examine(DoctorRequest(**wishes))  # type: ignore[arg-type]


def test_making_that_fails_is_said_with_its_line(examined: Examined) -> None:
    with pytest.raises(BadInput, match=r"'net.py:make\(\)' failed: ValueError: no \(net.py, line 4\)"):
        examined("def make():\n    raise ValueError('no')\n", factory="make")


# --- in its own process


def test_the_doctor_works_in_a_subprocess(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(f"{HEADER}print('made')\n{CLEAN}")
    heard: list[str] = []
    progress = ProgressMonitor(report=lambda done, text, part="": heard.append(text))
    found = diagnosed(DoctorRequest(source="net.py:Net", folder=str(tmp_path), device="vgpu:0"), progress)
    assert found.clean, found
    assert "forward on vgpu:0" in heard


def test_what_is_no_source_costs_no_process() -> None:
    with pytest.raises(BadInput, match="names no model"):
        diagnosed(DoctorRequest(source="torchvision:"))


@pytest.mark.usefixtures("warm_processes")
def test_code_that_ends_its_process_is_reported(tmp_path: Path) -> None:
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "net.py").write_text(f"{HEADER}{LAYER}\n    def forward(self, x):\n        {kill}\n")
    with pytest.raises(BadInput, match=r"'net.py:Net' ended its process by signal SIGKILL.* and gave no diagnosis"):
        diagnosed(DoctorRequest(source="net.py:Net", folder=str(tmp_path), inputs="2x8"))


ASKS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.noise = torch.ones(8)
    def forward(self, x):
        y = self.layer(x)
        if {mode}:
            {statement}
        return y
"""


FAILS = ASKS.format(mode="self.training", statement="assert False")


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    ("mode", "statement", "rule"),
    [
        ("self.training", "y = y + torch.zeros(8)", "default-device"),
        ("self.training", "y = y * self.noise", "unregistered-tensor"),
        ("self.training", "y = y * y.detach().mean().item()", "hidden-sync"),
        ("not self.training", "y = y.cuda(1) + y", "hard-coded-device"),
        ("not self.training", "y = torch.from_numpy(y.detach().numpy())", "fails-on-device"),
    ],
)
def test_what_only_one_mode_does_is_found_whichever_is_asked_for(
    examined: Examined, train: bool, mode: str, statement: str, rule: str
) -> None:
    found = examined(ASKS.format(mode=mode, statement=statement), inputs="2x8", train=train)
    assert rule in {item.rule for item in found.problems}, found
    assert set(found.modes) == {"training", "evaluation"}
    assert found.modes[0] == ("training" if train else "evaluation")
    for item in found.problems:
        only = (mode == "self.training") != train
        assert ("mode only" in item.message) == (only and rule != "unregistered-tensor"), item
        assert item.count == 1


@pytest.mark.parametrize(
    ("code", "modes", "unchecked"),
    [
        (LAYER + "    def forward(self, x):\n        return self.layer(x)\n", ["evaluation"], []),
        (FAILS, ["evaluation"], ["the rest of the forward in training mode"]),
        (FAILS + "def make(): return Net().eval()\n", ["evaluation"], []),
    ],
    ids=["it does not ask", "it fails on the CPU as well", "it was not made in that mode"],
)  # fmt: skip
def test_it_says_which_modes_were_checked(
    examined: Examined, code: str, modes: list[str], unchecked: list[str]
) -> None:
    found = examined(code, inputs="2x8", factory="make" if "make" in code else "Net")
    assert list(found.modes) == modes
    assert [item.what for item in found.unchecked] == unchecked


def test_the_mode_that_the_model_is_in_can_be_demanded(examined: Examined) -> None:
    code = LAYER + "    def forward(self, x):\n        return self.layer(x)\n"
    assert examined(code, inputs="2x8", training=True).modes == ("evaluation", "training")
