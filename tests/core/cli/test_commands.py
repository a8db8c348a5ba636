"""The command line as a user runs it: documents, one line and exit code 2 for invalid input, clean pipes and Ctrl-C."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.command_line import (
    CLI,
    NONE,
    OPTIONAL_INT,
    OPTIONAL_TEXT,
    T4S,
    Document,
    Json,
    Refusal,
    has,
    strictly,
)
from fakes.nvml import FakeCard, FakeNvml

import devexplorer
from devexplorer.core.cli import env as env_module
from devexplorer.core.cli.arguments import cli_commands, window_options
from devexplorer.core.cli.run import main
from devexplorer.core.devices.cuda_visible_devices import VARIABLE
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.feature import features, offered_kinds

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left")


def check_device(info: Json) -> None:
    has(
        info, id=str, kind=str, name=str, uuid=OPTIONAL_TEXT, nvml_index=OPTIONAL_INT, cuda_ordinal=OPTIONAL_INT,
        usable=bool,
        reason=OPTIONAL_TEXT, memory_total_bytes=OPTIONAL_INT, memory_used_bytes=OPTIONAL_INT,
        compute_capability=OPTIONAL_TEXT,
        simulated=bool,
    )  # fmt: skip
    assert info["usable"] or info["reason"]
    assert info["simulated"] == (info["kind"] == "virtual")


# --- devices, env


@pytest.mark.parametrize("command", ["devices", "env"])
def test_devices_in_devices_and_in_env(document: Document, command: str) -> None:
    content = document(command, "--virtual", T4S)
    for info in content["devices"]:
        check_device(info)
    ids = {info["id"]: info for info in content["devices"]}
    assert ids["cpu"]["memory_total_bytes"] > 0
    assert [name for name in ids if ids[name]["simulated"]] == ["vgpu:0", "vgpu:1"]
    assert ids["vgpu:1"]["name"] == "Tesla T4"
    for problem in content["problems"]:
        has(problem, device=OPTIONAL_TEXT, field=OPTIONAL_TEXT, reason=str)


def test_env_says_what_a_bug_report_needs(document: Document, capfd: pytest.CaptureFixture[str]) -> None:
    content = document("env")
    public, _, _build = content["torch"]["torch_version"].partition("+")
    assert content["packages"]["torch"].partition("+")[0] == public
    assert content["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert main(["env"]) == 0
    text = capfd.readouterr().out
    assert content["packages"]["torch"] in text
    assert {found["torch"] for found in content["environments"]} >= {content["packages"]["torch"]}
    assert all(found["path"] in text for found in content["environments"])
    assert str(Path.home()) not in text


def test_env_writes_modes_as_people_do_and_says_whose_problem_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeNvml(FakeCard(uuid="GPU-aaaaaaaa-0000-0000-0000-000000000001"))
    fake.fail("nvmlDeviceGetPowerUsage", fake.NVML_ERROR_NOT_SUPPORTED)
    fake.fail("nvmlDeviceGetUUID", fake.NVML_ERROR_UNKNOWN)
    monkeypatch.setattr(env_module, "Nvml", lambda **_: Nvml(fake))
    assert main(["env"]) == 0
    out = capfd.readouterr().out
    assert "nvidia-smi 0: mig off, ecc on, compute_mode Default" in out
    assert "problem of nvml:0 uuid: not available" in out


def test_env_survives_a_variable_that_is_no_text(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_SESSION_TYPE", os.fsdecode(b"\xff"))
    assert document("env")["variables"]["XDG_SESSION_TYPE"] == "?"


# --- place


def check_placement(content: Json) -> None:
    has(content, target=str, rows=list, devices=dict)
    for row in content["rows"]:
        has(row, path=str, kind=str, shape=(list, NONE), dtype=str, device=str, bytes=int, tied_to=OPTIONAL_TEXT)
        assert row["kind"] in ("parameter", "buffer")
    for name, figures in content["devices"].items():
        has(figures, bytes=int, tensors=int)
        own = [row for row in content["rows"] if row["device"] == name and row["tied_to"] is None]
        assert figures == {"bytes": sum(row["bytes"] for row in own), "tensors": len(own)}, "a tied tensor counts once"


@pytest.mark.parametrize(("target", "rows"), [("mlp", 4), ("tied", 8), ("lazy-mlp", 4), ("list-pitfall", 0)])
def test_place(document: Document, target: str, rows: int) -> None:
    content = document("place", target)
    check_placement(content)
    assert content["target"] == target
    assert len(content["rows"]) == rows


def test_place_names_what_is_tied_lazy_and_not_registered(document: Document) -> None:
    tied = {row["path"]: row["tied_to"] for row in document("place", "tied")["rows"]}
    assert tied["4.weight"] == "2.weight"
    assert all(row["shape"] is None and row["bytes"] == 0 for row in document("place", "lazy-mlp")["rows"])
    loose = document("place", "list-pitfall")["unregistered"]
    assert loose[0]["path"] == "layers[0].weight"


@pytest.mark.parametrize("place_of_the_option", ["before", "after"])
def test_place_on_a_virtual_gpu(document: Document, place_of_the_option: str) -> None:
    virtual, command = ["--virtual", T4S], ["place", "mlp", "--device", "vgpu:1"]
    content = document(*(virtual + command if place_of_the_option == "before" else command + virtual))
    check_placement(content)
    assert {row["device"] for row in content["rows"]} == {"vgpu:1"}
    assert content["devices"]["vgpu:1"]["tensors"] == 4
    assert content["simulated"] == ["vgpu:1"]


@pytest.fixture
def user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user's package in the current folder; returns the name of its module."""
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(
        "import os, subprocess, sys\n"
        "from torch import nn\n"
        "print('hello from the import')\n"
        "os.write(1, b'hello from below\\n')\n"
        "subprocess.run([sys.executable, '-c', 'print(\"hello from a child\")'], check=True)\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        print('hello from the factory')\n"
        "        self.layer = nn.Linear(3, 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield "their_package.models"
    for name in [name for name in sys.modules if name.startswith("their_package")]:
        del sys.modules[name]


def test_what_user_code_prints_stays_out_of_the_document(user_code: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["place", f"{user_code}:Net", "--json", "--virtual", T4S, "--device", "vgpu:0"]) == 0
    out, err = capfd.readouterr()
    content = strictly(out)
    check_placement(content)
    assert [(row["path"], row["device"]) for row in content["rows"]] == [
        ("layer.weight", "vgpu:0"),
        ("layer.bias", "vgpu:0"),
    ]
    assert sorted(line.removeprefix("hello from ") for line in err.splitlines()) == [
        "a child",
        "below",
        "the factory",
        "the import",
    ]


# --- invalid input


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("frobnicate", "'frobnicate'"),
        ("devices --frob", "--frob"),
        ("bench", "BENCHMARK"),
        ("place", "TARGET"),
        ("place mlp --device", "--device"),
        ("place mpl", "did you mean mlp?"),
        ("place their.models", "no sample model"),
        ("place models:", "package.module:factory"),
        ("place :factory", "package.module:factory"),
        ("place mlp --device cuda:9", "there is no device 'cuda:9' here"),
        ("place mlp --device cpu:1", "only one cpu"),
        ("place mlp --device gpu!", "is no device"),
        (f"place {'n' * 300}.py:f", "there is no file"),
        (f"place {'n' * 300}/m.py:f", "there is no file"),
        ("place mlp --input ４x8", "unrecognized"),
    ],
)
def test_bad_input_gets_one_line(refusal: Refusal, argv: str, words: str) -> None:
    assert words in refusal(*argv.split())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("Tesla T5", "did you mean 'Tesla T4'"),
        ("0x Tesla T4", "write a whole number from 1 on"),
        ("65x Tesla T4", "64 at most"),
        ("1.5x Tesla T4", "write a whole number"),
        ("２x Tesla T4", "there is no profile"),
        ("", "no virtual GPU is named"),
        ("Tesla T4,", "no virtual GPU is named"),
    ],
)
def test_wrong_virtual_gpus_get_one_line(refusal: Refusal, spec: str, words: str) -> None:
    assert words in refusal("devices", "--virtual", spec)


