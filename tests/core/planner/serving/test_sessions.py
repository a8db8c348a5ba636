"""What a session runs: layers that stand for others, tensor parallelism, experts, packed weights, pieces of a
prompt."""

from collections import Counter

import pytest
import torch
from fakes.serving import DEEPSEEK, GEMMA, GPT2, JAMBA, LLAMA, MAMBA, MIXTRAL, served

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.planner.serving import kernels
from devexplorer.core.planner.serving.kernels import quantise
from devexplorer.core.planner.serving.session import DIRECT, SessionRunner
from devexplorer.core.planner.serving.storage import CacheLayout, preset
from devexplorer.core.planner.serving.tensor_parallel import Exchange
from devexplorer.core.planner.subject import chosen_experts

pytest.importorskip("transformers.cache_utils")
pytestmark = pytest.mark.usefixtures("virtual")

A100 = parse_virtual("A100-SXM4-80GB")[0]
T4 = parse_virtual("T4")[0]
FP8 = torch.float8_e4m3fn
TOKEN = 5 * 2 * 4 * 8
"""Numbers that Llama keeps of a token: layers, keys and values, heads, width."""


def ran(source, *, batch=1, prompt=8, generate=2, weights="", **options):
    """A session of this model."""
    model = served(source, **options)
    if weights:
        quantise(model.model, preset(weights), torch.bfloat16)
    return SessionRunner(model).run(batch=batch, prompt=prompt, generate=generate)


def flop(phase):
    return sum(work.flop * times for work, times in phase.trace.work.items())


def nbytes(phase):
    """What products and attention read and write."""
    return sum(work.nbytes * times for work, times in phase.trace.work.items() if work.flop)


@pytest.mark.parametrize("source", [LLAMA, GEMMA, MIXTRAL, DEEPSEEK, JAMBA], ids=lambda text: text[:20])
def test_layers_that_stand_for_others_are_what_they_are(source):
    """The same work, the same parameters, the same cache and the same peak as with every layer."""
    quick, whole = SessionRunner(served(source)), SessionRunner(served(source), every_layer=True)
    assert quick.depth.path or source == DEEPSEEK
    assert quick.layers == whole.layers
    one, other = (runner.run(batch=2, prompt=32, generate=9) for runner in (quick, whole))
    for phase, same in zip((*one.prefill, *one.decode), (*other.prefill, *other.decode), strict=True):
        assert dict(phase.trace.work) == dict(same.trace.work)
    assert one.trace.without_end.parts["parameters"] == other.trace.without_end.parts["parameters"]
    assert abs(one.trace.without_end.peak - other.trace.without_end.peak) < 16 << 10
    sizes = CacheLayout(quick.layers, 2).sizes(2, 41)
    assert list(one.trace.sizes[one.cache_blocks]) == list(other.trace.sizes[other.cache_blocks]) == sizes


def test_a_decode_step_reads_weights_and_cache_once():
    """Products and attention read all parameters but the table of the embedding, and keys and values of every token so
    far; what else they read and write is small."""
    source = LLAMA.replace("vocab_size=256", "vocab_size=20000")
    model = served(source).model
    table = model.get_submodule("model.embed_tokens").weight
    weights = sum(parameter.nbytes for parameter in model.parameters()) - table.nbytes
    session = ran(source, batch=4, prompt=1000, generate=1000)
    for phase, tokens in zip(session.decode, (1001, 1999), strict=True):
        least = weights + TOKEN * 2 * 4 * tokens + 4 * 20000 * 2  # cache and logits
        assert least < nbytes(phase) < 1.02 * least


