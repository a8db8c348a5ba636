"""The rule hard-coded-device: a device in the user's own line is found, a device from elsewhere is not."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import textwrap

import pytest
import torch
from fakes.doctor import HEADER, marked

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.hard_coded import HardCoded, source_of
from devexplorer.core.virtual.cuda.emulation import CudaEmulation

FORWARD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)
        self.dim = 4

    def forward(self, x):
        {line}
        return self.f(x)
"""
BUILD = """
import io

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {line}

    def forward(self, x):
        return x
"""


@pytest.fixture
def found(tmp_path, virtual):
    """`found(code)`: the findings of building and running `Net` on the first card, in order, and the lines of the code
    that are marked."""
    made = []

    def carry_out(code, cards=2, name="net_of_test", imitate=True):
        file = tmp_path / f"{name}.py"
        file.write_text(HEADER + textwrap.dedent(code))
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        collector = FindingCollector()
        with (
            CudaEmulation(cards, HardCoded(collector, cards), virtual=imitate),
            contextlib.suppress(RuntimeError, AssertionError),
        ):
            spec.loader.exec_module(module)
            model = module.Net()
            there = torch.device("vgpu" if imitate else "cpu", 0)
            model.to(there)(torch.ones(2, 4).to(there))
        return [one for one in collector.findings() if one.file == str(file)], marked(file)

    yield carry_out
    for name in made:
        sys.modules.pop(name, None)


IN_FORWARD = {
    ".cuda()": "x = x + torch.zeros(4).cuda()",
    ".cuda(1)": "y = x.cuda(1)",
    '.cuda("cuda:1")': 'y = x.cuda("cuda:1")',
    'device="cuda"': 'x = x + torch.zeros(4, device="cuda")',
    'device="cuda:0"': 'x = x + torch.zeros(4, device="cuda:0")',
    "device=1": "y = torch.zeros(4, device=1)",
    '"cuda:1"': 'y = x.to("cuda:1")',
    "0": "y = x.to(0)",
    "torch.device('cuda:1')": 'y = x.to(torch.device("cuda:1"))',
    "torch.device('cuda', 1)": 'y = x.to(torch.device("cuda", 1))',
    "device=torch.device('cuda')": 'x = x + x.new_zeros(4, device=torch.device("cuda"))',
    "torch.cuda.FloatTensor": "x = x + torch.cuda.FloatTensor(4).zero_()",
    '"torch.cuda.FloatTensor"': 'x = x.cpu().type("torch.cuda.FloatTensor")',
    "torch.cuda.HalfTensor": "y = x.type(torch.cuda.HalfTensor)",
    "device='vgpu:0'": "y = torch.zeros(4, device='vgpu:0')",
}


@pytest.mark.parametrize("text", IN_FORWARD)
def test_a_device_in_a_line_of_forward_is_an_error_there(found, text):
    (finding,), _ = found(FORWARD.format(line=IN_FORWARD[text] + "  # <-"))
    text = text.replace("'vgpu:0'", '"vgpu:0"')
    assert (finding.rule, finding.severity, finding.line) == ("hard-coded-device", "error", 11)
    assert f"`{text}` in `forward`" in finding.message
    assert "whatever card the rest of the model is on" in finding.message
    assert "x.device" in finding.fix


IN_BUILD = {
    "self.f = nn.Linear(4, 4).cuda()": "warning",
    'self.f = nn.Linear(4, 4, device="cuda")': "warning",
    'self.f = nn.Linear(4, 4).to("cuda:1")': "error",
    "self.f = nn.Linear(4, 4).cuda(0)": "error",
    'self.register_buffer("b", torch.zeros(4, device=torch.device("cuda")))': "warning",
    'self.f = nn.Sequential(*[nn.Linear(4, 4, device="cuda:0") for _ in range(2)])': "error",
    "torch.cuda.set_device(1)": "error",
    'f = io.BytesIO(); torch.save(torch.ones(1), f); f.seek(0); self.t = torch.load(f, map_location="cuda")': "warning",
}


@pytest.mark.parametrize("line", IN_BUILD)
def test_a_device_while_the_model_is_made_is_an_error_where_it_is_one_card(found, line):
    (finding,), (number,) = found(BUILD.format(line=line + "  # <-"))
    assert (finding.severity, finding.line) == (IN_BUILD[line], number)
    assert "`__init__`" in finding.message
    assert "model.to(device)" in finding.fix


