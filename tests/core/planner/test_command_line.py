"""`devexplorer fit`: does a model fit a card? The JSON document, the tables, one line for invalid input."""

import io
import subprocess
import sys

import pytest
from fakes.command_line import OPTIONAL_INT, OPTIONAL_NUMBER, has, strictly
from fakes.fits import SERVING
from msgspec.structs import replace
from rich.console import Console

from devexplorer.core.cli.run import main
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner.commands import fit
from devexplorer.core.planner.records import (
    BatchPoint,
    CacheLayers,
    Fit,
    FitBytes,
    FitCard,
    FitReport,
    FitSpec,
    Help,
    ServingSpec,
)

pytestmark = pytest.mark.usefixtures("warm_processes")

GIB = 1 << 30
PARTS = FitBytes(
    parameters=512, gradients=1024, optimizer=2048, activations=4096, library_workspace=8192, context=16384
)
REST = FitBytes(parameters=512, gradients=512, optimizer=2048, library_workspace=4096, context=16384)
KEYS = ("parameters", "buffers", "gradients", "optimizer", "activations", "library_workspace", "context", "total")


def answer(gpu, capacity, *, fits=True, cards=1):
    card = FitCard(gpu=gpu, capacity_bytes=capacity, bytes=PARTS, reserved_bytes=9 * 512, fits=fits, rest=REST)
    found = Fit(
        gpu=gpu if cards == 1 else f"{cards}x {gpu}", fits=fits, cards=(card,) * cards, largest_batch=0,
        reason="it needs more than the card has.",
    )  # fmt: skip
    if not fits:
        return found
    return replace(
        found, largest_batch=96, at_least=True, reason="", bound="bandwidth", board_power_w=80.0,
        step_seconds=0.002, step_seconds_low=0.0016, step_seconds_high=0.0025,
        samples_per_s=4000.0, samples_per_s_low=3200.0, samples_per_s_high=5000.0,
    )  # fmt: skip


T4, A10, P100 = answer("Tesla T4", 15 * GIB), answer("NVIDIA A10", 22 * GIB), answer("Tesla P100-PCIE-16GB", 16 * GIB)
NO_T4, NO_A10 = answer("Tesla T4", 15 * GIB, fits=False), answer("NVIDIA A10", 22 * GIB, fits=False)
SMALLER = Help(
    key="bfloat16", title="Parameters [and] activations in bfloat16", words="Half of it.", gpu="Tesla T4",
    total_bytes=20_000, saved_bytes=12_256, fits=True, largest_batch=200, step_seconds=0.001,
    step_seconds_low=0.0008, step_seconds_high=0.0013,
)  # fmt: skip
POINT = BatchPoint(
    batch=32, total_bytes=512, capacity_bytes=GIB, fits=True, step_seconds=0.4, step_seconds_low=0.25,
    step_seconds_high=0.5,
)  # fmt: skip
REPORT = FitReport(
    spec=FitSpec(source="lenet", gpus=("Tesla T4",), batch=8, train=True), fits=(T4,), helps=(SMALLER,),
    curve=(POINT, replace(POINT, batch=64, fits=False, step_seconds_low=None, step_seconds_high=None)),
    parameters=61_706, inputs="8x1x28x28", flop_per_step=1000, assumptions=("No card was asked.",),
)  # fmt: skip

L4 = FitCard(
    gpu="NVIDIA L4", capacity_bytes=22 * GIB, bytes=FitBytes(parameters=8 * GIB, kv_cache=2 * GIB, context=GIB),
    reserved_bytes=11 * GIB, fits=True, rest=FitBytes(parameters=8 * GIB, kv_cache=2 * GIB, context=GIB),
)  # fmt: skip
STATE = CacheLayers(kind="state", layers=2, tokens=0, bytes=1024)
TWO_L4 = Fit(
    gpu="2x NVIDIA L4", fits=True, cards=(L4, L4), largest_batch=40, step_seconds=10.49, samples_per_s=1.5,
    serving=replace(SERVING, cache=(*SERVING.cache, STATE), decode_tokens_per_s_per_card=400.0,
                    communication_share=0.125),
)  # fmt: skip
SERVED = replace(
    REPORT,
    spec=FitSpec(
        source="transformers:llama", gpus=("NVIDIA L4",), batch=16,
        serving=ServingSpec(generate=512, prompt=2048, tensor_parallel=2, kv_dtype="float8_e4m3fn"),
    ),
    fits=(TWO_L4,), helps=(), curve=(),
)  # fmt: skip


