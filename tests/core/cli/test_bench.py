"""`bench matmul` and what all benchmarks share, as a user runs them: documents, error lines, Ctrl-C, the history."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from fakes.command_line import T4S, Document, Json, Refusal, has, strictly

from devexplorer.core.benchmark.kind import run_documents
from devexplorer.core.cli import bench as bench_run
from devexplorer.core.cli.run import main
from devexplorer.core.history.store import Store, default_path
from devexplorer.core.virtual.backend import install

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left")


def check_run(run: Json) -> None:
    has(run, device=str, dtype=str, shape=list, mode=str, tflops=dict, iterations=int, seconds=float, simulated=bool)
    has(run["tflops"], median=float, p20=float, p80=float)
    assert 0 < run["tflops"]["p20"] <= run["tflops"]["median"] <= run["tflops"]["p80"]
    assert run["iterations"] > 0
    assert run["simulated"] == run["device"].startswith("vgpu")


def test_bench_of_several_devices_one_after_the_other_each_once(document: Document) -> None:
    argv = [
        "bench",
        "matmul",
        "--virtual",
        T4S,
        "--device",
        "cpu",
        "vgpu:1",
        "--device",
        "CPU",
        "--size",
        "8x16x32",
        "--iterations",
        "7",
    ]
    runs = document(*argv)["runs"]
    assert [run["device"] for run in runs] == ["cpu", "vgpu:1"], "cpu and CPU are one device"
    for run in runs:
        check_run(run)
        assert run["shape"] == [8, 16, 32]
        assert run["iterations"] == 7


def test_bench_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bench", "matmul", "--virtual", T4S, "--device", "vgpu:0", "--size", "64", "--iterations", "100000"]) == 0
    )
    head, row = capfd.readouterr().out.splitlines()
    assert "TFLOP/s" in head
    assert all(word in row for word in ("vgpu:0", "64×64×64", "100,000", "simulated")), (
        "nothing is cut off where nobody looks"
    )


@pytest.mark.parametrize("mode", ["live", "burst", "sustained"])
@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_bench_in_every_mode(document: Document, device: str, mode: str) -> None:
    argv = [
        "bench",
        "matmul",
        "--virtual",
        "H200",
        "--device",
        device,
        "--size",
        "32",
        "--seconds",
        "0.2",
        "--mode",
        mode,
    ]
    (run,) = document(*argv, "--batch", "2", "--transpose", "b")["runs"]
    check_run(run)
    assert (run["mode"], run["batch"], run["transpose_a"], run["transpose_b"]) == (mode, 2, False, True)
    parts = run["parts_tflops"]
    assert parts is None if mode != "sustained" else len(parts) == 8


def test_bench_on_a_card_with_published_figures_says_what_they_are(
    document: Document, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "bench",
        "matmul",
        "--virtual",
        "H200",
        "--device",
        "vgpu:0",
        "--dtype",
        "bf16",
        "--size",
        "1536x2816x40960",
        "--mode",
        "burst",
    ]
    (run,) = document(*argv)["runs"]
    assert (run["datasheet_tflops"], run["published_tflops"]) == (989, 850)
    assert run["tflops"]["median"] == pytest.approx(755, rel=0.02), "what the card was published to hold"
    assert main(argv) == 0
    assert "75 % of datasheet, 87 % of the best published" in capfd.readouterr().out


# --- the history


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The history file of commands in this test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return default_path()


def test_every_run_is_kept_with_its_conditions_and_tags(document: Document, history: Path) -> None:
    argv = ["bench", "matmul", "--virtual", "t4", "--device", "cpu", "vgpu:0", "--size", "16", "--iterations", "5"]
    runs = document(*argv, "--tag", "before", "--tag", "the  change")["runs"]
    with Store(history) as store:
        kept = sorted(store.runs(), key=lambda run: run.id)
    assert [run.result.spec.device for run in kept] == ["cpu", "vgpu:0"]
    assert [run.result.simulated for run in kept] == [False, True]
    assert {run.tags for run in kept} == {("before", "the change")}
    assert run_documents(kept[0].result, kept[0].conditions)[0] == runs[0]


def test_no_run_is_stored_unless_wanted(document: Document, history: Path) -> None:
    document("bench", "matmul", "--size", "16", "--iterations", "5", "--no-store")
    assert not history.exists()


def test_a_history_that_cannot_be_written_is_said_and_costs_no_figure(
    history: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    history.parent.write_text("a file where the folder should be")
    assert main(["bench", "matmul", "--size", "16", "--iterations", "5", "--json"]) == 0
    out, err = capfd.readouterr()
    (run,) = strictly(out)["runs"]
    check_run(run)
    assert str(history) in err
    assert "import that file later" in err
    assert all(line.startswith("devexplorer: ") for line in err.splitlines())


# --- invalid input


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("bench matmul --device vgpu:0", "there is no device 'vgpu:0' here"),
        ("bench matmul --device vgpu:7 --virtual t4", "there are cpu, vgpu:0"),
        ("bench matmul --device cpu:1", "write 'cpu'"),
        ("bench matmul --dtype float31", "there is no dtype 'float31'"),
        ("bench matmul --dtype complex64", "does not measure complex64"),
        ("bench matmul --dtype tf32", "take float32"),
        ("bench matmul --dtype fp8 --virtual t4 --device vgpu:0", "Tesla T4 has no float8_e4m3fn unit"),
        ("bench matmul --size 0", "at least 1"),
        ("bench matmul --size -5", "at least 1"),
        ("bench matmul --size 64x64", "MxNxK"),
        ("bench matmul --size 1e3", "whole number"),
        ("bench matmul --size nan", "whole number"),
        ("bench matmul --size ²", "whole number"),
        (f"bench matmul --size {'9' * 5000}", "whole number"),
        ("bench matmul --size 1000001", "the largest side is 1000000"),
        ("bench matmul --size 999999", "needs 10.91 TiB on cpu"),
        ("bench matmul --seconds 0", "above 0"),
        ("bench matmul --seconds -1", "above 0"),
        ("bench matmul --seconds nan", "above 0"),
        ("bench matmul --seconds inf", "above 0"),
        ("bench matmul --seconds soon", "is not a number of seconds"),
        ("bench matmul --iterations 0", "whole number above 0"),
        ("bench matmul --iterations ²", "whole number above 0"),
        ("bench matmul --iterations 1.5", "whole number above 0"),
        ("bench matmul --mode slow", "there are live, burst, sustained"),
        ("bench matmul --batch 0", "whole number above 0"),
        ("bench matmul --dtype fp8 --virtual H200 --device vgpu:0 --size 100", "16"),
        ("bench frobnicate", "there is no benchmark 'frobnicate'"),
    ],
)
def test_bad_input_gets_one_line(refusal: Refusal, argv: str, words: str) -> None:
    assert words in refusal(*argv.split())


def test_everything_that_is_wrong_is_in_the_one_line(refusal: Refusal) -> None:
    argv = (
        "bench matmul --device cpu:1 cuda:3 --size 0 --dtype foo --seconds nan --iterations x --mode fast --train"
        " --virtual t4"
    )
    line = refusal(*argv.split(), "--tag", " ")
    for words in (
        "only one cpu",
        "'cuda:3'",
        "side of 0",
        "'foo'",
        "--seconds: nan",
        "--iterations 'x'",
        "'fast'",
        "--train",
        "tag cannot be empty",
    ):
        assert words in line


def test_a_product_that_does_not_fit_is_refused_before_anything_is_allocated(refusal: Refusal) -> None:
    line = refusal(
        "bench", "matmul", "--virtual", T4S, "--device", "cpu", "vgpu:1", "--size", "70000", "--iterations", "1"
    )
    assert "needs 54.76 GiB on vgpu:1" in line
    sample = install().allocator_sample("vgpu:1", 0.0)
    assert (sample.peak_allocated_bytes, sample.reserved_bytes) == (0, 0)


# --- Ctrl-C


def test_ctrl_c_stops_a_benchmark_and_keeps_what_was_measured(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(bench_run, "_show", interrupt)  # called when the first block was measured
    argv = [
        "bench",
        "matmul",
        "--virtual",
        "t4",
        "--device",
        "cpu",
        "vgpu:0",
        "--size",
        "64",
        "--seconds",
        "600",
        "--json",
    ]
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "default_int_handler", lambda *_: None)  # a second Ctrl-C would end it at once
    assert main(argv) == 130
    assert signal.getsignal(signal.SIGINT) is before
    out, err = capfd.readouterr()
    assert err == ""
    (run,) = strictly(out)["runs"]
    check_run(run)
    assert run["stopped"] is True


SLOW = """
import sys
import torch
from devexplorer.core.benchmark import matmul
from devexplorer.core.cli.run import main
operands = matmul.operands
def said(m, n, k, *rest, **more):
    if m == 2048:
        print("computing", file=sys.stderr, flush=True)
    return operands(m, n, k, *rest, **more)
matmul.operands = said
torch.backends.mkldnn.enabled = False  # a CPU with float16 in its instructions would not take a minute
sys.exit(main(["bench", "matmul", "--dtype", "float16", "--size", "2048", "--seconds", "60", "--json"]))
"""


def test_a_second_ctrl_c_does_not_wait_for_a_product_that_takes_a_minute() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"computing\n"
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once would be one
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == b"", "no traceback, and torch does not abort the process"