@pytest.mark.parametrize(
    ("source", "options", "lengths", "more_bytes", "more_flop"),
    [
        (LLAMA, {}, (100, 200), 100 * TOKEN * 2, None),
        (LLAMA, {"kv_dtype": FP8}, (100, 200), 100 * TOKEN, None),
        (GEMMA, {}, (100, 101), 2 * 2 * 16 * 2, None),  # six of seven layers have a window of 8 tokens
        (DEEPSEEK, {"chunk": 64}, (100, 200), 100 * 4 * (24 + 8) * 2, 100 * 4 * 4 * 2 * (24 + 8 + 24)),
        (DEEPSEEK, {"chunk": 64, "kv_dtype": FP8}, (100, 200), 100 * 4 * (24 + 8), None),
    ],
    ids=["whole", "whole in 8 bits", "windows", "latents", "latents in 8 bits"],
)
def test_a_later_token_reads_what_is_cached_as_it_lies(source, options, lengths, more_bytes, more_flop):
    """Of latents 24 numbers and 8 rotary ones, whatever the number of heads."""
    runner = SessionRunner(served(source, **options))
    assert runner._way == DIRECT
    one, other = (runner.run(batch=1, prompt=some, generate=2).decode[0] for some in lengths)
    assert nbytes(other) - nbytes(one) == more_bytes
    if more_flop is not None:
        assert flop(other) - flop(one) == more_flop


def test_decoding_grows_evenly_with_what_is_cached():
    runner = SessionRunner(served(LLAMA))
    first, last = runner.run(batch=2, prompt=100, generate=102).decode
    middle = runner.run(batch=2, prompt=150, generate=2).decode[0]
    assert nbytes(first) + nbytes(last) == 2 * nbytes(middle)
    assert flop(first) + flop(last) == 2 * flop(middle)


def test_latents_of_a_prompt_are_expanded():
    """Each head's keys and values of every token, from 24 numbers."""
    one, other = (ran(DEEPSEEK, prompt=some, generate=1).prefill[0] for some in (64, 65))
    assert flop(other) - flop(one) > 4 * 2 * 24 * 4 * (16 + 16)


MAMBA2 = (
    "transformers:mamba2?hidden_size=64&num_hidden_layers=3&vocab_size=256&state_size=16&num_heads=8&head_dim=16"
    "&n_groups=1&chunk_size=64"
)


@pytest.mark.parametrize("source", [MAMBA2, MAMBA], ids=["chunks", "scan"])
def test_scans_are_one_kernel_for_each_layer(source):
    """Mamba 2: products within chunks of 64 and with the states, 2 FLOP for each; then the rest of its layers."""
    session = SessionRunner(served(source), every_layer=True).run(batch=2, prompt=128, generate=2)
    kernels_of = []
    for phase in (session.prefill[0], session.decode[0]):
        kernels_of.append([work for work in phase.trace.work.elements() if work.kind == "elementwise" and work.flop])
    scans, updates = kernels_of
    assert (len(scans), len(updates)) == (3, 3)
    if source == MAMBA2:
        assert scans[0].flop == 2 * 256 * (64 * (16 + 8 * 16) + 2 * 8 * 16 * 16)
        assert updates[0].flop == 9 * 2 * 8 * 16 * 16
        assert 2 * 2 * 8 * 16 * 16 * 2 < updates[0].nbytes < 2 * 2 * 8 * 16 * 16 * 4 * 1.4  # read and written


def test_pieces_of_a_prompt_take_less_memory_and_compute_the_same():
    """The products of all tokens are the same; each piece attends to what was before it."""
    whole, pieces = (ran(LLAMA, batch=2, prompt=512, chunk=chunk) for chunk in (None, 128))
    assert (pieces.pieces, len(pieces.prefill)) == (4, 2)
    assert pieces.trace.without_end.parts["activations"] < 0.5 * whole.trace.without_end.parts["activations"]
    mean = sum(map(flop, pieces.prefill)) / 2
    assert mean * 4 < flop(whole.prefill[0])  # whole attention is counted as a square, pieces as a staircase


# --- tensor parallelism


def test_tensor_parallel_halves_the_work_and_exchanges_after_attention_and_mlp():
    """Two exchanges of a hidden state for each of five layers, one for the table, one of logits."""
    one, two = (ran(LLAMA, batch=3, prompt=10, generate=3, ways=ways) for ways in (1, 2))
    hidden, logits = 3 * 64 * 2, 3 * 256 * 2
    assert two.decode[0].exchanges == Counter({Exchange("all-reduce", hidden): 11, Exchange("all-gather", logits): 1})
    assert two.prefill[0].exchanges[Exchange("all-reduce", 10 * hidden)] == 11
    assert flop(one.prefill[0]) == 2 * flop(two.prefill[0])
    assert not one.prefill[0].exchanges