class Planner:
    """In the place of the planner's process."""

    def __init__(self):
        self.report = REPORT
        self.asked: list[tuple[FitSpec, float]] = []

    def __call__(self, spec, progress, seconds):
        self.asked.append((spec, seconds))
        return self.report


@pytest.fixture
def planner(monkeypatch):
    made = Planner()
    monkeypatch.setattr(fit, "planned", made)
    return made


def lines(report, width=1000):
    """What is printed, with single spaces."""
    out = io.StringIO()
    fit.print_report(Console(width=width, file=out, soft_wrap=True), report)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def check_parts(parts):
    """The contract's bytes: every part, and their sum."""
    assert parts is not None
    assert list(parts) == list(KEYS)
    assert all(type(parts[key]) is int and parts[key] >= 0 for key in KEYS)
    assert parts["total"] == sum(parts[key] for key in KEYS[:-1])


# --- requests


def test_options_become_the_specification(planner, tmp_path, monkeypatch, document):
    monkeypatch.chdir(tmp_path)
    document(
        "fit", "net:Net", "--gpu", "2x t4", "--gpu", "Tesla T4, nvidia a10", "--gpu", "2x Tesla T4", "--batch", "16",
        "--dtype", "bf16", "--autocast", "half", "--train", "--optimizer", "SGD", "--checkpointing", "--input", "4x3",
        "--tf32", "--channels-last", "--input-copy", "--curve", "--timeout", "9",
    )  # fmt: skip
    document("fit", "lenet", "--input", "32x1x28x28")
    document("fit", "lenet", "--virtual", "2x T4")
    document("fit", "lenet", "--virtual", "2x T4", "--gpu", "A10")
    document(
        "fit", "lenet", "--generate", "512", "--prompt", "2048", "--kv-dtype", "fp8", "--kv-block", "16",
        "--prefill-chunk", "1024", "--tensor-parallel", "4", "--weights", "gptq",
    )  # fmt: skip
    document("fit", "lenet", "--generate", "512")
    full = FitSpec(
        source="net:Net", folder=str(tmp_path), gpus=("2x Tesla T4", "Tesla T4, NVIDIA A10"), batch=16,
        dtype="bfloat16", autocast="float16", train=True, optimizer="sgd", checkpointing=True, inputs="4x3",
        tf32=True, channels_last=True, input_copy=True, curve=True, patience_seconds=60.0,
    )  # fmt: skip
    lenet = FitSpec(source="lenet", folder=str(tmp_path))
    serving = ServingSpec(
        generate=512, prompt=2048, kv_dtype="float8_e4m3fn", kv_block=16, tensor_parallel=4, prefill_chunk=1024,
        weights="gptq",
    )  # fmt: skip
    assert planner.asked == [
        (full, 9.0),
        (replace(lenet, batch=32, inputs="32x1x28x28"), 120.0),
        (replace(lenet, gpus=("2x Tesla T4",)), 120.0),
        (replace(lenet, gpus=("NVIDIA A10",)), 120.0),
        (replace(lenet, serving=serving), 120.0),
        (replace(lenet, serving=ServingSpec(generate=512)), 120.0),
    ]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("", "TARGET"),
        ("net:", "no package.module:factory"),
        ("lenet --gpu Voodoo", "there is no profile 'Voodoo'"),
        ("lenet --gpu v100", "could be 'Tesla V100-SXM2-16GB' or 'Tesla V100-SXM2-32GB'"),
        ("lenet --gpu 0xT4", "is no number of GPUs"),
        ("lenet --batch 0", "--batch '0' is not a whole number above 0"),
        ("lenet --batch 99999999999999999999", "--batch '99999999999999999999' is too large"),
        ("n\udcff.py:Net", "the target 'n\\udcff.py:Net' is not UTF-8 here"),
        ("lenet --dtype int8", "a model cannot become int8"),
        ("lenet --autocast float32", "there is no --autocast 'float32'; there are float16, bfloat16"),
        ("lenet --train --optimizer lion", "there is no --optimizer 'lion'; there are sgd, momentum, adam, adamw"),
        ("lenet --optimizer sgd", "--optimizer says how to train"),
        ("lenet --checkpointing", "--checkpointing says how to train"),
        ("lenet --input 3by4", "'3by4' is no input"),
        ("lenet --timeout soon", "--timeout: 'soon'"),
        ("lenet --prompt 5", "--prompt is about generating text; give --generate N as well"),
        ("lenet --kv-dtype fp8", "--kv-dtype is about generating text"),
        ("lenet --weights int4", "--weights is about generating text"),
        ("lenet --generate 0", "--generate '0' is not a whole number above 0"),
        ("lenet --generate 5 --train", "--train and --generate exclude each other"),
        ("lenet --generate 5 --input-copy", "--input-copy and --generate exclude each other"),
        ("lenet --generate 5 --kv-dtype int32", "--kv-dtype"),
        ("lenet --generate 5 --kv-dtype q4", "there is no dtype 'q4'"),
        ("lenet --generate 5 --tensor-parallel -1", "--tensor-parallel '-1' is not a whole number above 0"),
    ],
)
def test_wrong_input_gets_one_line(planner, refusal, argv, words):
    assert words in refusal("fit", *argv.split())
    assert not planner.asked, "nothing ran"


