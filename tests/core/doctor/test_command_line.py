"""`devexplorer doctor`: findings as text, as a document and as GitHub annotations; exit codes; one line for invalid
input."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes.command_line import CLI, Json, Refusal, has, strictly
from fakes.virtual import needs_virtual_gpus
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor
from devexplorer.core.cli.run import main
from devexplorer.core.cli.terminal import waiting
from devexplorer.core.doctor import cli as doctor
from devexplorer.core.doctor.cli import github_lines, shown_file
from devexplorer.core.records import CodeLines, Diagnosis, DoctorRequest, Finding, Unchecked

pytestmark = pytest.mark.usefixtures("warm_processes")

MIXED = Finding(
    rule="mixed-devices",
    path="blocks.0",
    file="/elsewhere/net.py",
    line=12,
    message="`x * self.scale` has operands on vgpu:0 and cpu: [bold]self.scale is a plain attribute.",
    fix="Register it: self.register_buffer('scale', scale).",
    count=3,
    bytes=4096,
    seconds=0.0012,
    simulated=True,
    code=CodeLines(first=10, lines=("def forward(self, x):", "    # scaled", "    y = x * self.scale", "    return y")),
    patch=(
        "--- a/net.py\n+++ b/net.py\n@@ -3 +3 @@\n-    self.scale = scale\n+    self.register_buffer('scale', scale)\n"
    ),
)
SYNC = replace(
    MIXED,
    rule="hidden-sync",
    severity="warning",
    file="",
    line=0,
    code=None,
    patch=None,
    count=1,
    bytes=None,
    seconds=None,
    path="",
)
HOP = replace(SYNC, rule="device-hop", severity="note", message="It hops.", fix="Let it stay.")
STREAM = Unchecked(what="torch.cuda.Stream", reason="a virtual GPU has no streams.", file="/elsewhere/net.py", line=4)
CLEAN = Diagnosis(
    target="lenet", device="vgpu:0", device_name="Tesla T4", simulated=True, inputs="8x1x28x28", operations=12
)

Says = Callable[[Diagnosis], list[tuple[DoctorRequest, float]]]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Fake a diagnosis; returns the requests and time limits."""

    def answer(diagnosis: Diagnosis) -> list[tuple[DoctorRequest, float]]:
        asked: list[tuple[DoctorRequest, float]] = []

        def diagnosed(request: DoctorRequest, progress: ProgressMonitor, seconds: float) -> Diagnosis:
            asked.append((request, seconds))
            return diagnosis

        monkeypatch.setattr(doctor, "diagnosed", diagnosed)
        return asked

    return answer


# --- requests


def test_options_become_the_request(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = says(CLEAN)
    argv = [
        "doctor",
        " net:Net ",
        "--device",
        "vgpu:1",
        "--input",
        "2x3:int64",
        "--train",
        "--dtype",
        "half",
        "--timeout",
        "7.5",
    ]
    assert main([*argv, "--virtual", "3x Tesla T4"]) == 0
    assert main(["doctor", "lenet"]) == 0
    full = DoctorRequest(
        source="net:Net",
        folder=str(tmp_path),
        device="vgpu:1",
        virtual="3x Tesla T4",
        train=True,
        inputs="2x3:int64",
        dtype="float16",
    )
    assert asked == [(full, 7.5), (DoctorRequest(source="lenet", folder=str(tmp_path)), 120.0)]
    capfd.readouterr()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("", "TARGET"),
        ("net:", "no package.module:factory"),
        ("lenet --device gpu!", "'gpu!' is no device"),
        ("lenet --device cpu:1", "there is only one cpu"),
        ("lenet --dtype float33", "there is no dtype 'float33'"),
        ("lenet --dtype int8", "a model cannot become int8"),
        ("lenet --input 3by4", "'3by4' is no input"),
        ("lenet --input 0x4", "sizes begin at 1"),
        ("lenet --timeout soon", "--timeout: 'soon' is not a number of seconds"),
        ("lenet --timeout 0", "--timeout: 0 seconds is not a duration"),
        ("lenet --virtual Voodoo", "there is no profile 'Voodoo'"),
        ("lenet --json --github", "give one of them"),
        ("lenet --frob", "--frob"),
        ("n\udcff.py:Net", "the target 'n\\udcff.py:Net' is not UTF-8 here"),
    ],
)
def test_wrong_input_gets_one_line(says: Says, refusal: Refusal, argv: str, words: str) -> None:
    asked = says(CLEAN)
    assert words in refusal("doctor", *argv.split())
    assert not asked, "nothing ran"


