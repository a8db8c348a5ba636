"""Plans for generating text on every card: memory with the key-value cache, time to the first token, tokens a second,
the largest batch, the longest context; and what these figures rest on, in sentences. In the planner's process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.base import Report, bytes_text, count_text, no_report
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner import messages
from devexplorer.core.planner.messages import CONTEXT, MPS_MEMORY, MPS_SECONDS, as_it_is, calibrated
from devexplorer.core.planner.records import (
    LARGEST_BATCH,
    LONGEST_CONTEXT,
    Bound,
    Fit,
    FitBytes,
    FitCard,
    FitReport,
    FitSpec,
    ServingFit,
)
from devexplorer.core.planner.serving.kernels import has_scans, keeps_latents
from devexplorer.core.planner.serving.request import checked, lacks
from devexplorer.core.planner.serving.served import Served, make
from devexplorer.core.planner.serving.session import Phase, ServingSession, SessionRunner, any_profile
from devexplorer.core.planner.serving.storage import CacheLayout
from devexplorer.core.planner.subject import EQUAL_SHARES, has_experts
from devexplorer.core.planner.trace import (
    PACKED,
    PACKED_FROM,
    Numbers,
    Trace,
    context_bytes,
    cublas_bytes,
    library_bytes,
    step_estimate,
)
from devexplorer.core.planner.trace_cache import runs_convolutions
from devexplorer.core.virtual.device.memory import MIN_BLOCK

CROSS_ATTENTION = ("encoder_attn", "crossattention", "cross_attn")
"""What models of transformers call the attention of a decoder to what an encoder, of text, sound or pictures, found."""
LEFT_OUT = (
    "It is a decoder that attends to the output of an encoder, and it was planned for alone. Left out are the encoder"
    " (its weights and its run), the keys and values of its output that every such layer keeps for each sequence, and"
    " the attention to them; the weights of that attention are counted."
)


def assumptions(spec: FitSpec, made: Served, runner: SessionRunner, devices: Collection[str]) -> list[str]:
    """One sentence each."""
    serving = spec.serving
    assert serving is not None
    dtype = str(made.served.dtype).removeprefix("torch.")
    kept = "the whole sequence" if serving.kv_block is None else f"blocks of {serving.kv_block} tokens"
    sentences = [
        "Nothing ran on a real card: memory is counted by the rules of PyTorch's caching allocator, seconds are"
        " simulated by a roofline.",
        _weights(made, dtype),
        f"The cache has room for {kept} from the start, and tokens are written in place; transformers' own DynamicCache"
        " would copy it for each token.",
        "All prompts have the same length, and all sequences end together; the first token is there when the whole"
        " batch went through.",
        "Attention is one kernel that reads keys and values as they are kept.",
    ]
    if made.changed:
        sentences.append(as_it_is(made.changed))
    if any(name.rpartition(".")[2] in CROSS_ATTENTION for name, _ in made.served.model.named_modules()):
        sentences.append(LEFT_OUT)
    if "mps" in devices:
        sentences += [MPS_MEMORY, MPS_SECONDS]
    if "cuda" in devices:
        sentences.append(CONTEXT)
    if serving.prefill_chunk is None:
        sentences.append("Each prompt goes through the model as a whole; --prefill-chunk takes less memory.")
    if any(layer.state_bytes for layer in runner.layers):
        sentences.append("States (convolutions, recurrences) keep the dtype that the model gives them.")
    if any(map(keeps_latents, made.served.model.modules())) and runner.one_kernel:
        sentences.append(
            "Latents (MLA) are expanded for prompts; a later token attends to them as they lie, the projections"
            " absorbed, as serving engines do. transformers' own models expand the whole context for each token, which"
            " takes longer."
        )
    if has_scans(made.served.model):
        sentences.append(
            "Scans of state-space layers and updates of their states are one kernel each, as in mamba-ssm; without that"
            " package transformers takes several times as long."
        )
    if has_experts(made.served.model):
        sentences.append(EQUAL_SHARES)
    if serving.tensor_parallel > 1:
        sentences.append(
            f"Layers are split over {count_text(serving.tensor_parallel, 'card')} by transformers' plan for the model,"
            " what it leaves out is on every card; exchanges are rings over the profile's link, and nothing overlaps"
            " them."
        )
    return sentences


def _weights(made: Served, dtype: str) -> str:
    checkpoint, scheme = made.checkpoint, made.scheme
    stored = f"{scheme.title}, everything else is {dtype}" if scheme is not None else dtype
    if checkpoint is None:
        return f"Weights are {stored}."
    files = count_text(checkpoint.files, "file")
    return f"Weights are {stored}: {bytes_text(checkpoint.nbytes)} by the headers of {files} of '{checkpoint.path}'."


# The memory of a session that was not run: how each block grows with the batch, or with the prompt. No torch; any
# thread.
# Blocks of the cache have the sizes of its layout; of all others a straight line is taken through two runs, which a
# third one has to confirm.

TOLERANCE = 0.002
"""Of a block: shares of experts are rounded up to whole tokens."""
NEGLIGIBLE = 1e-4
"""Of the peak: what a block may be off by in any case."""


@dataclass(frozen=True)
class Law:
    """Straight lines through blocks."""

    _trace: Trace
    _cache: Numbers
    _base: npt.NDArray[np.float64]
    _slope: npt.NDArray[np.float64]
    exact: bool = True
    """Whether the third run was foretold to the byte."""

    def at(self, x: int, cache_sizes: Sequence[int]) -> Trace:
        """The trace there, with blocks of the cache of these sizes."""
        sizes = np.ceil(np.maximum(self._base + self._slope * x, 1) - 1e-6).astype(np.int64)
        sizes[self._cache] = np.maximum(np.array(cache_sizes, dtype=np.int64), 1)
        return replace(self._trace, sizes=sizes, work={}, copies={})


def law(runs: Mapping[int, ServingSession]) -> Law | None:
    """What three runs have in common; None where they have not."""
    (low, first), (middle, second), (high, third) = sorted(runs.items())
    same = (first.trace.events, first.cache_blocks)
    if any(
        not np.array_equal(run.trace.events, same[0]) or not np.array_equal(run.cache_blocks, same[1])
        for run in (second, third)
    ):
        return None
    sizes = [run.trace.sizes.astype(np.float64) for run in (first, second, third)]
    for some in sizes:
        some[first.cache_blocks] = 0
    slope = (sizes[2] - sizes[0]) / (high - low)
    base = sizes[0] - slope * low
    off = np.abs(base + slope * middle - sizes[1])
    if np.any(off > np.maximum(NEGLIGIBLE * second.trace.least, TOLERANCE * sizes[1])):
        return None
    return Law(first.trace, first.cache_blocks, base, slope, bool(np.all(off < 1e-3)))


class Most(NamedTuple):
    """What a search found."""

    number: int
    """0: not even the least."""
    at_least: bool
    """There was no time for more, or nothing larger was looked for."""


def most(
    fits: Callable[[int], bool], least: int, limit: int, has_time: Callable[[], bool], guess: int | None = None
) -> Most:
    """The largest number up to a limit that fits, where everything smaller does, too: from a guess, or the least, on
    doubled, then halved."""
    if least > limit:
        return Most(0, False)
    low, step, high = max(guess or least, least), 1, limit + 1
    while not fits(low):
        if low == least:
            return Most(0, False)
        high, low, step = low, max(least, low - step), 2 * step
    step = 1
    while low + step < high:
        if not has_time():
            return Most(low, True)
        if not fits(low + step):
            high = low + step
            break
        low, step = low + step, 2 * step
    while high - low > 1:
        if not has_time():
            return Most(low, True)
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Most(low, low == limit)


LAW_BATCHES = (8, 12, 20)
"""With fewer tokens each expert may have a single one, for which other operations run."""
LAW_TOKENS = 256
"""Prompts of a law differ by multiples of it, so that states that are computed in chunks grow evenly."""
NO_LAW = "Memory does not grow evenly with the {}, so the largest one was searched for by running; it may be larger."


class ServingCalculator:
    """Works out the fits of one request."""

    def __init__(self, made: Served, runner: SessionRunner, spec: FitSpec, has_time: Callable[[], bool]) -> None:
        assert spec.serving is not None
        self._made, self._runner, self._spec, self._serving = made, runner, spec, spec.serving
        self._has_time = has_time
        self._convolutions = runs_convolutions(made.served.model)
        kv_dtype = made.served.kv_dtype or made.served.dtype
        self.layout = CacheLayout(runner.layers, kv_dtype.itemsize, self._serving.kv_block)
        self.notes: dict[str, None] = {}
        self._sessions: dict[tuple[int, int, bool, bool], ServingSession] = {}
        self._laws: dict[tuple[str, bool], Law | None] = {}
        self._searched: dict[tuple[str, int, int, bool], Most] = {}

    def fit(self, profile: Profile) -> Fit:
        """The answer for one card, or for as many of them as share the layers."""
        ways, eight = self._serving.tensor_parallel, self._eight_bit(profile)
        label = profile.name if ways == 1 else f"{ways}x {profile.name}"
        session = self._session(self._spec.batch, self._serving.prompt, eight, whole=True)
        card = self._card(session, profile)
        missing = lacks(profile, self._serving)
        fits = card.fits and missing is None
        batch = self._largest_batch(profile, eight) if missing is None else Most(0, False)
        context = self._largest_context(profile, eight) if missing is None else Most(0, False)
        times = self._times(session, profile) if fits else None
        answer = self._serving_fit(context, times)
        whole = times and times.whole(self._serving.generate)
        count = self._spec.batch
        return Fit(
            gpu=label,
            fits=fits,
            cards=(card,) * ways,
            largest_batch=batch.number if self._spec.search else None,
            at_least=batch.at_least,
            step_seconds=whole and whole.seconds,
            step_seconds_low=whole and whole.low,
            step_seconds_high=whole and whole.high,
            samples_per_s=whole and count / whole.seconds,
            samples_per_s_low=whole and count / whole.high,
            samples_per_s_high=whole and count / whole.low,
            bound=whole and whole.bound,
            reason=missing or messages.reason((card,)),
            serving=answer,
        )

    def flop(self) -> int:
        """Floating-point operations of the request on all cards."""
        session = self._session(self._spec.batch, self._serving.prompt, False, whole=True)
        prefill = session.pieces * _mean([phase.trace.flop for phase in session.prefill])
        decode = (self._serving.generate - 1) * _mean([phase.trace.flop for phase in session.decode] or [0])
        return round((prefill + decode) * self._serving.tensor_parallel)

    # --- memory

    def _eight_bit(self, profile: Profile) -> bool:
        scheme = self._made.scheme
        return scheme is not None and bool(scheme.activations) and scheme.activations in profile.tflops

    def _session(self, batch: int, prompt: int, eight: bool, *, whole: bool = False) -> ServingSession:
        key = (batch, prompt, eight, whole)
        if key not in self._sessions:
            profile = any_profile()
            generate = self._serving.generate
            self._sessions[key] = self._runner.run(
                profile, batch=batch, prompt=prompt, generate=generate, eight_bit=eight, whole=whole
            )
        return self._sessions[key]

    def _taken(self, profile: Profile) -> int:
        """Bytes of a card that are not the allocator's."""
        return context_bytes(profile) + self._library(profile) + self._made.more_bytes

    def _library(self, profile: Profile) -> int:
        chip = profile.compute_capability
        return library_bytes(chip, products=True, convolutions=self._convolutions, train=False)

    def _card(self, session: ServingSession, profile: Profile) -> FitCard:
        replay = session.trace.replay(profile.usable_bytes, self._taken(profile))
        sizes = session.trace.sizes[session.cache_blocks]
        cache = int((-(-sizes // MIN_BLOCK) * MIN_BLOCK).sum())
        library, kept = self._library(profile), cublas_bytes(profile.compute_capability, products=True, train=False)
        return FitCard(
            gpu=profile.name,
            capacity_bytes=profile.usable_bytes,
            bytes=self._parts(replay.parts, cache, library, context_bytes(profile)),
            rest=self._parts(replay.rest, cache, kept, context_bytes(profile)),
            reserved_bytes=replay.reserved + library + self._made.more_bytes,
            fits=replay.fits,
            device=profile.device,
        )

    def _parts(self, found: Mapping[str, int], cache: int, library: int, context: int) -> FitBytes:
        """The cache was labelled as buffers; states get their room in the first pass, so at the peak it may not be
        there yet, and is counted all the same."""
        parts = dict(found)
        parts["parameters"] += self._made.more_bytes
        parts["buffers"] = max(parts["buffers"] - cache, 0)
        return FitBytes(**parts, kv_cache=cache, library_workspace=library, context=context)

    # --- the largest

    def _law(self, what: str, eight: bool) -> Law | None:
        key = (what, eight)
        if key not in self._laws:
            batch, prompt = self._spec.batch, self._serving.prompt
            if what == "batch":
                runs = {some: self._session(some, prompt, eight) for some in LAW_BATCHES}
            else:
                first = LAW_TOKENS * (1 + (self._serving.prefill_chunk or 0) // LAW_TOKENS)
                runs = {some: self._session(batch, some, eight) for some in (first, 2 * first, 4 * first)}
            self._laws[key] = law(runs)
            if self._laws[key] is None:
                self.notes[NO_LAW.format("batch" if what == "batch" else "context")] = None
        return self._laws[key]

    def _largest_batch(self, profile: Profile, eight: bool) -> Most:
        context, prompt = self._serving.context, self._serving.prompt
        return self._search(
            "batch",
            profile,
            eight,
            1,
            LARGEST_BATCH,
            lambda batch: (batch, prompt),
            lambda batch: (batch, batch, context),
        )

    def _largest_context(self, profile: Profile, eight: bool) -> Most:
        batch, generate = self._spec.batch, self._serving.generate
        limit = min(self._made.positions or LONGEST_CONTEXT, LONGEST_CONTEXT)
        return self._search(
            "context",
            profile,
            eight,
            generate + 1,
            limit,
            lambda length: (batch, length - generate),
            lambda length: (length - generate, batch, length),
        )

    def _search(
        self,
        what: str,
        profile: Profile,
        eight: bool,
        least: int,
        limit: int,
        run: Callable[[int], tuple[int, int]],
        computed: Callable[[int], tuple[int, int, int]],
    ) -> Most:
        """`run`: batch and prompt of a session; `computed`: where on the law, and batch and length of the cache."""
        key = (what, profile.usable_bytes, self._taken(profile), eight)
        if not self._spec.search or key in self._searched:
            return self._searched.get(key, Most(0, False))
        known = self._law(what, eight)

        def fits(trace: Trace) -> bool:
            return trace.replay(profile.usable_bytes, self._taken(profile)).fits

        def fits_computed(number: int) -> bool:
            assert known is not None
            at, batch, length = computed(number)
            return fits(known.at(at, self.layout.sizes(batch, length)))

        def fits_in_a_run(number: int) -> bool:
            return fits(self._session(*run(number), eight).trace)

        result = None if known is None else most(fits_computed, least, limit, lambda: True)
        if result is None or (known is not None and not known.exact and result.number and self._has_time()):
            guess = None if result is None else result.number
            result = most(fits_in_a_run, least, limit, self._has_time, guess)
        self._searched[key] = result
        return result

    # --- time

    def _times(self, session: ServingSession, profile: Profile) -> Times:
        """Of the prompts, and of a later token; what lies between two steps grows evenly."""
        prefill = self._mean([self._phase(profile, item) for item in session.prefill]).times(session.pieces)
        if not session.decode:
            return Times(prefill, None)
        return Times(prefill, self._mean([self._phase(profile, item) for item in session.decode]))

    def _phase(self, profile: Profile, phase: Phase) -> PassSeconds:
        ways = self._serving.tensor_parallel
        exchanged = sum(item.seconds(profile, ways) * times for item, times in phase.exchanges.items())
        scheme = self._made.scheme
        packed = scheme is not None and self._spec.batch >= PACKED_FROM and not self._eight_bit(profile)
        step = step_estimate((phase.trace,), (profile,), (PACKED,) if packed else ())
        self.notes.update(dict.fromkeys(doubt.words for doubt in step.doubts))
        bound: Bound = "link" if exchanged > step.seconds else step.bound
        return PassSeconds(step.seconds + exchanged, step.low + exchanged, step.high + exchanged, exchanged, bound)

    def _mean(self, spans: Sequence[PassSeconds]) -> PassSeconds:
        seconds, low, high, exchanged = (
            _mean([span[index] for span in spans])  # type: ignore[misc]
            for index in range(4)
        )
        return PassSeconds(seconds, low, high, exchanged, spans[-1].bound)

    def _serving_fit(self, context: Most, times: Times | None) -> ServingFit:
        batch, ways = self._spec.batch, self._serving.tensor_parallel
        prefill, decode = (None, None) if times is None else times
        rate = batch / decode.seconds if decode else None
        ends = {LONGEST_CONTEXT: "", self._made.positions: "positions"}.get(context.number, "memory")
        return ServingFit(
            kv_cache_bytes=ways * self.layout.bytes(batch, self._serving.context),
            kv_bytes_per_token=ways * self.layout.bytes_per_token,
            cache=self.layout.groups(batch, self._serving.context),
            largest_context=context.number if self._spec.search else None,
            context_limit=ends if self._spec.search else "",
            prefill_seconds=prefill and prefill.seconds,
            prefill_seconds_low=prefill and prefill.low,
            prefill_seconds_high=prefill and prefill.high,
            decode_step_seconds=decode and decode.seconds,
            decode_tokens_per_s=rate,
            decode_tokens_per_s_low=decode and batch / decode.high,
            decode_tokens_per_s_high=decode and batch / decode.low,
            decode_tokens_per_s_per_user=rate / batch if rate else None,
            decode_tokens_per_s_per_card=rate / ways if rate else None,
            communication_share=decode.exchanged / decode.seconds if decode and ways > 1 else None,
            decode_bound=decode and decode.bound,
        )


class PassSeconds(NamedTuple):
    """Simulated seconds of one pass."""

    seconds: float
    low: float
    high: float
    exchanged: float
    """Of them, in which cards exchange results."""
    bound: Bound

    def times(self, number: float) -> PassSeconds:
        """So many passes."""
        seconds, low, high, exchanged = (value * number for value in self[:4])
        return PassSeconds(seconds, low, high, exchanged, self.bound)


class Times(NamedTuple):
    """Of one request on one card."""

    prefill: PassSeconds
    decode: PassSeconds | None

    def whole(self, generate: int) -> PassSeconds:
        """Of the whole request."""
        if self.decode is None:
            return self.prefill
        first, later = self.prefill, self.decode.times(generate - 1)
        bound = later.bound if later.seconds > first.seconds else first.bound
        seconds, low, high, exchanged = (one + other for one, other in zip(first[:4], later[:4], strict=True))
        return PassSeconds(seconds, low, high, exchanged, bound)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def plan_serving(spec: FitSpec, progress: Report = no_report) -> FitReport:
    """The whole answer: the last of `serving_plans`."""
    return list(serving_plans(spec, progress))[-1]


def serving_plans(spec: FitSpec, progress: Report = no_report) -> Iterator[FitReport]:
    """Answer a request, with more cards each time. It replaces the virtual GPUs of this process.

    Raises `BadInput` where there is no such model, or it does not generate text.
    """
    serving = spec.serving
    assert serving is not None
    cards = checked(spec)
    started = time.monotonic()
    progress(0.0, f"making {spec.source}")
    made = make(spec)
    progress(0.1, f"generating with {spec.source} without values")
    runner = SessionRunner(made.served)
    calculator = ServingCalculator(made, runner, spec, lambda: time.monotonic() - started < spec.patience_seconds)
    fits: list[Fit] = []
    for index, profile in enumerate(cards):
        progress(0.3 + 0.7 * index / len(cards), f"{spec.source} on {profile.name}")
        fits.append(calculator.fit(profile))
        yield FitReport(
            spec=spec,
            fits=tuple(fits),
            late=tuple(card.name for card in cards[index + 1 :]),
            parameters=made.parameters,
            changed_tensors=made.changed,
            inputs=f"{spec.batch}x{serving.prompt}:int64",
            flop_per_step=calculator.flop() or None,
            assumptions=(
                *assumptions(spec, made, runner, {profile.device for profile in cards}),
                *calibrated(cards),
                *runner.notes,
                *calculator.notes,
            ),
        )
    progress(1.0, f"done after {time.monotonic() - started:.1f} s")