@pytest.mark.usefixtures("planner")
def test_everything_that_is_wrong_is_in_the_one_line(refusal):
    argv = (
        "net: --gpu Voodoo --gpu Banshee --batch b --dtype d --autocast a --optimizer o --input i --timeout t"
        " --virtual W"
    )
    line = refusal("fit", *argv.split())
    for words in ("net:", "Voodoo", "Banshee", "'b'", "'d'", "'a'", "'o'", "--train", "'i'", "'t'", "'W'"):
        assert words in line


# --- the document


@pytest.mark.usefixtures("planner")
def test_the_document_of_one_card(document):
    content = document("fit", "lenet", "--gpu", "Tesla T4")
    check_parts(content["bytes"])
    check_parts(content["rest"])
    known = {
        "target": "lenet", "gpu": "Tesla T4", "fits": True, "capacity_bytes": 15 * GIB, "largest_batch": 96,
        "at_least": True, "step_seconds": 0.002, "samples_per_s": 4000.0, "simulated": True,
        "reserved_bytes": 9 * 512, "used_bytes": 9 * 512 + 16384, "max_allocated_bytes": 31 * 512,
        "batch": 8, "dtype": None, "autocast": None, "train": True, "optimizer": "adamw", "checkpointing": False,
        "tf32": False, "channels_last": False, "input_copy": False, "inputs": "8x1x28x28", "parameters": 61_706,
        "flop_per_step": 1000, "assumptions": ["No card was asked."], "untried": [], "late": [], "calibrations": [],
        "board_power_w": 80.0, "samples_per_joule": 50.0, "samples_per_joule_low": 40.0, "samples_per_joule_high": 62.5,
    }  # fmt: skip
    assert {key: content[key] for key in known} == known
    assert (content["bytes"]["optimizer"], content["rest"]["gradients"]) == (2048, 512)
    assert "serving" not in content
    for key, name, value in (("helps", "key", "bfloat16"), ("curve", "batch", 32)):
        assert (content[key][0][name], content[key][0]["simulated"]) == (value, True)
    (only,) = content["gpus"]
    assert only == {key: content[key] for key in only}


def test_the_document_of_generated_text(planner, document):
    planner.report = SERVED
    said = document("fit", "transformers:llama", "--gpu", "l4", "--generate", "512")
    known = {
        "prefill_seconds": 0.25, "decode_tokens_per_s": 800.0, "kv_cache_bytes": 4 * GIB, "largest_context": 8192,
        "largest_batch": 40, "simulated": True,
    }  # fmt: skip
    assert {key: said[key] for key in known} == known
    assert said["bytes"]["kv_cache"] == 4 * GIB
    assert said["serving"]["prompt"] == 2048
    assert said["gpus"][0]["cache"][1] == {"kind": "full", "layers": 21, "tokens": 2560, "bytes": 3 * GIB}
    assert "serving" not in said["gpus"][0]