def test_a_current_folder_that_cannot_be_imported_from_is_refused(
    says: Says, refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = says(CLEAN)
    odd, gone = tmp_path / "d\udcff", tmp_path / "gone"
    odd.mkdir()
    monkeypatch.chdir(odd)
    assert "the current folder" in (line := refusal("doctor", "net.py:Net"))
    assert "is not UTF-8 here" in line
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder does not exist any more" in refusal("doctor", "lenet")
    assert not asked, "nothing ran"


def test_everything_that_is_wrong_is_in_the_one_line(says: Says, refusal: Refusal) -> None:
    says(CLEAN)
    line = refusal(
        "doctor",
        "net:",
        "--device",
        "?",
        "--dtype",
        "x",
        "--input",
        "y",
        "--timeout",
        "z",
        "--virtual",
        "W",
        "--json",
        "--github",
    )
    assert all(words in line for words in ("net:", "'?'", "'x'", "'y'", "'z'", "'W'", "--github"))


@pytest.mark.parametrize("error", [BadInput("there is no file net.py"), Cancelled("cancelled; nothing has changed")])
def test_what_could_not_be_examined_is_one_line_and_no_document(
    monkeypatch: pytest.MonkeyPatch, refusal: Refusal, error: Exception
) -> None:
    def diagnosed(*_: object) -> Diagnosis:
        raise error

    monkeypatch.setattr(doctor, "diagnosed", diagnosed)
    for form in ((), ("--json",), ("--github",)):
        assert str(error) in refusal("doctor", "net.py:Net", *form)


# --- output


@pytest.mark.parametrize("form", [(), ("--json",), ("--github",)])
@pytest.mark.parametrize(
    ("diagnosis", "code", "allowed"),
    [
        (CLEAN, 0, 0),
        (replace(CLEAN, notes=(HOP,)), 0, 0),
        (replace(CLEAN, problems=(SYNC,)), 1, 1),
        (replace(CLEAN, problems=(MIXED,), unchecked=(STREAM,)), 1, 1),
        (replace(CLEAN, unchecked=(STREAM,)), 2, 0),
    ],
)
def test_exit_codes(
    says: Says, capfd: pytest.CaptureFixture[str], form: tuple[str, ...], diagnosis: Diagnosis, code: int, allowed: int
) -> None:
    says(diagnosis)
    assert main(["doctor", "lenet", *form]) == code
    err = capfd.readouterr().err
    if code == 2:
        assert err.count("\n") == 1
        assert (
            "no problem was found, but 1 thing could not be checked: torch.cuda.Stream (a virtual GPU has no streams)"
            in err
        )
        assert "--allow-unchecked" in err
    else:
        assert err == ""
    assert main(["doctor", "lenet", "--allow-unchecked", *form]) == allowed
    assert capfd.readouterr().err == ""


def test_the_document(says: Says, capfd: pytest.CaptureFixture[str]) -> None:
    says(replace(CLEAN, problems=(MIXED, SYNC), notes=(HOP,), unchecked=(STREAM,), train=True))
    assert main(["doctor", "lenet", "--json"]) == 1
    out = capfd.readouterr().out
    assert out.count("\n") == 1
    content = strictly(out)
    has(content, target=str, device=str, problems=list, notes=list, unchecked=list)
    assert [content[key] for key in ("target", "device", "device_name", "simulated", "train", "inputs",
                                     "operations")] == [
        "lenet", "vgpu:0", "Tesla T4", True, True, "8x1x28x28", 12]  # fmt: skip
    first: Json = content["problems"][0]
    assert first == {
        "rule": "mixed-devices", "path": "blocks.0", "file": "/elsewhere/net.py", "line": 12, "message": MIXED.message,
        "fix": MIXED.fix,
        "severity": "error", "count": 3, "bytes": 4096, "seconds": 0.0012, "simulated": True, "patch": MIXED.patch,
    }  # fmt: skip
    assert [one["rule"] for one in content["problems"] + content["notes"]] == [
        "mixed-devices",
        "hidden-sync",
        "device-hop",
    ]
    for one in content["problems"]:
        has(one, rule=str, path=str, file=str, line=int, message=str, fix=str)
    assert content["unchecked"] == [
        {"what": "torch.cuda.Stream", "reason": STREAM.reason, "file": "/elsewhere/net.py", "line": 4}
    ]


def test_the_text_for_people(says: Says, capfd: pytest.CaptureFixture[str]) -> None:
    says(replace(CLEAN, problems=(MIXED, SYNC), notes=(HOP,), unchecked=(STREAM,)))
    assert main(["doctor", "lenet"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[:7] == [
        "error  mixed-devices  blocks.0",
        "    /elsewhere/net.py:12",
        "        y = x * self.scale",
        f"    {MIXED.message}",
        f"    fix: {MIXED.fix}",
        "    3 times, 4.00 KiB, 1.2 ms (simulated) each time",
        "    patch:",
    ]
    assert "        +    self.register_buffer('scale', scale)" in lines
    assert "warning  hidden-sync" in lines
    assert "note  device-hop" in lines
    assert "    torch.cuda.Stream (/elsewhere/net.py:4): a virtual GPU has no streams." in lines
    assert (
        lines[-1] == "lenet on vgpu:0 (Tesla T4, simulated), forward with 8x1x28x28: 1 error, 1 warning, 1 note;"
        " not checked: torch.cuda.Stream; 12 operations watched"
    )


def test_a_clean_model_is_one_line(says: Says, capfd: pytest.CaptureFixture[str]) -> None:
    says(replace(CLEAN, device="cpu", device_name="", simulated=False, train=True, inputs="", operations=1))
    assert main(["doctor", "lenet"]) == 0
    assert capfd.readouterr().out == "lenet on cpu, forward and backward: no problem, 1 operation watched\n"


def test_what_would_colour_the_terminal_is_replaced(says: Says, capfd: pytest.CaptureFixture[str]) -> None:
    says(replace(CLEAN, problems=(replace(SYNC, message="a\x1b[31mb\nc", path="\x1b]0;x\x07"),)))
    main(["doctor", "lenet"])
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert "a?[31mb?c" in out


# --- GitHub


def test_annotations_escape_what_github_would_read_as_its_own(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    odd = replace(MIXED, file=str(tmp_path / "nets" / "a,b:c%.py"), message="100 % wrong:\r\nreally,", fix="Mend it.")
    (line,) = github_lines(replace(CLEAN, problems=(odd,)), str(tmp_path))
    title = "Operands on different devices (mixed-devices)"
    assert line == f"::error file=nets/a%2Cb%3Ac%25.py,line=12,title={title}::100 %25 wrong:%0D%0Areally, Mend it."


def test_annotations_have_the_severity_of_the_finding_and_leave_out_the_file_that_is_unknown(
    capfd: pytest.CaptureFixture[str], says: Says
) -> None:
    diagnosis = replace(
        CLEAN, problems=(MIXED, SYNC), notes=(HOP,), unchecked=(STREAM, Unchecked(what="a, b", reason="why: so"))
    )
    lines = list(github_lines(diagnosis, "/elsewhere"))
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning", "::notice", "::warning", "::warning"]
    assert lines[0].startswith("::error file=net.py,line=12,title=")
    assert lines[1].startswith("::warning title=Hidden synchronisation (hidden-sync)::")
    assert (
        lines[3] == "::warning file=net.py,line=4,title=Not checked%3A torch.cuda.Stream::a virtual GPU has no streams."
    )
    assert lines[4] == "::warning title=Not checked%3A a%2C b::why: so"
    says(diagnosis)
    assert main(["doctor", "lenet", "--github", "--allow-unchecked"]) == 1
    out = capfd.readouterr().out.splitlines()
    assert all(line.startswith("::") for line in out)
    assert [line.partition(" ")[0] for line in out][3:] == ["::notice", "::notice"]


def test_annotations_name_files_from_the_root_of_the_checkout(
    says: Says, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.chdir(folder)
    says(replace(CLEAN, problems=(replace(MIXED, file=str(folder / "net.py")),)))
    for workspace, file in (("", "net.py"), (str(tmp_path), "model/net.py")):
        monkeypatch.setenv("GITHUB_WORKSPACE", workspace)
        assert main(["doctor", "lenet", "--github"]) == 1
        assert capfd.readouterr().out.startswith(f"::error file={file},line=12,")


def test_files_are_named_as_people_know_them(tmp_path: Path) -> None:
    inside = tmp_path / "nets" / "net.py"
    inside.parent.mkdir()
    inside.write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nets")
    assert shown_file(str(inside), str(tmp_path)) == os.path.join("nets", "net.py")
    assert shown_file(str(inside), str(tmp_path / "link")) == "net.py", "the folder is known by another name"
    assert shown_file(str(inside), str(tmp_path / "ne")) == str(inside)


# --- the real doctor

NETS = """import os, sys, time, torch
from torch import nn

class Plain(nn.Linear):
    def __init__(self):
        super().__init__(3, 3)
        print("hello from the factory")
        self.scale = torch.ones(3)

    def forward(self, x):
        os.write(1, b"hello from below\\n")
        return super().forward(x) * self.scale  # mixed

class Clean(Plain):
    def __init__(self):
        super().__init__()
        del self.scale
        self.register_buffer("scale", torch.ones(3))

class Hangs(Clean):
    def forward(self, x):
        if os.environ.get("TELL"):
            with open(os.environ["TELL"] + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(os.environ["TELL"] + ".new", os.environ["TELL"])
        time.sleep(600)  # hangs

class Asks(nn.Module):
    def forward(self, first, *, table):
        return table[first]

def leaves(): os._exit(7)
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cli_doctor_nets.py"
    path.write_text(NETS)
    return path


def line_of(words: str) -> int:
    return next(number for number, line in enumerate(NETS.splitlines(), 1) if words in line)


def test_a_defect_is_found_at_its_line_and_what_the_model_prints_stays_out_of_the_document(
    nets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "cli_doctor_nets.py:Plain", "--device", "vgpu:0", "--input", "2x3", "--json"]) == 1
    out, err = capfd.readouterr()
    content = strictly(out)
    assert "hello from the factory" in err
    assert "hello from below" in err
    assert (content["target"], content["device"], content["simulated"]) == ("cli_doctor_nets.py:Plain", "vgpu:0", True)
    found = {one["rule"]: one for one in content["problems"]}
    assert "mixed-devices" in found or "unregistered-tensor" in found
    for one in content["problems"]:
        has(one, rule=str, path=str, file=str, line=int, message=str, fix=str)
        assert one["file"] == str(nets)
    lines = {line_of("self.scale = torch.ones(3)"), line_of("# mixed")}
    assert {one["line"] for one in content["problems"]} <= lines


@pytest.mark.usefixtures("cold_processes")
def test_a_clean_model_is_clean_and_the_command_needs_no_torch_of_its_own(nets: Path) -> None:
    code = (
        "import sys\nfrom devexplorer.core.cli.run import main\n"
        "code = main(['doctor', 'cli_doctor_nets:Clean', '--virtual', 'NVIDIA A10', '--train', '--github'])\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=nets.parent)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mpl", "did you mean mlp?"),
        ("cli_doctor_nets:leaves", "'cli_doctor_nets:leaves()' failed: it called os._exit(7)"),
        ("lenet --virtual T4 --device vgpu:3", "there is no device 'vgpu:3' here"),
    ],
)
def test_what_cannot_be_examined_is_one_line(nets: Path, refusal: Refusal, target: str, words: str) -> None:
    assert words in refusal("doctor", *target.split(), "--json")


def test_a_forward_that_hangs_is_ended_with_its_line(nets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "cli_doctor_nets:Hangs", "--input", "2x3", "--device", "cpu", "--timeout", "8"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    where = f"(at cli_doctor_nets.py, line {line_of('# hangs')})"
    assert f"devexplorer: 'cli_doctor_nets:Hangs' was not ready after 8 s and was ended {where}" in err.splitlines()


@needs_virtual_gpus
def test_what_could_not_be_checked_is_not_clean(nets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "cli_doctor_nets:Asks"]) == 2
    out, err = capfd.readouterr()
    assert "not checked" in out
    assert "could not be checked: the forward" in err
    assert main(["doctor", "cli_doctor_nets:Asks", "--allow-unchecked"]) == 0


def test_ctrl_c_ends_the_examination_with_130(nets: Path, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    command = [*CLI, "doctor", "cli_doctor_nets:Hangs", "--input", "2x3", "--device", "cpu"]
    started = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "TELL": str(told)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 120
    while not told.exists() and started.poll() is None and time.monotonic() < until:
        threading.Event().wait(0.02)
    child = psutil.Process(int(told.read_text()))
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    _, alive = psutil.wait_procs([child], timeout=30)
    assert not alive


def test_a_terminal_shows_progress_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, heard in ((Terminal(), "\r\x1b[K 30 %  moving?it\r\x1b[K"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        with waiting() as progress:
            progress.report(0.3, "moving\nit")
        assert stream.getvalue() == heard


@pytest.mark.skipif(os.name != "posix", reason="a terminal of its own is POSIX's")
def test_what_is_said_while_waiting_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    with open(master, "rb", buffering=0) as shown, open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(
            os, "get_terminal_size", lambda descriptor: os.terminal_size((12 if descriptor == slave else 99, 24))
        )
        with waiting() as progress:
            progress.report(0.3, "finding out what it takes")
        said = b""
        while said.count(b"\x1b[K") < 2:  # a terminal may give it in pieces
            said += shown.read(100)
        assert said == b"\r\x1b[K 30 %  find\r\x1b[K"