NO_FINDING = {
    "of a tensor": FORWARD.format(line="x = x + torch.zeros(4, device=x.device).to(self.f.weight.device).to(x)"),
    "of a tensor's number": FORWARD.format(line='x = x + torch.zeros(4, device=f"cuda:{x.get_device()}")'),
    "on the CPU": FORWARD.format(line='y = torch.zeros(4, device="cpu")'),
    "no device": FORWARD.format(line='y = x.to(torch.float16).to(dtype=torch.float32); z = "cuda:0"'),
    "autocast": FORWARD.format(line='y = torch.autocast("cuda", enabled=False).__enter__()'),
    "asked for while it is made": BUILD.format(
        line='self.f = nn.Linear(4, 4).to("cuda" if torch.cuda.is_available() else "cpu")'
    ),
    "only after asking": BUILD.format(
        line="self.f = nn.Linear(4, 4).cuda() if torch.cuda.is_available() else nn.Linear(4, 4)"
    ),
    "an argument": """
        class Net(nn.Module):
            def __init__(self, device=None):
                super().__init__()
                self.f = nn.Linear(4, 4, device=device)

            def forward(self, x):
                return self.f(x) + self.made(x.device)

            def made(self, device):
                return torch.zeros(4, device=device)
    """,
    "a device's name that is no device": """
        class Net(nn.Module):
            def made(self, size, kind, like):
                return torch.zeros(size, device=like.device)

            def forward(self, x):
                return x + self.made(4, "cuda:1", x)
    """,
    "a property": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.f = nn.Linear(4, 4)

            @property
            def device(self):
                return next(self.parameters()).device

            def forward(self, x):
                return self.f(x.to(self.device))
    """,
}


@pytest.mark.parametrize("name", NO_FINDING)
def test_a_device_that_comes_from_elsewhere_is_no_finding(found, name):
    findings, _ = found(NO_FINDING[name])
    assert not findings


THROUGH = {
    "a constant of the module": (
        """
        DEVICE = "cuda:1"

        class Net(nn.Module):
            def forward(self, x):
                return x.to(DEVICE)  # <-
        """,
        "error",
        '`DEVICE`, which is `"cuda:1"` in line 4,',
    ),
    "a device object": (
        """
        DEVICE = torch.device("cuda")

        class Net(nn.Module):
            def forward(self, x):
                return x + torch.ones(4, device=DEVICE)  # <-
        """,
        "error",
        "`DEVICE`, which is `torch.device('cuda')` in line 4,",
    ),
    "a variable": (
        """
        class Net(nn.Module):
            def forward(self, x):
                device = "cuda:0"
                return x + torch.ones(4, device=device)  # <-
        """,
        "error",
        "`device`, which is",
    ),
    "an attribute": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.device = torch.device("cuda", 1)

            def forward(self, x):
                return x.to(self.device)  # <-
        """,
        "error",
        "`self.device`, which is `torch.device('cuda', 1)` in line 7,",
    ),
    "an attribute that was asked for": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                if torch.cuda.is_available():
                    self.device = torch.device("cuda")
                else:
                    self.device = torch.device("cpu")

            def forward(self, x):
                return x.to(self.device)  # <-
        """,
        "note",
        "asks for CUDA first and then takes the current card",
    ),
    "a condition in forward": (
        """
        class Net(nn.Module):
            def forward(self, x):
                y = torch.ones(4)
                if x.is_cuda:
                    y = y.cuda()  # <-
                return x + y
        """,
        "note",
        "asks for CUDA first and then takes the current card",
    ),
    "the default of an argument": (
        """
        class Net(nn.Module):
            def __init__(self, device="cuda:0"):
                super().__init__()
                self.device = device

            def forward(self, x):
                return x.to(self.device)  # <-
        """,
        "warning",
        '`self.device` is what `__init__` was given, by default `"cuda:0"` (line 5)',
    ),
    "an argument of a helper": (
        """
        def zeros(size, device):
            return torch.zeros(size, device=device)

        class Net(nn.Module):
            def forward(self, x):
                return x + zeros(4, "cuda:0")  # <-
        """,
        "error",
        '`"cuda:0"` in `forward`',
    ),
    "an argument that is not given": (
        """
        def zeros(size, device=None):
            return torch.zeros(size, device=device or "cuda:0")  # <-

        class Net(nn.Module):
            def forward(self, x):
                return x + zeros(4)
        """,
        "error",
        '`device="cuda:0"` in `zeros`',
    ),
    "a factory": (
        """
        class Part(nn.Module):
            def __init__(self, size, device=None):
                super().__init__()
                self.f = nn.Linear(size, size, device=device)

            def forward(self, x):
                return self.f(x)

        def Net():
            return Part(4, device="cuda:1")  # <-
        """,
        "error",
        '`device="cuda:1"` in `Net`',
    ),
    "a block": (
        """
        class Net(nn.Module):
            def forward(self, x):
                with torch.device("cuda"):  # <-
                    y = torch.zeros(4)
                return x + y
        """,
        "error",
        "`torch.device('cuda')` in `forward`",
    ),
    "the current card": (
        """
        class Net(nn.Module):
            def forward(self, x):
                with torch.cuda.device(1):  # <-
                    return x + 1
        """,
        "error",
        "`1` in `forward`",
    ),
    "a call over several lines": (
        """
        class Net(nn.Module):
            def forward(self, x):
                return x + (
                    torch.zeros(4)
                    .cuda()  # <-
                )
        """,
        "error",
        "`.cuda()`",
    ),
}


@pytest.mark.parametrize("name", THROUGH)
def test_the_line_that_uses_it_is_named_and_where_it_was_written(found, name):
    code, severity, words = THROUGH[name]
    (finding,), (line,) = found(code)
    assert (finding.severity, finding.line) == (severity, line)
    assert words in finding.message


def test_a_constant_of_another_file_is_named_with_its_file(found):
    found("DEVICE = 'cuda:0'\nclass Net(nn.Module): pass", name="settings_of_test")
    (finding,), (line,) = found("""
        from settings_of_test import DEVICE

        class Net(nn.Module):
            def forward(self, x):
                return x.to(DEVICE)  # <-
    """)
    assert finding.line == line
    assert '`DEVICE`, which is `"cuda:0"` in line 3 of settings_of_test.py,' in finding.message


def test_a_constant_of_a_module_is_named_with_its_file(found):
    found("DEVICE = 'cuda:0'\nclass Net(nn.Module): pass", name="settings_of_test")
    (finding,), _ = found("""
        import settings_of_test as settings

        class Net(nn.Module):
            def forward(self, x):
                return x.to(settings.DEVICE)
    """)
    assert "`settings.DEVICE`" in finding.message


def test_a_module_that_is_moved_is_one_finding(found):
    (finding,), _ = found(BUILD.format(line="self.f = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()"))
    assert finding.count == 1


def test_what_happens_twice_in_forward_is_counted(found):
    (finding,), _ = found(FORWARD.format(line='y = [torch.zeros(4, device="cuda") for _ in range(3)]'))
    assert finding.count == 3


def test_a_card_that_is_not_there_fails_as_on_cuda_and_is_found(found, virtual):
    (finding,), (line,) = found(FORWARD.format(line='y = torch.zeros(4, device="cuda:5")  # <-'))
    assert (finding.severity, finding.line) == ("error", line)
    assert "`cuda:5` is not there" in finding.message
    with (
        CudaEmulation(1),
        pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"),
    ):
        torch.zeros(1, device="cuda:1")


def test_the_doctor_s_own_moves_are_no_findings(found, virtual):
    collector = FindingCollector()
    with CudaEmulation(2, HardCoded(collector, 2)) as stand_in:
        assert stand_in.name_of("vgpu:1") == "cuda:1"
        torch.nn.Linear(2, 2).to(stand_in.name_of("vgpu:1"))
    assert not collector.findings()


def test_what_virtual_gpus_cannot_do_is_noted_at_its_line(virtual):
    collector = FindingCollector()
    with CudaEmulation(1, HardCoded(collector, 1)), pytest.raises(NotImplementedError, match="virtual GPUs"):
        torch.cuda.cudart()
    (unchecked,) = collector.unchecked()
    assert (unchecked.what, unchecked.file) == ("torch.cuda.cudart", __file__)


@pytest.mark.parametrize("text", [".cuda()", 'device="cuda"', '"cuda:1"'])
def test_without_virtual_gpus_the_line_is_found_and_torch_does_what_it_does(found, text):
    (finding,), (line,) = found(FORWARD.format(line=IN_FORWARD[text] + "  # <-"), cards=0, imitate=False)
    assert (finding.severity, finding.line) == ("error", line)
    assert f"`{text}`" in finding.message


def test_a_line_of_an_installed_library_is_named_where_the_user_wrote_nothing(found, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    library = folder / "library_of_test.py"
    library.write_text(
        "import torch\n\n\ndef ones(like, device=None):\n    return torch.ones(4, device=device or 'cuda:0')\n"
    )
    monkeypatch.syspath_prepend(folder)
    code = """
        from library_of_test import ones

        class Net(nn.Module):
            def forward(self, x):
                return x + ones(x{given})  # <-
    """
    try:
        (finding,), (line,) = found(code.format(given=', device="cuda:1"'))
        assert finding.line == line
        assert "cuda:1" in finding.message
        findings, _ = found(code.format(given=""), name="other_net_of_test")
        assert not findings
    finally:
        sys.modules.pop("library_of_test", None)


def test_code_without_a_file_is_no_trouble(virtual):
    collector = FindingCollector()
    with CudaEmulation(2, HardCoded(collector, 2)):
        made = eval("torch.zeros(2, device='cuda')", {"torch": torch})
        assert made.is_cuda
    assert not collector.findings()


def test_a_file_that_cannot_be_read_has_no_source(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("def (:")
    assert source_of(str(file)) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("virtual_gpus", [False, True])
def test_without_any_card_nothing_is_imitated(virtual, virtual_gpus):
    collector = FindingCollector()
    with CudaEmulation(0, HardCoded(collector, 0), virtual=virtual_gpus):
        assert not torch.cuda.is_available()
        with pytest.raises((AssertionError, RuntimeError)):
            torch.zeros(1).cuda()
    assert [finding.rule for finding in collector.findings()] == ["hard-coded-device"]