@pytest.mark.parametrize(
    ("fits", "gpu"),
    [((A10, P100, T4), "Tesla T4"), ((A10, P100, NO_T4), "Tesla P100-PCIE-16GB"), ((NO_T4, NO_A10), "NVIDIA A10")],
)
def test_of_all_profiles_the_smallest_that_fits_is_described_or_else_the_largest(planner, document, fits, gpu):
    planner.report = replace(REPORT, spec=replace(REPORT.spec, gpus=()), fits=fits)
    content = document("fit", "lenet")
    assert content["gpu"] == gpu
    assert [one["gpu"] for one in content["gpus"]] == [one.gpu for one in fits]


def test_what_could_not_be_split_has_no_figures(planner, document):
    card = FitCard(gpu="Tesla T4", capacity_bytes=15 * GIB, bytes=FitBytes(), reserved_bytes=0, fits=False)
    unsplit = Fit(gpu="2x Tesla T4", fits=False, cards=(card, card), reason="it has one block only")
    planner.report = replace(REPORT, fits=(unsplit,), helps=())
    content = document("fit", "lenet", "--gpu", "2x Tesla T4")
    assert (content["fits"], content["reason"]) == (False, "it has one block only")
    keys = ("bytes", "rest", "max_allocated_bytes", "reserved_bytes", "used_bytes", "largest_batch", "step_seconds")
    assert [content[key] for key in keys] == [None] * len(keys)
    assert [card["bytes"] for card in content["cards"]] == [None, None]
    assert "2x Tesla T4: does not fit (it has one block only)" in lines(planner.report)
    assert "2x Tesla T4 30.0 GiB — no — — — — it has one block only" in lines(
        replace(planner.report, fits=(unsplit,) * 3)
    )


# --- the tables


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            replace(REPORT, fits=(T4, answer("NVIDIA A10", 22 * GIB, cards=2, fits=False)), late=("NVIDIA L4",)),
            [
                "lenet, 61,706 parameters, training with AdamW, batch 8, inputs 8x1x28x28",
                "Tesla T4 NVIDIA A10 (1 of 2) NVIDIA A10 (2 of 2)",
                "parameters 512 B 512 B 512 B",
                "optimizer state 2.00 KiB 2.00 KiB 2.00 KiB",
                "workspaces of libraries 8.00 KiB 8.00 KiB 8.00 KiB",
                "total 31.50 KiB 31.50 KiB 31.50 KiB",
                "at rest 23.00 KiB 23.00 KiB 23.00 KiB",
                "capacity 15.00 GiB 22.00 GiB 22.00 GiB",
                "fits yes no no",
                "Tesla T4: fits",
                "largest batch 96 or more",
                "one step 1.6 to 2.5 ms, 3,200 to 5,000 samples/s (simulated), bound by memory bandwidth",
                "2x NVIDIA A10: does not fit (it needs more than the card has)",
                "no batch fits",
                "no time was left for NVIDIA L4; --timeout 240 or more plans for them, too",
                "what would help on Tesla T4",
                "Parameters [and] activations in bfloat16 19.53 KiB 11.97 KiB yes 200 800 µs to 1.3 ms",
                "over the batch on Tesla T4",
                "32 512 B yes 250 to 500 ms 64.0 to 128",
                "64 512 B no — —",
                "every time is simulated",
                "No card was asked.",
            ],
        ),
        (
            REPORT,
            [
                "Tesla T4 at rest",
                "gradients 1.00 KiB 512 B",
                "total 31.50 KiB 23.00 KiB",
                "memory_allocated (PyTorch) 15.50 KiB 7.00 KiB",
                "memory_reserved (PyTorch) 4.50 KiB 4.50 KiB",
                "in use (nvidia-smi) 20.50 KiB 20.50 KiB",
            ],
        ),
        (
            SERVED,
            [
                "transformers:llama, 61,706 parameters, 16 prompts of 2,048 tokens, 512 generated, KV cache in"
                " float8_e4m3fn, over 2 cards",
                "the KV cache 2.00 GiB 2.00 GiB".removeprefix("the "),
                "2x NVIDIA L4: fits",
                "largest batch 40",
                "longest context 8,192 tokens, all that the model has positions for",
                "KV cache 4.00 GiB, 21 layers with a sliding window and room for 1,024 tokens, 21 layers with full"
                " attention and room for 2,560 tokens, 2 layers with a state",
                "first token after 200 to 300 ms (simulated)",
                "then 700 to 900 tokens/s (simulated), about 50.0 for each user, 400 on each card, which exchange"
                " results 12 % of the time, bound by memory bandwidth",
            ],
        ),
    ],
    ids=["several cards", "one card", "generated text"],
)
def test_the_parts_of_a_few_cards_are_side_by_side(report, expected):
    printed = lines(report)
    for line in expected:
        assert line in printed, line
    assert not [line for line in printed if line.startswith("buffers")], "a part that no card has is no row"