def test_exchanges_take_longer_over_a_slower_link():
    exchange = Exchange("all-reduce", 64 << 20)
    assert exchange.seconds(T4, 4) > 10 * exchange.seconds(A100, 4)
    assert exchange.seconds(A100, 8) > exchange.seconds(A100, 2)
    assert Exchange("all-gather", 64 << 20).seconds(A100, 4) == exchange.seconds(A100, 4) / 2


def test_parameters_of_two_cards_are_those_of_one():
    """Norms are on both; everything else of Llama is split. What is tied stays tied."""
    one, two = served(LLAMA).model, served(LLAMA, ways=2).model
    norms = sum(parameter.numel() for name, parameter in one.named_parameters() if "norm" in name)
    whole, half = (sum(parameter.numel() for parameter in model.parameters()) for model in (one, two))
    assert 2 * half == whole + norms
    tied = served(GEMMA, ways=2).model
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight


def test_experts_are_split_too():
    one, two = (ran(MIXTRAL, batch=4, prompt=64, ways=ways) for ways in (1, 2))
    experts = 2 * 3 * 64 * 96 * 2 * 4 * 64 * 4  # products, matrices, their elements, each token's two, tokens, layers
    assert flop(one.prefill[0]) - flop(two.prefill[0]) > experts // 2


@pytest.mark.parametrize(
    ("source", "ways", "words"),
    [
        (GPT2, 2, "transformers has no plan for tensor parallelism"),
        (LLAMA, 3, r"the 8 attention heads of .* cannot be split over 3 cards"),
    ],
)
def test_what_cannot_be_split(source, ways, words):
    with pytest.raises(BadInput, match=words):
        served(source, ways=ways)


# --- experts, packed weights, kernels


def test_few_tokens_read_few_experts():
    """Of eight with two for each token: two for one token, all of them for many."""
    assert [chosen_experts(8, tokens, 2) for tokens in (1, 2, 3, 1000)] == [2, 4, 5, 8]
    named = dict(served(MIXTRAL).model.named_parameters())
    experts = sum(parameter.nbytes for name, parameter in named.items() if "experts" in name)
    rest = sum(parameter.nbytes for parameter in named.values()) - experts
    step = ran(MIXTRAL).decode[0]
    assert experts / 4 < nbytes(step) < experts / 4 + 2 * rest


def test_packed_weights_are_read_as_they_are_stored():
    before, after = (ran(LLAMA, weights=weights).decode[0] for weights in ("", "int4"))
    linear = 5 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 128)
    scales = 5 * (64 + 64 + 32 + 32 + 128 + 128 + 64) * 2 + 5 * 7 * 16
    assert nbytes(before) - nbytes(after) == linear * 2 - linear // 2 - scales
    assert flop(before) == flop(after)
    plain, packed = (ran(DEEPSEEK, weights=weights).decode[0] for weights in ("", "fp8"))
    assert flop(packed) == flop(plain)
    assert nbytes(packed) < 0.6 * nbytes(plain), "projections of latents are read once"


def test_eight_bit_products_run_at_that_rate_where_the_card_has_it():
    model = served(LLAMA)
    quantise(model.model, preset("fp8"), torch.bfloat16)
    runner = SessionRunner(model)
    rates = []
    for eight in (False, True):
        work = runner.run(batch=1, prompt=64, generate=2, eight_bit=eight).prefill[0].trace.work
        rates.append({item.dtype for item in work if item.flop})
    assert rates == [{"bfloat16"}, {"bfloat16", "float8_e4m3fn"}]


def test_attention_in_its_own_code_where_one_kernel_fails(monkeypatch):
    def failing(*_args, **_options):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(kernels, "attention", failing)
    runner = SessionRunner(served(LLAMA))
    assert not runner.direct
    assert any("own code" in note for note in runner.notes)
    assert runner.run(batch=1, prompt=8, generate=2).decode
