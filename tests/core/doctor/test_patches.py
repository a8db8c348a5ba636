"""Patches of the doctor: mechanical fixes become a diff that applies, others have none."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from fakes.doctor import MARK, marked, patched

from devexplorer.core.doctor.code.patches import NOTHING_AT_HAND, advice_for, fixes_for
from devexplorer.core.records import Finding


def patch_for(finding: Finding) -> str | None:
    """The likeliest fix, before it is tried."""
    return next((fix.patch for fix in fixes_for(finding)), None)


def fixed(tmp_path: Path, rule: str, code: str, path: str = "", *, newline: str = "\n") -> str | None:
    """The marked line as it stands after the patch; None where there is none."""
    file = tmp_path / "net.py"
    file.write_bytes(textwrap.dedent(code).replace("\n", newline).encode())
    line = marked(file)[0]
    patch = patch_for(Finding(rule=rule, path=path, file=str(file), line=line, message="", fix=""))
    if patch is None:
        return None
    new = patched(file.read_bytes().decode(), patch)
    ast.parse(new)
    old = file.read_bytes().decode().split("\n")
    changed = [one for one in new.split("\n") if one not in old]
    return "\n".join(changed).replace(MARK, "").strip()


def in_init(statement: str, imports: str = "import torch\nfrom torch import nn") -> str:
    return (
        f"{imports}\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n       "
        f" {statement}  {MARK}\n"
    )


def in_forward(statement: str, arguments: str = "x") -> str:
    return (
        f"import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, {arguments}):\n       "
        f" {statement}  {MARK}\n"
    )


@pytest.mark.parametrize(
    ("rule", "path", "statement", "right"),
    [
        (
            "unregistered-module",
            "a",
            "self.a = [nn.Linear(2, 2), nn.ReLU()]",
            "self.a = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])",
        ),
        ("unregistered-module", "a", "self.a = (nn.ReLU(),)", "self.a = nn.ModuleList((nn.ReLU(),))"),
        (
            "unregistered-module",
            "a[0]",
            "self.a = [nn.ReLU() for _ in 'ab']",
            "self.a = nn.ModuleList([nn.ReLU() for _ in 'ab'])",
        ),
        ("unregistered-module", "b.0.a[1]", "self.a = []", "self.a = nn.ModuleList()"),
        ("unregistered-module", "a['up']", "self.a = {'up': nn.ReLU()}", "self.a = nn.ModuleDict({'up': nn.ReLU()})"),
        (
            "unregistered-module",
            "a",
            "self.a = {f'{i}': nn.ReLU() for i in 'ab'}",
            "self.a = nn.ModuleDict({f'{i}': nn.ReLU() for i in 'ab'})",
        ),
        (
            "unregistered-parameter",
            "a",
            "self.a = [nn.Parameter(torch.ones(2))]",
            "self.a = nn.ParameterList([nn.Parameter(torch.ones(2))])",
        ),
        ("unregistered-tensor", "x", "self.x = torch.ones(3)", 'self.register_buffer("x", torch.ones(3))'),
        (
            "unregistered-tensor",
            "x",
            "self.x: torch.Tensor = torch.ones(3)",
            'self.register_buffer("x", torch.ones(3))',
        ),
        (
            "parameter-not-leaf",
            "w",
            "self.w = nn.Parameter(torch.ones(2)).to('cuda')",
            "self.w = nn.Parameter(torch.ones(2).to('cuda'))",
        ),
        (
            "parameter-not-leaf",
            "w",
            "self.w = nn.Parameter(torch.ones(2)).cuda()",
            "self.w = nn.Parameter(torch.ones(2).cuda())",
        ),
        (
            "parameter-not-leaf",
            "w",
            "self.w = nn.Parameter(a + b, False).half()",
            "self.w = nn.Parameter((a + b).half(), False)",
        ),
        ("hard-coded-device", "", "self.fc = nn.Linear(2, 2).cuda()", "self.fc = nn.Linear(2, 2)"),
        (
            "hard-coded-device",
            "",
            "self.w = nn.Parameter(torch.ones(2).to('cuda:1'))",
            "self.w = nn.Parameter(torch.ones(2))",
        ),
        (
            "hard-coded-device",
            "",
            "self.register_buffer('m', torch.ones(2).cuda())",
            "self.register_buffer('m', torch.ones(2))",
        ),
    ],
)
def test_what_is_made_is_registered(tmp_path: Path, rule: str, path: str, statement: str, right: str) -> None:
    assert fixed(tmp_path, rule, in_init(statement), path) == right


@pytest.mark.parametrize(
    ("rule", "statement", "right"),
    [
        ("default-device", "return x + torch.zeros(3)", "return x + torch.zeros(3, device=x.device)"),
        ("default-device", "return x + torch.empty()", "return x + torch.empty(device=x.device)"),
        ("default-device", "return x + torch.full((2,), 1.0,)", "return x + torch.full((2,), 1.0, device=x.device)"),
        (
            "default-device",
            "return torch.zeros(3) + torch.ones(3)",
            "return torch.zeros(3, device=x.device) + torch.ones(3, device=x.device)",
        ),
        (
            "default-device",
            "return x + torch.arange(3).repeat(2, 1).to(self.device)",
            "return x + torch.arange(3, device=x.device).repeat(2, 1)",
        ),
        (
            "device-hop",
            "return x + torch.arange(3).sum(0).to(x.device)",
            "return x + torch.arange(3, device=x.device).sum(0)",
        ),
        (
            "hard-coded-device",
            "return x + torch.zeros(3).sum(0).cuda()",
            "return x + torch.zeros(3, device=x.device).sum(0)",
        ),
        (
            "default-device",
            "return (lambda t: t + torch.zeros(3))(x)",
            "return (lambda t: t + torch.zeros(3, device=t.device))(x)",
        ),
        ("hard-coded-device", "return x + torch.zeros(3).cuda()", "return x + torch.zeros(3, device=x.device)"),
        (
            "hard-coded-device",
            "return x + torch.zeros(3, device='cuda:0')",
            "return x + torch.zeros(3, device=x.device)",
        ),
        ("cut-from-autograd", "return x @ self.weight.data", "return x @ self.weight"),
        ("cut-from-autograd", "return f(x, self.a.data, self.b.data)", "return f(x, self.a, self.b)"),
    ],
)
def test_forward_follows_its_input(tmp_path: Path, rule: str, statement: str, right: str) -> None:
    assert fixed(tmp_path, rule, in_forward(statement)) == right


@pytest.mark.parametrize(
    ("rule", "argument", "advised"),
    [
        ("default-device", "tokens", "tokens.device"),
        ("hard-coded-device", "tokens", "tokens.device"),
        ("default-device", "size: int, tokens: torch.Tensor", "tokens.device"),
        ("default-device", "size: int", "device"),
        ("mixed-devices", "tokens", "tokens.device"),
    ],
)
def test_the_advice_names_the_tensor_that_the_patch_takes(
    tmp_path: Path, rule: str, argument: str, advised: str
) -> None:
    file = tmp_path / "net.py"
    file.write_text(textwrap.dedent(in_forward("return torch.zeros(3)", argument)))
    fix = "Create it there: torch.zeros(..., device=x.device)."
    finding = Finding(rule=rule, path="", file=str(file), line=marked(file)[0], message="", fix=fix)
    assert advice_for(finding).removesuffix(NOTHING_AT_HAND) == fix.replace("x.device", advised)
    assert advice_for(finding).endswith(NOTHING_AT_HAND) == (advised == "device")
    patch = patch_for(finding)
    assert patch is None or advised == "device" or f"device={advised}" in patch


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("unregistered-module", in_init("self.a = {nn.ReLU()}")),
        ("unregistered-module", in_init("self.a = [(nn.ReLU(), nn.ReLU())]")),
        ("unregistered-module", in_init("self.a = {1: nn.ReLU()}")),
        ("unregistered-module", in_init("self.a = {'a.b': nn.ReLU()}")),
        ("unregistered-module", in_init("self.a = make()")),
        ("unregistered-module", in_init("self.a = []") + "        self.a.append((nn.ReLU(), nn.ReLU()))\n"),
        ("unregistered-module", in_init("self.a = [nn.ReLU()]", "from torch.nn import Module")),
        ("unregistered-tensor", in_init("self.x = self.y = torch.ones(3)")),
        ("unregistered-tensor", in_init("self.x = [torch.ones(3)]")),
        ("unregistered-tensor", in_forward("self.x = torch.ones(3)")),
        ("unregistered-tensor", in_init("self.x = torch.ones(3)").replace("super().__init__()", "pass")),
        ("default-device", in_init("torch.zeros(3)")),
        ("hard-coded-device", in_init("self.x = torch.ones(3).cuda()")),
        ("hard-coded-device", in_forward("return x.cuda()")),
        ("cut-from-autograd", in_forward("return x.data @ self.b(x).data")),
        ("hidden-sync", in_forward("return x.item()")),
        ("no-such-rule", in_forward("return x")),
    ],
)
def test_what_takes_a_thought_has_no_patch(tmp_path: Path, rule: str, code: str) -> None:
    assert fixed(tmp_path, rule, code) is None


def test_columns_are_those_of_letters_and_not_of_bytes(tmp_path: Path) -> None:
    assert (
        fixed(tmp_path, "default-device", in_forward("é = 'größe'; return x + torch.ones(3)"))
        == "é = 'größe'; return x + torch.ones(3, device=x.device)"
    )


def test_odd_letters_within_a_text_end_no_line(tmp_path: Path) -> None:
    code = in_init("self.x = torch.ones(3)").replace("super().__init__()", "super().__init__()  # \u2028 and \x1c")
    assert fixed(tmp_path, "unregistered-tensor", code) == 'self.register_buffer("x", torch.ones(3))'


def test_a_statement_over_several_lines_is_one(tmp_path: Path) -> None:
    code = f"""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [  {MARK}
                nn.ReLU(),
            ]
    """
    file = tmp_path / "net.py"
    file.write_text(textwrap.dedent(code))
    patch = patch_for(
        Finding(rule="unregistered-module", path="layers", file=str(file), line=marked(file)[0], message="", fix="")
    )
    assert patch is not None
    new = patched(file.read_text(), patch)
    assert "nn.ModuleList([" in new
    assert new.rstrip().endswith("])")


def test_an_argument_is_known_by_its_annotation(tmp_path: Path) -> None:
    code = in_forward("return torch.zeros(3)", "size: int, mask: torch.Tensor")
    assert fixed(tmp_path, "default-device", code) == "return torch.zeros(3, device=mask.device)"


@pytest.mark.parametrize("known", ["x.shape[1]", "x.size(1)"])
def test_an_argument_of_a_helper_is_known_by_its_shape(tmp_path: Path, known: str) -> None:
    helper = in_forward(f"return torch.zeros({known.replace('x', 'h')})", "n, h").replace("def forward", "def mask")
    assert (
        fixed(tmp_path, "default-device", helper) == f"return torch.zeros({known.replace('x', 'h')}, device=h.device)"
    )


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    code = in_init("self.x = torch.ones(3)").replace("\n", "\r\n")
    file.write_bytes(code.encode())
    line = marked(file)[0]
    patch = patch_for(Finding(rule="unregistered-tensor", path="x", file=str(file), line=line, message="", fix=""))
    assert patch is not None
    assert all(one.endswith("\r\n") for one in patch.splitlines(keepends=True)[3:])


def test_a_file_that_cannot_be_read_has_no_patch(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"def (", b""):
        file = tmp_path / "net.py"
        file.write_bytes(content)
        assert patch_for(Finding(rule="default-device", path="", file=str(file), line=1, message="", fix="")) is None
    gone = Finding(rule="default-device", path="", file=str(tmp_path / "gone.py"), line=1, message="", fix="")
    assert patch_for(gone) is None


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(in_init("self.x = torch.ones(3)").rstrip("\n"))
    patch = patch_for(
        Finding(rule="unregistered-tensor", path="x", file=str(file), line=marked(file)[0], message="", fix="")
    )
    assert patch is not None
    assert "\\ No newline at end of file" in patch
    assert not patched(file.read_text(), patch).endswith("\n")
