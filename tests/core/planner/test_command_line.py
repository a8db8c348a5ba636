"""`devexplorer fit`: does a model fit a card? The JSON document, the tables, one line for invalid input."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.command_line import OPTIONAL_INT, OPTIONAL_NUMBER, Document, Json, Refusal, has, strictly
from msgspec.structs import replace
from rich.console import Console

from devexplorer.core.base import BadInput, ProgressMonitor
from devexplorer.core.cli.run import main
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner.commands import fit
from devexplorer.core.planner.commands.fit import print_report, verdict
from devexplorer.core.planner.records import Fit, FitBytes, FitCard, FitReport, FitSpec, Help

pytestmark = pytest.mark.usefixtures("warm_processes")

GIB = 1 << 30
PARTS = FitBytes(
    parameters=512, gradients=1024, optimizer=2048, activations=4096, library_workspace=8192, context=16384
)
REST = FitBytes(parameters=512, gradients=512, optimizer=2048, library_workspace=4096, context=16384)
KEYS = ("parameters", "buffers", "gradients", "optimizer", "activations", "library_workspace", "context", "total")


def answer(gpu: str, capacity: int, *, fits: bool = True, cards: int = 1, parts: FitBytes = PARTS) -> Fit:
    card = FitCard(gpu=gpu, capacity_bytes=capacity, bytes=parts, reserved_bytes=9 * 512, fits=fits, rest=REST)
    label = gpu if cards == 1 else f"{cards}x {gpu}"
    if not fits:
        return Fit(
            gpu=label, fits=False, cards=(card,) * cards, largest_batch=0, reason="it needs more than the card has."
        )
    return Fit(
        gpu=label,
        fits=True,
        cards=(card,) * cards,
        largest_batch=96,
        at_least=True,
        step_seconds=0.002,
        step_seconds_low=0.0016,
        step_seconds_high=0.0025,
        samples_per_s=4000.0,
        samples_per_s_low=3200.0,
        samples_per_s_high=5000.0,
        bound="bandwidth",
        board_power_w=80.0,
    )


T4, A10, P100 = answer("Tesla T4", 15 * GIB), answer("NVIDIA A10", 22 * GIB), answer("Tesla P100-PCIE-16GB", 16 * GIB)
SMALLER = Help(
    key="bfloat16", title="Parameters [and] activations in bfloat16", words="Half of it.", gpu="Tesla T4",
    total_bytes=20_000,
    saved_bytes=12_256, fits=True, largest_batch=200, step_seconds=0.001,
    step_seconds_low=0.0008, step_seconds_high=0.0013,
)  # fmt: skip
REPORT = FitReport(
    spec=FitSpec(source="lenet", gpus=("Tesla T4",), batch=8, train=True), fits=(T4,), helps=(SMALLER,),
    parameters=61_706,
    inputs="8x1x28x28", flop_per_step=1000, assumptions=("No card was asked.",),
)  # fmt: skip

Says = Callable[[FitReport], list[tuple[FitSpec, float]]]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Fake a report; returns the requests and time limits."""

    def answer_with(report: FitReport) -> list[tuple[FitSpec, float]]:
        asked: list[tuple[FitSpec, float]] = []

        def planned(spec: FitSpec, progress: ProgressMonitor, seconds: float) -> FitReport:
            asked.append((spec, seconds))
            return report

        monkeypatch.setattr(fit, "planned", planned)
        return asked

    return answer_with


def check_parts(parts: Json | None) -> None:
    """The contract's bytes: every part, and their sum."""
    assert parts is not None
    assert list(parts) == list(KEYS)
    assert all(type(parts[key]) is int and parts[key] >= 0 for key in KEYS)
    assert parts["total"] == sum(parts[key] for key in KEYS[:-1])


# --- requests


