"""A fix is offered as a patch when the model, examined again with it, is right; anything else is advice in words."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.doctor import HEADER, Examined, examined, patched
from fakes.virtual import virtual
from msgspec.structs import replace

from devexplorer.core.doctor.ask import diagnosed
from devexplorer.core.doctor.examine import examine
from devexplorer.core.doctor.trials import FileChange, alike, exchanged, values_of
from devexplorer.core.records import Diagnosis, DoctorRequest, Finding

__all__ = ["examined", "virtual"]


def net(body: str, forward: str, more: str = "") -> str:
    return (
        "\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.f = nn.Linear(4, 4)\n{textwrap.indent(body, ' ' * 8)}\n"
        f"    def forward(self, inputs):\n{textwrap.indent(forward, ' ' * 8)}\n{textwrap.indent(more, ' ' * 4)}\n"
    )


def patches(found: Diagnosis) -> list[str]:
    """The lines that come in, of every patch."""
    every = [item.patch or "" for item in (*found.problems, *found.notes)]
    return [
        line[1:].strip()
        for patch in every
        for line in patch.splitlines()
        if line.startswith("+") and not line.startswith("+++")
    ]


RIGHT = {
    "a property has no tensor at hand, and its object has": (
        net("", "return self.f(inputs) + self.offsets", "@property\ndef offsets(self):\n    return torch.zeros(4)"),
        ["return torch.zeros(4, device=self.f.weight.device, dtype=self.f.weight.dtype)"],
    ),
    "behind a decorator, over several lines": (
        net(
            "",
            "return self.f(inputs) + self.mask()",
            "@torch.no_grad()\ndef mask(self):\n    return torch.ones(\n        4,\n    )",
        ),
        ["4, device=self.f.weight.device, dtype=self.f.weight.dtype,"],
    ),
    "a lambda has its own arguments": (
        net("self.act = lambda t: t + torch.zeros(4)", "return self.act(self.f(inputs))"),
        ["self.act = lambda t: t + torch.zeros(4, device=t.device, dtype=t.dtype)"],
    ),
    "what wants a gradient is a Parameter": (
        net("self.log_alpha = torch.zeros(4, requires_grad=True)", "return self.f(inputs) * self.log_alpha.exp()"),
        ["self.log_alpha = nn.Parameter(torch.zeros(4))"],
    ),
    "the copy to a device that is remembered goes": (
        net(
            "self.device = torch.device('cpu')\nself.scale = torch.ones(4).to(self.device)",
            "at = torch.arange(4).unsqueeze(0).to(self.device)\nreturn self.f(inputs) * self.scale + at",
        ),
        ['self.register_buffer("scale", torch.ones(4))', "at = torch.arange(4, device=inputs.device).unsqueeze(0)"],
    ),
    "set by its name, in a method that makes": (
        net(
            "self.reset()", "return self.f(inputs) * self.scale0",
            "def reset(self):\n    for i in range(1):\n        setattr(self, f'scale{i}', torch.ones(4))"
        ),
        ["self.register_buffer(f'scale{i}', torch.ones(4))"],
    ),
    "filled by a call before the move": (
        net(
            "self.cache = None\nself(torch.ones(2, 4))",
            "if self.cache is None:\n    self.cache = torch.ones_like(inputs)\nreturn self.f(inputs) + self.cache",
        ),
        ['self.register_buffer("cache", None, persistent=False)'],
    ),
    "several statements in a line": (
        net("self.a = torch.ones(4); self.b = torch.ones(4)", "return self.f(inputs) * self.a + self.b"),
        ['self.register_buffer("a", torch.ones(4)); self.register_buffer("b", torch.ones(4))'],
    ),
    "dropout that follows eval() changes what the CPU computes": (
        net("self.parts = [nn.BatchNorm1d(4)]", "return self.parts[0](self.f(inputs))"),
        ["self.parts = nn.ModuleList([nn.BatchNorm1d(4)])"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_a_patch_that_mends_is_offered(examined: Examined, tmp_path: Path, case: str) -> None:
    code, lines = RIGHT[case]
    found = examined(code, inputs="2x4", train="gradient" in case)
    assert sorted(patches(found)) == sorted(lines), found
    file = tmp_path / "net.py"
    for item in found.problems:
        new = patched((HEADER + code), item.patch or "")
        file.write_text(new)
        again = examine(DoctorRequest(source="net.py:Net", folder=str(tmp_path), inputs="2x4", fixes=False))
        assert (item.rule, item.line) not in {(one.rule, one.line) for one in again.problems}


DTYPES = {
    "torch.randn(4)": "torch.randn(4, device=inputs.device, dtype=inputs.dtype)",
    "torch.rand(2, 4)": "torch.rand(2, 4, device=inputs.device, dtype=inputs.dtype)",
    "torch.normal(0.0, 1.0, (4,))": "torch.normal(0.0, 1.0, (4,), device=inputs.device, dtype=inputs.dtype)",
    "torch.full((4,), 0.5)": "torch.full((4,), 0.5, device=inputs.device, dtype=inputs.dtype)",
    "torch.tensor([0.5, 1, 2, 4])": "torch.tensor([0.5, 1, 2, 4], device=inputs.device, dtype=inputs.dtype)",
    "torch.full((4,), 2)": "torch.full((4,), 2, device=inputs.device)",
    "torch.tensor([1, 2, 3, 4])": "torch.tensor([1, 2, 3, 4], device=inputs.device)",
    "torch.arange(4)": "torch.arange(4, device=inputs.device)",
    "torch.linspace(0, 1, 4)": "torch.linspace(0, 1, 4, device=inputs.device)",
    "torch.randint(9, (4,))": "torch.randint(9, (4,), device=inputs.device)",
    "torch.zeros(4, dtype=torch.float32)": "torch.zeros(4, dtype=torch.float32, device=inputs.device)",
    "torch.ones(4, dtype=torch.bool)": "torch.ones(4, dtype=torch.bool, device=inputs.device)",
}
"""What is made, and as the patch makes it."""


@pytest.mark.parametrize("made", DTYPES)
def test_what_is_mixed_with_the_input_gets_its_dtype_too(examined: Examined, tmp_path: Path, made: str) -> None:
    code = net("", f"made = {made}\nreturn self.f(inputs + made)")
    found = examined(code, inputs="2x4")
    assert patches(found) == [f"made = {DTYPES[made]}"]
    if "dtype=inputs.dtype" in DTYPES[made]:  # a model that is cast runs, which it did not with the device alone
        (tmp_path / "net.py").write_text(HEADER + code.replace(made, DTYPES[made]))
        scope: dict[str, Any] = {}
        exec((tmp_path / "net.py").read_text(), scope)
        assert scope["Net"]().bfloat16()(torch.ones(2, 4).bfloat16()).dtype is torch.bfloat16


def test_a_name_that_holds_numbers_at_that_line_gives_no_dtype(examined: Examined) -> None:
    early = net(
        "self.e = nn.Embedding(9, 4)",
        "made = torch.zeros(4)\ninputs = self.e(inputs)\nreturn self.f(inputs + made)",
    )
    assert patches(examined(early, inputs="2x3:int64")) == ["made = torch.zeros(4, device=inputs.device)"]
    late = net(
        "self.e = nn.Embedding(9, 4)", "made = self.make()\nreturn self.f(self.e(inputs) + made)",
        "def make(self):\n    return torch.zeros(4)",
    )  # fmt: skip
    new = "return torch.zeros(4, device=self.f.weight.device, dtype=self.f.weight.dtype)"
    assert patches(examined(late, inputs="2x3:int64")) == [new]
    both = net("", "return self.f(self.more(inputs) + self.more(torch.arange(4, device=inputs.device)))",
               "def more(self, x):\n    return x + torch.ones(x.shape[-1])")  # fmt: skip
    assert patches(examined(both, inputs="2x4")) == ["return x + torch.ones(x.shape[-1], device=x.device)"]


def test_a_dtype_that_would_change_the_result_is_not_given(examined: Examined) -> None:
    wide = net("", "made = torch.ones(4)\nreturn self.f(inputs.float() + made)")
    assert patches(examined(wide, inputs="2x4:float64")) == ["made = torch.ones(4, device=inputs.device)"]


WRONG = {
    "the attribute is there already": net(
        "self.scale = torch.ones(4)", "return self.f(inputs) * self.scale", "scale = None"
    ),
    "it is looked for where plain attributes are": net(
        "self.scale = torch.ones(4)", "return self.f(inputs) * vars(self)['scale']"
    ),
    "the CPU would compute something else": net(
        "self.scale = torch.ones(4)",
        "out = self.f(inputs) * self.scale\nreturn out * 2 if 'scale' in self._buffers else out",
    ),
    "the device would compute something else": net(
        "self.scale = torch.ones(4)",
        "out = self.f(inputs) * self.scale\n"
        "return out * 2 if 'scale' in self._buffers and inputs.device.type != 'cpu' else out",
    ),
    "a name with a dot cannot be registered": net(
        "setattr(self, 'a.b', torch.ones(4))", "return self.f(inputs) * getattr(self, 'a.b')"
    ),
    "nothing can be registered before": net(
        "", "return self.f(inputs) * self.scale"
    ).replace("super().__init__()", "self.scale = torch.ones(4)\n        super().__init__()"),
    "there is no tensor": net("", "return self.f(inputs) + row(4)") + "\ndef row(n):\n    return torch.zeros(n)\n",
    "it ends the process": net(
        "self.scale = torch.ones(4)", "return self.f(inputs) * self.scale if 'scale' not in self._buffers else exit()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_patch_that_does_not_mend_is_advice(examined: Examined, case: str) -> None:
    found = examined(WRONG[case], inputs="2x4")
    assert found.problems
    assert patches(found) == []
    assert all(item.fix and not item.digest for item in found.problems)


def test_of_two_fixes_for_one_line_the_one_that_mends_both_is_offered(examined: Examined) -> None:
    code = net("self.w = nn.Parameter(torch.ones(4)).cuda()", "return self.f(inputs) * self.w")
    assert set(patches(examined(code, inputs="2x4"))) == {"self.w = nn.Parameter(torch.ones(4))"}


def test_patches_that_pass_alone_and_not_together_are_not_offered_together(examined: Examined) -> None:
    forward = """
        both = {"a", "b"} <= self._buffers.keys()
        return self.f(inputs) * (self.a if not both else self.a.cpu()) + self.b
    """
    code = net("self.a = torch.ones(4)\nself.b = torch.ones(4)", textwrap.dedent(forward))
    assert patches(examined(code, inputs="2x4")) == ['self.register_buffer("a", torch.ones(4))']


def test_nothing_is_repeated_without_a_candidate_or_when_nobody_asks(examined: Examined, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def times(body: str, forward: str, **wishes: Any) -> int:
        made.write_text("")
        examined(
            net(f"with open({str(made)!r}, 'a') as file:\n    file.write('.')\n{body}", forward), inputs="2x4", **wishes
        )
        return len(made.read_text())

    once = times("pass", "return self.f(inputs)")
    assert times("self.scale = torch.ones(4)", "return self.f(inputs) * self.scale", fixes=False) == once
    assert times("self.scale = torch.ones(4)", "return self.f(inputs) * self.scale") > once


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_process_that_dies_over_a_fix_has_given_what_it_found(tmp_path: Path, end: str) -> None:
    forward = f"import os\nif 'scale' in self._buffers:\n    {end}\nreturn self.f(inputs) * self.scale"
    (tmp_path / "net.py").write_text(HEADER + net("self.scale = torch.ones(4)", forward))
    found = diagnosed(DoctorRequest(source="net.py:Net", folder=str(tmp_path), device="vgpu:0", inputs="2x4"))
    assert [(item.rule, item.patch) for item in found.problems] == [("unregistered-tensor", None)]


def test_no_fix_is_tried_when_there_is_no_time(examined: Examined) -> None:
    code = net("self.scale = torch.ones(4)", "return self.f(inputs) * self.scale")
    assert patches(examined(code, inputs="2x4", until=1e-9)) == []
    assert len(patches(examined(code, inputs="2x4"))) == 1


BEFORE = """
def outer(n):
    def inner():
        return n
    return inner