@pytest.mark.parametrize("command", ["devices", "env", "bench matmul", "place mlp"])
def test_every_command_refuses_an_unknown_virtual_gpu(refusal: Refusal, command: str) -> None:
    assert "there is no profile 'Voodoo'; there are" in refusal(*command.split(), "--virtual", "Voodoo")


def test_sizes_that_name_none_are_no_sizes(refusal: Refusal) -> None:
    assert "''" in refusal("bench", "sweep", "--sizes", "")


def test_everything_that_is_wrong_is_in_the_one_line(refusal: Refusal) -> None:
    line = refusal("place", "mpl", "--device", "vgpu:1")
    assert all(words in line for words in ("mlp", "vgpu:1"))


def test_the_window_is_named_where_it_cannot_be_opened(refusal: Refusal) -> None:
    assert "PySide6" in refusal()
    assert "PySide6" in refusal("tour")


@pytest.mark.parametrize("kind", offered_kinds())
def test_the_help_of_a_benchmark_shows_what_it_takes_and_nothing_else(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", kind, "--help"])
    assert ended.value.code == 0
    shown = set(re.findall(r"(?m)^  (--[a-z-]+)", capfd.readouterr().out))
    takes = {option.flag for option in offered_kinds()[kind].options}
    away = {f"--{option.name}" for option in window_options() if option.away}
    kept = {"--tag"} if "history" in features() else set()
    assert shown == takes | away | kept | {"--virtual", "--python", "--no-store", "--json"}


def test_the_help_of_all_benchmarks_shows_every_option(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    shown = capfd.readouterr().out
    assert all(option.flag in shown for kind in offered_kinds().values() for option in kind.options)
    assert "bench BENCHMARK --help" in " ".join(shown.split())


@pytest.mark.parametrize("command", [name for name in cli_commands() if name != "bench"])
def test_the_help_of_every_command_can_be_shown(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"devexplorer {command}" in capfd.readouterr().out


def test_help_and_version_are_no_errors(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "devexplorer" in capfd.readouterr().out
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"devexplorer {devexplorer.__version__}\n"


# --- as a process


@pytest.mark.usefixtures("warm_processes")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize("argv", [["--version"], ["devices"], ["env", "--json"]])
def test_a_disk_that_is_full_is_one_line(argv: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*CLI, *argv], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "the output could not be written (no space left on device)" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_that_knows_few_characters_gets_no_traceback(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([*CLI, "place", "mlp"], capture_output=True, env=environment, timeout=60, check=True)
    assert ended.stderr == b""
    assert ("256×20" if encoding == "utf-8" else "256?20").encode() in ended.stdout


# --- beside cards


class _Cards(FakeNvml):
    """NVML with two cards."""

    def __init__(self) -> None:
        super().__init__(FakeCard(), FakeCard(uuid="GPU-2", name="NVIDIA A10"))


@pytest.mark.parametrize(
    ("argv", "code", "before", "says"),
    [
        (("place", "mlp", "--virtual", T4S), 0, "0", True),
        (("place", "mlp", "--virtual", T4S, "--json"), 0, None, False),
        (("place", "mlp", "--virtual", T4S, "--device", "cuda:0"), 2, None, True),
        (("place", "mlp", "--virtual", T4S), 0, "", False),
        (("place", "mlp"), 0, None, False),
    ],
)
def test_with_virtual_a_command_hides_the_cards_and_says_so_in_one_line(
    argv: tuple[str, ...],
    code: int,
    before: str | None,
    says: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """PyTorch cannot have both in one process."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")  # both are put back afterwards
    monkeypatch.setenv(VARIABLE, before or "0")
    if before is None:
        monkeypatch.delenv(VARIABLE)
    elif not before:
        monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(Nvml.__init__, "__defaults__", (_Cards(),))
    assert main([*argv]) == code
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == (1 if says or code else 0)
    if says:
        assert "Tesla T4, NVIDIA A10" in lines[0]
    assert (os.environ.get(VARIABLE) == "") == ("--virtual" in argv)