def test_what_generates_no_text_says_why():
    small = replace(SERVING, prefill_seconds=None, decode_bound=None, largest_context=0)
    found = replace(TWO_L4, fits=False, largest_batch=0, reason="it needs more", serving=small)
    printed = lines(replace(SERVED, fits=(found,)))
    assert {"2x NVIDIA L4: does not fit (it needs more)", "no batch fits", "no context fits"} <= set(printed)
    assert not [line for line in printed if line.startswith("first token")]


def test_many_cards_are_a_list_with_the_parts_of_the_one_that_is_described():
    many = tuple(answer(f"Card {number}", number * GIB, fits=number > 3) for number in range(1, 7))
    spec = replace(REPORT.spec, gpus=(), train=False, dtype="float16", autocast="bfloat16")
    printed = lines(replace(REPORT, spec=spec, fits=many, helps=()))
    for line in (
        "lenet, 61,706 parameters, a forward without gradients in float16, autocast to bfloat16, batch 8, inputs"
        " 8x1x28x28",
        "gpu capacity needed fits largest batch one step samples/s share",
        "Card 3 3.0 GiB 31.50 KiB no 0 — — 0.0 %",
        "Card 4 4.0 GiB 31.50 KiB yes 96+ 1.6 to 2.5 ms 3,200 to 5,000 0.0 %",
        "every time is simulated",
        "Card 4 at rest",
    ):
        assert line in printed
    assert "Card 5" not in printed
    served = tuple(replace(TWO_L4, gpu=f"card {number}") for number in range(5))
    assert "card 3 22.0 GiB 11.00 GiB yes 40 200 to 300 ms 700 to 900 8,192" in lines(replace(SERVED, fits=served))


def test_the_list_keeps_what_matters_in_a_terminal_of_80_characters():
    cards = tuple(replace(A10, gpu="GeForce RTX 3070 Laptop GPU" if number else "NVIDIA A10") for number in range(6))
    out = io.StringIO()
    fit.print_report(Console(width=80, file=out, soft_wrap=True), replace(REPORT, fits=cards))
    shown = out.getvalue().partition("every time is simulated")[0].splitlines()
    assert max(map(len, shown)) <= 80
    rows = [" ".join(line.split()) for line in shown]
    assert "NVIDIA A10 22.0 GiB 31.50 KiB yes 96+ 1.6 to 2.5 ms" in rows
    assert sum("22.0 GiB 31.50 KiB yes 96+ 1.6 to 2.5 ms" in row for row in rows) == 6


# --- the planner itself


@pytest.mark.usefixtures("cold_processes")
def test_a_real_plan_is_the_contracts_document_and_needs_no_torch_here(tmp_path):
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
    assert content["bytes"]["optimizer"] == 0, "SGD without momentum keeps nothing"


@pytest.mark.parametrize(
    ("target", "words"), [("mpl", "did you mean mlp?"), ("net.py:Leaves", "ended its process itself with exit code 7")]
)
def test_targets_that_give_no_model_are_one_line(target, words, tmp_path, monkeypatch, refusal):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import os\ndef Leaves(): os._exit(7)\n")
    assert words in refusal("fit", target, "--gpu", "T4", "--json")
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.usefixtures("planner")
def test_it_prints_on_the_terminal(capfd):
    assert main(["fit", "lenet", "--gpu", "T4"]) == 0
    out, err = capfd.readouterr()
    assert (out.splitlines()[0].partition(",")[0], err) == ("lenet", "")
