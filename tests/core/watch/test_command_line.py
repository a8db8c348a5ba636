"""`devexplorer watch` as a user runs it: one line for invalid input, clean pipes and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from fakes.command_line import CLI, Refusal, strictly

from devexplorer.core.cli.run import main

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left")


def test_watch_without_a_terminal_prints_every_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--count", "2", "--interval", "0.01"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("cpu")]) == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--count 0", "--count '0' is not a whole number above 0"),
        ("--count ²", "--count '²' is not a whole number above 0"),
        ("--interval 0", "--interval: 0 seconds"),
        ("--interval 1e300", "at most"),
        ("--interval often", "--interval: 'often' is not a number"),
        ("--interval ２", "--interval: '２' is not a number"),
        ("--interval 1e-12", "too short"),
        (f"--record {'n' * 300}/file", "there is no folder"),
    ],
)
def test_bad_input_gets_one_line(refusal: Refusal, argv: str, words: str) -> None:
    assert words in refusal("watch", *argv.split())


def test_everything_that_is_wrong_is_in_the_one_line(refusal: Refusal) -> None:
    line = refusal("watch", "--interval", "0", "--count", "x", "--virtual", "Voodoo")
    assert all(words in line for words in ("--interval", "--count", "there is no profile 'Voodoo'; there are"))


def test_a_system_that_lets_no_thread_start_is_one_line(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert "no further thread" in refusal("watch", "--count", "1")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [*CLI, "watch", "--json", "--interval", "0.02"]
    # No buffer: what it had read beyond the first line would be missing from the rest.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        strictly(process.stdout.readline().decode())
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_disk_that_is_full_is_one_line() -> None:
    argv = [*CLI, "watch", "--count", "1", "--interval", "0.02"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "the output could not be written (no space left on device)" in done.stderr


def ignoring() -> None:
    """What a shell does to a background program of a script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_a_command_in_the_background_of_a_script_hears_of_ctrl_c_too() -> None:
    argv = [*CLI, "watch", "--json", "--interval", "0.02"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=ignoring) as process:
        assert process.stdout is not None
        strictly(process.stdout.readline().decode())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"")


def test_watch_imports_neither_torch_nor_what_only_some_of_it_needs(nvml_library_path: Path) -> None:
    code = (
        "import runpy, sys\nsys.argv[1:] = ['watch', '--count', '1', '--json']\ntry:\n"
        " runpy.run_module('devexplorer.core.cli', run_name='__main__')\nexcept SystemExit as ended:\n"
        " assert ended.code == 0\nheavy = {'torch', 'numpy', 'rich', 'psutil', 'prometheus_client', 'dataclasses',"
        " 'inspect'} & set(sys.modules)\nassert not heavy, heavy"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library_path.parent), "FAKE_NVML_CARDS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kind = "nvml" if torch.version.cuda is None else "cuda"
    assert [line["device"] for line in lines] == ["cpu", *(f"{kind}:{number}" for number in range(2))]
    card = lines[1]
    assert card["power_w"] is not None
    assert card["nvlink_tx_bytes_s"] is not None, "a rate in a single reading"
    empty = {field for field, value in card.items() if value is None} - {"problem", "age_s"}
    assert empty == set(card["unavailable"]), "every null has its reason"