class A:
    @staticmethod
    def b(): return 1
"""


@pytest.fixture
def module(tmp_path: Path) -> dict[str, Any]:
    """A file that was run."""
    file = tmp_path / "one.py"
    file.write_text(BEFORE)
    space: dict[str, Any] = {"file": str(file)}
    exec(compile(BEFORE, str(file), "exec", dont_inherit=True), space)
    return space


def test_functions_run_as_the_text_says_while_it_lasts(module: dict[str, Any]) -> None:
    after = BEFORE.replace("return n\n", "return n + 1\n").replace("return 1", "return 2")
    with exchanged({module["file"]: FileChange(BEFORE, after)}):
        assert (module["outer"](1)(), module["A"].b()) == (2, 2)
    assert (module["outer"](1)(), module["A"].b()) == (1, 1)
    for bad in (BEFORE + "def more(): pass\n", BEFORE.replace("return inner", "return (")):
        with pytest.raises((ValueError, SyntaxError)), exchanged({module["file"]: FileChange(BEFORE, bad)}):
            pass
    assert module["outer"](1)() == 1


def test_outputs_are_compared_within_what_devices_differ_by() -> None:
    one = torch.linspace(-2, 2, 5)
    assert alike(values_of([one]), values_of({"out": one + 1e-6}))
    assert alike(values_of(torch.tensor([float("nan"), 1.0])), values_of(torch.tensor([float("nan"), 1.0])))
    for other in (one + 0.1, one.double(), one[:4], one.reshape(5, 1), one * float("nan")):
        assert not alike(values_of(one), values_of(other))
    assert not alike(values_of(one > 0), values_of(one > 1))
    assert not alike(values_of(one), values_of([one, one]))
    half = one.to(torch.bfloat16)
    assert alike(values_of(half), values_of(half * 1.01))
    assert alike(values_of(torch.zeros(0)), values_of(torch.zeros(0)))
    assert alike(values_of(one + 1j), values_of(one + 1j))
    assert values_of(torch.ones(2, 2).to_sparse()) is None


def test_a_patch_has_the_digest_of_its_file(examined: Examined) -> None:
    found = examined(net("self.scale = torch.ones(4)", "return self.f(inputs) * self.scale"), inputs="2x4")
    (finding,) = found.problems
    assert isinstance(finding, Finding)
    assert finding.digest
    assert replace(finding, patch=None).fix