def test_options_become_the_specification(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Document
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = says(REPORT)
    document(
        "fit", "net:Net", "--gpu", "2x t4", "--gpu", "Tesla T4, nvidia a10", "--gpu", "2x Tesla T4", "--batch", "16",
        "--dtype", "bf16",
        "--autocast", "half", "--train", "--optimizer", "SGD", "--checkpointing", "--input", "4x3", "--timeout", "9",
    )  # fmt: skip
    document("fit", "lenet", "--input", "32x1x28x28")
    document("fit", "lenet")
    document("fit", "lenet", "--virtual", "2x T4")
    document("fit", "lenet", "--virtual", "2x T4", "--gpu", "A10")
    full = FitSpec(
        source="net:Net", folder=str(tmp_path), gpus=("2x Tesla T4", "Tesla T4, NVIDIA A10"), batch=16,
        dtype="bfloat16",
        autocast="float16", train=True, optimizer="sgd", checkpointing=True, inputs="4x3",
    )  # fmt: skip
    lenet = FitSpec(source="lenet", folder=str(tmp_path))
    assert asked == [
        (full, 9.0), (replace(lenet, batch=32, inputs="32x1x28x28"), 120.0), (lenet, 120.0),
        (replace(lenet, gpus=("2x Tesla T4",)), 120.0), (replace(lenet, gpus=("NVIDIA A10",)), 120.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("", "TARGET"),
        ("net:", "no package.module:factory"),
        ("lenet --gpu Voodoo", "there is no profile 'Voodoo'"),
        ("lenet --gpu v100", "could be 'Tesla V100-SXM2-16GB' or 'Tesla V100-SXM2-32GB'"),
        ("lenet --gpu 0xT4", "is no number of GPUs"),
        ("lenet --batch 0", "--batch '0' is not a whole number above 0"),
        ("lenet --batch many", "--batch 'many'"),
        ("lenet --batch 99999999999999999999", "--batch '99999999999999999999' is too large"),
        ("n\udcff.py:Net", "the target 'n\\udcff.py:Net' is not UTF-8 here"),
        ("lenet --dtype float33", "there is no dtype 'float33'"),
        ("lenet --dtype int8", "a model cannot become int8"),
        ("lenet --autocast float32", "there is no --autocast 'float32'; there are float16, bfloat16"),
        ("lenet --train --optimizer lion", "there is no --optimizer 'lion'; there are sgd, momentum, adam, adamw"),
        ("lenet --optimizer sgd", "--optimizer says how to train"),
        ("lenet --checkpointing", "--checkpointing says how to train"),
        ("lenet --input 3by4", "'3by4' is no input"),
        ("lenet --timeout soon", "--timeout: 'soon'"),
        ("lenet --virtual Voodoo", "there is no profile 'Voodoo'"),
    ],
)
def test_wrong_input_gets_one_line(says: Says, refusal: Refusal, argv: str, words: str) -> None:
    asked = says(REPORT)
    assert words in refusal("fit", *argv.split())
    assert not asked, "nothing ran"


def test_everything_that_is_wrong_is_in_the_one_line(says: Says, refusal: Refusal) -> None:
    says(REPORT)
    argv = (
        "net: --gpu Voodoo --gpu Banshee --batch b --dtype d --autocast a --optimizer o --input i --timeout t"
        " --virtual W"
    )
    line = refusal("fit", *argv.split())
    assert all(
        words in line
        for words in ("net:", "Voodoo", "Banshee", "'b'", "'d'", "'a'", "'o'", "--train", "'i'", "'t'", "'W'")
    )


def test_what_could_not_be_planned_is_one_line_and_no_document(
    monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    def planned(*_: object) -> FitReport:
        raise BadInput("there is no file net.py")

    monkeypatch.setattr(fit, "planned", planned)
    for form in ((), ("--json",)):
        assert "there is no file net.py" in refusal("fit", "net.py:Net", *form)


# --- the document


def test_the_document_of_one_card(says: Says, document: Document) -> None:
    says(REPORT)
    content = document("fit", "lenet", "--gpu", "Tesla T4")
    check_parts(content["bytes"])
    assert {key: content[key] for key in ("target", "gpu", "fits", "capacity_bytes", "largest_batch", "at_least")} == {
        "target": "lenet", "gpu": "Tesla T4", "fits": True, "capacity_bytes": 15 * GIB, "largest_batch": 96,
        "at_least": True}  # fmt: skip
    assert content["bytes"]["optimizer"] == 2048
    assert content["bytes"]["total"] == 512 + 1024 + 2048 + 4096 + 8192 + 16384
    check_parts(content["rest"])
    assert (content["rest"]["gradients"], content["rest"]["total"]) == (512, 512 + 512 + 2048 + 4096 + 16384)
    assert content["max_allocated_bytes"] == content["bytes"]["total"] - 16384
    assert content["used_bytes"] == 9 * 512 + 16384
    assert [content[key] for key in ("step_seconds", "samples_per_s", "simulated", "reserved_bytes")] == [
        0.002,
        4000.0,
        True,
        9 * 512,
    ]
    assert [content[key] for key in ("batch", "dtype", "autocast", "train", "optimizer", "checkpointing", "inputs",
                                     "parameters")] == [
        8, None, None, True, "adamw", False, "8x1x28x28", 61_706]  # fmt: skip
    assert content["assumptions"] == ["No card was asked."]
    assert content["untried"] == []
    energy = [content[f"samples_per_joule{end}"] for end in ("", "_low", "_high")]
    assert (energy, content["board_power_w"]) == ([50.0, 40.0, 62.5], 80.0)
    assert content["curve"] == []
    (helps,) = content["helps"]
    assert helps["key"] == "bfloat16"
    assert helps["simulated"] is True
    (only,) = content["gpus"]
    assert only == {key: content[key] for key in only}


@pytest.mark.parametrize(
    ("fits", "gpu"),
    [
        ((A10, P100, T4), "Tesla T4"),
        ((A10, P100, answer("Tesla T4", 15 * GIB, fits=False)), "Tesla P100-PCIE-16GB"),
        ((answer("Tesla T4", 15 * GIB, fits=False), answer("NVIDIA A10", 22 * GIB, fits=False)), "NVIDIA A10"),
    ],
)
def test_of_all_profiles_the_smallest_that_fits_is_described_or_else_the_largest(
    says: Says, document: Document, fits: tuple[Fit, ...], gpu: str
) -> None:
    says(replace(REPORT, spec=replace(REPORT.spec, gpus=()), fits=fits))
    content = document("fit", "lenet")
    assert content["gpu"] == gpu
    assert [one["gpu"] for one in content["gpus"]] == [one.gpu for one in fits]


def test_what_could_not_be_split_has_no_figures(
    says: Says, document: Document, capfd: pytest.CaptureFixture[str]
) -> None:
    card = FitCard(gpu="Tesla T4", capacity_bytes=15 * GIB, bytes=FitBytes(), reserved_bytes=0, fits=False)
    unsplit = Fit(gpu="2x Tesla T4", fits=False, cards=(card, card), reason="it has one block only")
    says(replace(REPORT, fits=(unsplit,), helps=()))
    content = document("fit", "lenet", "--gpu", "2x Tesla T4")
    assert content["fits"] is False
    keys = ("bytes", "rest", "max_allocated_bytes", "reserved_bytes", "used_bytes", "largest_batch", "step_seconds")
    assert [content[key] for key in keys] == [None] * len(keys)
    assert [card["bytes"] for card in content["cards"]] == [None, None]
    assert content["reason"] == "it has one block only"
    assert main(["fit", "lenet"]) == 0
    assert "2x Tesla T4: does not fit (it has one block only)" in capfd.readouterr().out


# --- the tables


def test_the_parts_of_a_few_cards_are_side_by_side(says: Says, capfd: pytest.CaptureFixture[str]) -> None:
    says(replace(REPORT, fits=(T4, answer("NVIDIA A10", 22 * GIB, cards=2, fits=False)), late=("NVIDIA L4",)))
    assert main(["fit", "lenet", "--gpu", "T4", "--gpu", "2x A10"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "lenet, 61,706 parameters, training with adamw, batch 8 (8x1x28x28)"
    for line in (
        "Tesla T4 NVIDIA A10 (1 of 2) NVIDIA A10 (2 of 2)",
        "parameters 512 B 512 B 512 B",
        "optimizer state 2.00 KiB 2.00 KiB 2.00 KiB",
        "workspaces of libraries 8.00 KiB 8.00 KiB 8.00 KiB",
        "total 31.50 KiB 31.50 KiB 31.50 KiB",
        "at rest 23.00 KiB 23.00 KiB 23.00 KiB",
        "capacity 15.00 GiB 22.00 GiB 22.00 GiB",
        "fits yes no no",
        "Tesla T4: fits; largest batch 96 or more; one step 1.6 to 2.5 ms, 3,200 to 5,000 samples/s, bound by bandwidth"
        " (simulated)",
        "2x NVIDIA A10: does not fit (it needs more than the card has); no batch fits",
        "no time was left for NVIDIA L4; --timeout 240 or more plans for them, too",
        "what would help on Tesla T4",
        "Parameters [and] activations in bfloat16 19.53 KiB 11.97 KiB yes 200 800 µs to 1.3 ms",
        "every time is simulated",
        "No card was asked.",
    ):
        assert line in lines, line
    assert not [line for line in lines if line.startswith("buffers")], "a part that no card has is no row"


def test_many_cards_are_a_list_with_the_parts_of_the_one_that_is_described(
    says: Says, capfd: pytest.CaptureFixture[str]
) -> None:
    many = tuple(answer(f"Card {number}", number * GIB, fits=number > 3) for number in range(1, 7))
    says(
        replace(
            REPORT,
            spec=replace(REPORT.spec, gpus=(), train=False, dtype="float16", autocast="bfloat16"),
            fits=many,
            helps=(),
        )
    )
    assert main(["fit", "lenet"]) == 0
    lines = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    assert lines[0] == "lenet, 61,706 parameters, forward in float16, autocast to bfloat16, batch 8 (8x1x28x28)"
    assert "gpu capacity needed fits largest batch one step share samples/s" in lines
    assert "Card 3 3.0 GiB 31.50 KiB no 0 — 0.0 % —" in lines
    assert "Card 4 4.0 GiB 31.50 KiB yes 96+ 1.6 to 2.5 ms 0.0 % 3,200 to 5,000" in lines
    assert "every time is simulated" in lines
    assert lines.count("Card 4 at rest") == 1, "its parts"
    for line in (
        "gradients 1.00 KiB 512 B",
        "total 31.50 KiB 23.00 KiB",
        "memory_allocated (PyTorch) 15.50 KiB 7.00 KiB",
        "memory_reserved (PyTorch) 4.50 KiB 4.50 KiB",
        "in use (nvidia-smi) 20.50 KiB 20.50 KiB",
    ):
        assert line in lines, line
    assert "Card 5" not in lines


def test_the_list_keeps_what_matters_in_a_terminal_of_80_characters() -> None:
    out = Console(width=80, file=io.StringIO(), soft_wrap=True)
    cards = tuple(replace(A10, gpu="GeForce RTX 3070 Laptop GPU" if number else "NVIDIA A10") for number in range(6))
    print_report(out, replace(REPORT, fits=cards), A10)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(len(line) for line in lines[: lines.index("every time is simulated")]) <= 80
    rows = [" ".join(line.split()) for line in lines]
    assert "NVIDIA A10 22.0 GiB 31.50 KiB yes 96+ 1.6 to 2.5 ms" in rows
    assert sum("22.0 GiB 31.50 KiB yes 96+ 1.6 to 2.5 ms" in row for row in rows) == 6


def test_every_time_in_a_verdict_is_said_to_be_simulated() -> None:
    assert verdict(T4).endswith("(simulated)")
    assert "simulated" not in verdict(answer("Tesla T4", GIB, fits=False))


# --- the planner itself


@pytest.mark.usefixtures("cold_processes")
def test_a_real_plan_is_the_contracts_document_and_needs_no_torch_here(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom devexplorer.core.cli.run import main\n"
        "code = main(['fit', 'mlp', '--gpu', 'Tesla T4', '--train', '--optimizer', 'sgd', '--batch', '4', '--json'])\n"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    content = strictly(ended.stdout)
    has(content, target=str, gpu=str, fits=bool, capacity_bytes=int, bytes=dict, largest_batch=OPTIONAL_INT)
    has(content, step_seconds=OPTIONAL_NUMBER, simulated=bool, gpus=list, helps=list, assumptions=list)
    check_parts(content["bytes"])
    assert content["fits"]
    assert content["capacity_bytes"] == load_profiles()["Tesla T4"].usable_bytes
    assert content["bytes"]["parameters"] >= 4 * (20 * 256 + 256 + 256 * 10 + 10)
    assert content["bytes"]["gradients"] >= 4 * (20 * 256 + 256 + 256 * 10 + 10)
    assert content["bytes"]["optimizer"] == 0, "SGD without momentum keeps nothing"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mpl", "did you mean mlp?"),
        ("net.py:Leaves", "ended its process itself with exit code 7"),
    ],
)
def test_targets_that_give_no_model_are_one_line(
    target: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import os\ndef Leaves(): os._exit(7)\n")
    assert words in refusal("fit", target, "--gpu", "T4", "--json")
    assert not os.path.exists(tmp_path / "__pycache__")
