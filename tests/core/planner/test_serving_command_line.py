"""`devexplorer fit --generate`: what is asked for, the JSON document, the tables, one line for invalid input."""

from __future__ import annotations

import io

import pytest
from fakes.command_line import Document, Refusal
from fakes.fits import GIB, SERVING
from msgspec.structs import replace
from rich.console import Console

from devexplorer.core.base import ProgressMonitor
from devexplorer.core.cli.run import main
from devexplorer.core.planner.commands import fit
from devexplorer.core.planner.commands.fit import print_serving
from devexplorer.core.planner.records import CacheLayers, Fit, FitBytes, FitCard, FitReport, FitSpec, ServingSpec

pytestmark = pytest.mark.usefixtures("warm_processes")

TWO_CARDS = replace(
    SERVING,
    cache=(
        CacheLayers(kind="full", layers=21, tokens=2560, bytes=GIB),
        CacheLayers(kind="sliding", layers=21, tokens=1024, bytes=GIB),
        CacheLayers(kind="state", layers=2, tokens=0, bytes=1024),
    ),
    decode_tokens_per_s_per_card=400.0,
    communication_share=0.125,
)
CARD = FitCard(
    gpu="NVIDIA L4", capacity_bytes=22 * GIB, bytes=FitBytes(parameters=8 * GIB, kv_cache=2 * GIB, context=GIB),
    reserved_bytes=11 * GIB, fits=True, rest=FitBytes(parameters=8 * GIB, kv_cache=2 * GIB, context=GIB),
)  # fmt: skip
TWO = Fit(
    gpu="2x NVIDIA L4", fits=True, cards=(CARD, CARD), largest_batch=40, step_seconds=10.49, samples_per_s=1.5,
    serving=TWO_CARDS,
)  # fmt: skip
ASKED = ServingSpec(generate=512, prompt=2048, tensor_parallel=2, kv_dtype="float8_e4m3fn")
REPORT = FitReport(
    spec=FitSpec(source="transformers:llama", gpus=("NVIDIA L4",), batch=16, serving=ASKED),
    fits=(TWO,),
    parameters=8_000_000_000,
    inputs="16x2048:int64",
    assumptions=("No card was asked.",),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[FitSpec]:
    """Requests, answered with one report."""
    specs: list[FitSpec] = []

    def planned(spec: FitSpec, progress: ProgressMonitor, seconds: float) -> FitReport:
        specs.append(spec)
        return REPORT

    monkeypatch.setattr(fit, "planned", planned)
    return specs


def test_what_is_asked_for(asked: list[FitSpec], capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--generate", "512", "--prompt", "2048", "--batch", "16", "--kv-dtype", "fp8", "--kv-block", "16",
        "--prefill-chunk", "1024", "--tensor-parallel", "4", "--weights", "gptq",
    ]  # fmt: skip
    assert main(["fit", "transformers:llama", "--gpu", "l4", *options]) == 0
    assert asked[0].batch == 16
    assert asked[0].serving == ServingSpec(
        generate=512,
        prompt=2048,
        kv_dtype="float8_e4m3fn",
        kv_block=16,
        tensor_parallel=4,
        prefill_chunk=1024,
        weights="gptq",
    )
    assert "simulated" in capsys.readouterr().out


def test_the_document(asked: list[FitSpec], document: Document) -> None:
    said = document("fit", "transformers:llama", "--gpu", "l4", "--generate", "512")
    assert said["schema"] == 1
    assert said["prefill_seconds"] == 0.25
    assert said["decode_tokens_per_s"] == 800.0
    assert said["kv_cache_bytes"] == 4 * GIB
    assert said["largest_context"] == 8192
    assert said["largest_batch"] == 40
    assert said["bytes"]["kv_cache"] == 4 * GIB
    assert said["simulated"] is True
    assert said["serving"]["prompt"] == 2048
    assert said["gpus"][0]["cache"][1] == {"kind": "sliding", "layers": 21, "tokens": 1024, "bytes": GIB}
    assert "serving" not in said["gpus"][0]


def printed(report: FitReport) -> str:
    out = io.StringIO()
    print_serving(Console(file=out, width=400), report, report.fits[0])
    return out.getvalue()


def test_the_tables() -> None:
    text = printed(REPORT)
    assert "16 sequences with prompts of 2,048 tokens and 512 more, KV cache in float8_e4m3fn, over 2 cards" in text
    assert "2x NVIDIA L4: fits; largest batch 40; longest context 8,192 tokens, all that the model has" in text
    assert "KV cache: 4.00 GiB; 21 layers with full attention, room for 2,560 tokens" in text
    assert "2 layers with a state" in text
    assert "first token after 200 to 300 ms (simulated)" in text
    assert "then 700 to 900 tokens/s, about 50.0 for each user, bound by bandwidth, 400 on each card" in text
    assert "12 % of the time cards exchange results (simulated)" in text
    assert "No card was asked." in text
    assert "KV cache" in text.splitlines()[5]


def test_many_cards_are_a_list_with_ranges() -> None:
    fits = (*(replace(TWO, gpu=f"card {number}") for number in range(4)), replace(TWO, fits=False, gpu="small"))
    text = printed(replace(REPORT, fits=fits))
    (row,) = (line for line in text.splitlines() if line.split()[:2] == ["card", "3"])
    assert "200 to 300 ms" in row
    assert "700 to 900" in row
    assert "does not fit;" in printed(replace(REPORT, fits=fits[-1:])), "no reason, no brackets"


def test_what_does_not_fit() -> None:
    small = replace(TWO_CARDS, prefill_seconds=None, decode_step_seconds=None, largest_context=0)
    fit_of_none = replace(TWO, fits=False, largest_batch=0, reason="it needs more", serving=small)
    text = printed(replace(REPORT, fits=(fit_of_none,)))
    assert "does not fit (it needs more); no batch fits; no context fits" in text
    assert "first token" not in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt", "5"], "--prompt is about generating text; give --generate N as well"),
        (["--kv-dtype", "fp8"], "--kv-dtype is about generating text"),
        (["--weights", "int4"], "--weights is about generating text"),
        (["--generate", "0"], "--generate '0' is not a whole number above 0"),
        (["--generate", "5", "--train"], "--train and --generate exclude each other"),
        (["--generate", "5", "--input", "2x3"], "--input and --generate exclude each other"),
        (["--generate", "5", "--input-copy"], "--input-copy and --generate exclude each other"),
        (["--generate", "5", "--kv-dtype", "int32"], "--kv-dtype"),
        (["--generate", "5", "--kv-dtype", "q4"], "there is no dtype 'q4'"),
        (["--generate", "5", "--tensor-parallel", "-1"], "--tensor-parallel '-1' is not a whole number above 0"),
    ],
)
def test_one_line_for_what_is_wrong(options: list[str], words: str, refusal: Refusal) -> None:
    assert words in refusal("fit", "transformers:llama", *options)
