"""The answer of a plan for serving: how fast, how long, and the command line that does the same."""

from devexplorer.core.planner.commands.plan_fit import answer_of, command_line
from devexplorer.core.planner.records import Fit, FitBytes, FitCard, FitReport, FitSpec, ServingFit, ServingSpec

GIB = 1 << 30
SPEC = FitSpec(
    source="transformers:llama", gpus=("NVIDIA L4",), batch=16, dtype="bfloat16",
    serving=ServingSpec(generate=512, prompt=2048, kv_dtype="float8_e4m3fn", tensor_parallel=2, weights="int4"),
)  # fmt: skip
SERVING = ServingFit(
    kv_cache_bytes=4 * GIB, kv_bytes_per_token=131_072, cache=(), largest_context=8192, prefill_seconds=0.25,
    prefill_seconds_low=0.2, prefill_seconds_high=0.3, decode_step_seconds=0.02, decode_tokens_per_s=800.0,
    decode_tokens_per_s_low=700.0, decode_tokens_per_s_high=900.0, decode_tokens_per_s_per_user=50.0,
    decode_bound="bandwidth",
)  # fmt: skip


def test_the_command_line_that_does_the_same():
    assert command_line(SPEC) == (
        "devexplorer fit transformers:llama --gpu 'NVIDIA L4' --batch 16 --dtype bfloat16 --generate 512 --prompt 2048"
        " --kv-dtype float8_e4m3fn --tensor-parallel 2 --weights int4"
    )


def test_the_answer():
    card = FitCard(
        gpu="NVIDIA L4", capacity_bytes=22 * GIB, bytes=FitBytes(parameters=8 * GIB, kv_cache=4 * GIB, context=GIB),
        reserved_bytes=13 * GIB, fits=True,
    )  # fmt: skip
    fit = Fit(gpu="NVIDIA L4", fits=True, cards=(card,), largest_batch=20, step_seconds=10.5, serving=SERVING)
    answer = answer_of(FitReport(spec=SPEC, fits=(fit,), inputs="16x2048:int64"), "")
    assert "Checked for 16 prompts of 2,048 tokens, 512 generated, in bfloat16" in answer.words
    words = "first token after 200 to 300 ms (simulated); then 700 to 900 tokens/s (simulated), about 50.0 for each"
    assert words in answer.words
    assert "longest context 8,192 tokens" in answer.words
    assert "ServingSpec(generate=512" in answer.code
    assert "import FitSpec, ServingSpec" in answer.code
    assert ("the KV cache", "4.00 GiB") in [(fact.label, fact.value) for fact in answer.facts]
