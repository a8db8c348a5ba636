"""Whole answers about generated text: what a card holds, what fits, what is refused."""

import json
import struct
from functools import cache

import pytest
from fakes.serving import DEEPSEEK, GPT2, LLAMA, MAMBA
from msgspec.structs import replace

from devexplorer.core.base import BadInput
from devexplorer.core.planner.records import FitSpec, ServingSpec
from devexplorer.core.planner.serving.calculator import plan_serving as plan
from devexplorer.core.planner.serving.storage import CacheLayout, LayerCache
from devexplorer.core.planner.trace import PACKED

pytest.importorskip("transformers.cache_utils")
pytestmark = pytest.mark.usefixtures("virtual")

BIG = "transformers:llama?hidden_size=4096&num_hidden_layers=32&num_key_value_heads=8&max_position_embeddings=100000"


def asked(source=LLAMA, gpu="Tesla T4", **serving):
    options = {"generate": 64, "prompt": 100, **serving}
    wanted = ServingSpec(**options)
    return FitSpec(source=source, gpus=(gpu,), batch=4, dtype="float16", serving=wanted, patience_seconds=600.0)


def as_asked(spec):
    """The plan of that batch alone: nothing larger is looked for, which takes most of the time."""
    return plan(replace(spec, search=False))


@cache
def read(spec):
    """The plan, for tests that only read it."""
    return plan(spec)


def test_the_answer_for_one_card():
    report = read(asked())
    (fit,) = report.fits
    serving = fit.serving
    token = 5 * 2 * 4 * 8 * 2
    assert serving.kv_bytes_per_token == token
    assert serving.kv_cache_bytes == 4 * 164 * token
    assert fit.bytes.kv_cache == serving.kv_cache_bytes  # multiples of 512 B
    assert fit.bytes.parameters >= report.parameters * 2
    assert fit.fits
    assert report.inputs == "4x100:int64"
    assert report.simulated
    assert serving.decode_tokens_per_s == pytest.approx(4 / serving.decode_step_seconds)
    assert serving.decode_tokens_per_s_per_user == pytest.approx(1 / serving.decode_step_seconds)
    assert fit.step_seconds == pytest.approx(serving.prefill_seconds + 63 * serving.decode_step_seconds)
    assert fit.samples_per_s == pytest.approx(4 / fit.step_seconds)
    assert serving.communication_share is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("transformers:whisper?decoder_layers=2&d_model=64&decoder_attention_heads=4", True),
        ("transformers:bart?decoder_layers=2&d_model=64&decoder_attention_heads=4&head=causal-lm", True),
        (LLAMA, False),
    ],
)
def test_a_decoder_that_is_planned_without_its_encoder_says_so(source, said):
    report = as_asked(asked(source, generate=4, prompt=4))
    assert any("Left out are the encoder" in each for each in report.assumptions) == said


def test_the_largest_batch_fits_and_one_more_does_not():
    """Each is planned for itself, by a run."""
    largest = read(asked(BIG)).fits[0].largest_batch
    assert [as_asked(replace(asked(BIG), batch=largest + more)).fits[0].fits for more in (0, 1)] == [True, False]


def test_the_longest_context_fits_and_one_more_token_does_not():
    spec = asked(BIG, generate=64, prompt=64)
    serving = plan(spec).fits[0].serving
    assert serving.context_limit == "memory"
    longest = serving.largest_context
    for length, fits in ((longest, True), (longest + 1, False)):
        changed = replace(spec, search=False, serving=replace(spec.serving, prompt=length - 64))
        (fit,) = plan(changed).fits
        assert fit.fits is fits
        assert (fit.largest_batch, fit.serving.largest_context) == (None, None), "nothing was looked for"


def test_positions_end_the_context():
    serving = read(asked()).fits[0].serving
    assert (serving.largest_context, serving.context_limit) == (2048, "positions")


def test_nothing_fits():
    report = plan(asked(BIG.replace("layers=32", "layers=200")))
    (fit,) = report.fits
    assert not fit.fits
    assert fit.largest_batch == 0
    assert fit.serving.largest_context == 0
    assert fit.step_seconds is None
    assert fit.serving.prefill_seconds is None
    assert "the largest part is parameters" in fit.reason


def test_several_cards():
    spec = asked(BIG, gpu="NVIDIA A100-SXM4-40GB")
    one, two = (plan(replace(spec, serving=replace(spec.serving, tensor_parallel=ways))).fits[0] for ways in (1, 2))
    assert two.gpu == "2x NVIDIA A100-SXM4-40GB"
    assert len(two.cards) == 2
    assert two.serving.kv_cache_bytes == one.serving.kv_cache_bytes
    assert two.cards[0].bytes.kv_cache == one.cards[0].bytes.kv_cache // 2
    assert 0 < two.serving.communication_share < 1
    assert two.serving.decode_tokens_per_s_per_card == pytest.approx(two.serving.decode_tokens_per_s / 2)
    assert two.largest_batch > 2 * one.largest_batch


def test_heads_on_several_cards_take_their_room_on_each():
    """Four heads of keys on eight cards: each twice."""
    spec = asked(tensor_parallel=8)
    assert as_asked(spec).fits[0].serving.kv_cache_bytes == 2 * read(asked()).fits[0].serving.kv_cache_bytes


def test_a_paged_cache_has_whole_blocks():
    spec = asked(kv_block=64)
    layout = CacheLayout((LayerCache((32, 32)),) * 5, 2, 64)
    assert as_asked(spec).fits[0].serving.kv_cache_bytes == layout.bytes(4, 164)
    assert layout.layers[0].tokens(164, 64) == 192


def test_quantised_weights_take_less():
    plain, packed = read(asked(BIG)).fits[0], as_asked(asked(BIG, weights="int4")).fits[0]
    assert packed.bytes.parameters < 0.35 * plain.bytes.parameters
    assert packed.serving.decode_step_seconds < plain.serving.decode_step_seconds


def test_a_configuration_says_how_its_weights_are_stored(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": 512,
        "torch_dtype": "float16",
    }
    quantised = {**config, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    (tmp_path / "plain.json").write_text(json.dumps(config))
    (tmp_path / "gptq.json").write_text(json.dumps(quantised))
    plain, packed = (
        as_asked(replace(asked(f"transformers:{name}.json"), folder=str(tmp_path))) for name in ("plain", "gptq")
    )
    assert packed.fits[0].bytes.parameters < 0.5 * plain.fits[0].bytes.parameters
    assert any("gptq, 4 bits in groups of 128" in line for line in packed.assumptions)
    assert packed.parameters == plain.parameters


def test_a_checkpoint_says_how_large_its_weights_are(tmp_path):
    """One tensor of 10 MB in place of everything: what the header says is what counts."""
    size = 10 << 20
    header = json.dumps({"all": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    file = tmp_path / "model.safetensors"
    with file.open("wb") as written:
        written.write(struct.pack("<Q", len(header)) + header)
        written.truncate(8 + len(header) + size)
    spec = replace(asked(weights=str(file)), dtype=None)
    report = plan(spec)
    assert abs(report.fits[0].bytes.parameters - size) < 64 << 10  # blocks of 512 B
    assert any("10.00 MiB by the headers of 1 file" in line for line in report.assumptions)
    assert any("bfloat16" in line for line in report.assumptions)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (asked("resnet18"), "is a ResNet, which does not generate text; --generate is for causal language models"),
        (asked("transformers:bert"), "is a BertForMaskedLM, which does not generate text"),
        (asked("transformers:t5"), "with an encoder, which is not planned for"),
        (asked(prompt=2000), "2,000 tokens and 64 more are 2,064, and .* has positions for 2,048"),
        (asked(kv_dtype="float8_e4m3fn"), "Tesla T4 has no float8_e4m3fn for keys and values; it has"),
        (asked(kv_dtype="int32"), "keys and values are not kept in int32"),
        (asked(generate=0), "0 tokens to generate cannot be planned for"),
        (asked(tensor_parallel=65), "65 cards for tensor parallelism cannot be planned for"),
        (asked(tensor_parallel=3), "8 attention heads of .* cannot be split over 3 cards"),
        (asked(GPT2, tensor_parallel=2), "no plan for tensor parallelism"),
        (asked(gpu="2x Tesla T4"), "name the card once and give --tensor-parallel 2"),
        (asked(gpu="Tesla T4, NVIDIA A10"), "is different cards"),
        (asked(weights="int5"), "there are no weights 'int5'"),
        (replace(asked(), train=True), "training means nothing where text is generated"),
        (replace(asked(), dtype="float64"), "does not generate in float64"),
    ],
)
def test_what_is_refused_in_one_line(spec, words):
    with pytest.raises(BadInput, match=words) as refused:
        plan(spec)
    assert "\n" not in str(refused.value)


def test_a_card_without_the_dtype_among_all_of_them():
    spec = replace(asked(kv_dtype="float8_e4m3fn"), gpus=())
    fits = {fit.gpu: fit for fit in as_asked(spec).fits}
    assert not fits["Tesla T4"].fits
    assert "has no float8_e4m3fn" in fits["Tesla T4"].reason
    assert fits["NVIDIA L4"].fits


def test_one_token_is_a_prefill_alone():
    serving = as_asked(asked(generate=1)).fits[0].serving
    assert serving.prefill_seconds is not None
    assert serving.decode_tokens_per_s is None


@pytest.mark.parametrize(("source", "words"), [(DEEPSEEK, "the projections absorbed"), (MAMBA, "as in mamba-ssm")])
def test_how_latents_and_states_are_computed_is_said(source, words):
    spec = replace(asked(source), search=False)
    assert any(words in sentence for sentence in plan(spec).assumptions)
    assert not any(words in sentence for sentence in plan(replace(spec, source=LLAMA)).assumptions)


@pytest.mark.parametrize(("batch", "wider"), [(1, False), (4, True)])
def test_the_range_of_packed_weights_is_wider_from_four_sequences_on(batch, wider):
    report = as_asked(replace(asked(weights="gptq"), batch=batch))
    serving = report.fits[0].serving
    assert (serving.decode_tokens_per_s / serving.decode_tokens_per_s_low > 2.9) == wider
    assert (PACKED.words in report.assumptions) == wider
